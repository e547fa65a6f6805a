// Package middleware puts the locks of a [coord.Coordinator] around handlers of net/http: [Serialize] runs requests that are about
// the same thing one after another, in all processes, and [Route] sends each to the process where its lock is a local one.
//
// One request's journey: POST /orders/42 comes to any process. A [KeyFunc] names what it is about, such as "order/42"; a request
// for which there is no such name is answered with 400. Route asks the coordinator who owns the key. If that is another process, the
// request goes there, once, with all that it has, and its response comes back; if that process cannot be reached, the request stays.
// Where it is served, Serialize takes its turn in the queue for the key, and the handler runs with the lock and its fencing token
// in the request's context, which ends if the lock is lost. When the handler returns, or panics, the lock is given to
// the next. A request whose turn does not come in time, that finds too many waiting, or for which no locks are to be had, is answered
// with a [Problem] (RFC 9457) and may try again; one whose client has gone leaves the queue.
//
// A mutex for requests does not make a handler's writes safe by itself: a process may be stopped for longer than its lease, and go on
// after somebody else has got the lock. Let the database compare tokens, see [coord.Lock.Fence]. The order of arrival is kept in each
// process, and not between them: with Route all requests of a key come to one process.
package middleware
