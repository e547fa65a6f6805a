// Package middleware puts the locks of a [coord.Coordinator] around handlers of net/http: [Route]
// sends each request to the process where its lock is a local one. [Coalesce] lets equal reads
// share one run of the handler. [Idempotent] executes a request once however often it is sent.
// [Serialize] runs requests about the same thing one after another ([SerializeAll]: the same
// things; [Limit]: so many at the same time). Each can be used alone. Together they are stacked in
// this order, with authentication and limits of bodies around them all (docs/http.md has the place
// of other middlewares):
//
//	h = authenticate(route(coalesce(idempotent(serialize(h)))))
//
// One request's journey: POST /orders/42 comes to any process. A [KeyFunc] names its resource, such
// as "order/42"; a request without such a name is answered with 400.
//
// Route asks the coordinator for the key's owner. If that is another process, the request goes
// there, once, with all that it has, and its response comes back; if that process cannot be
// reached, the request stays. Route is outermost because the others concern the process that
// executes. Coalesce joins requests that meet in one process. Idempotent has to see the handler's
// answer, and not that the way there broke off (502); then the client sends its request again.
//
// Coalesce lets a POST pass, and Idempotent and Serialize, unless told otherwise, a GET. Where a
// read takes a lock as well, it is to be taken once for all that share the run, hence this order.
//
// Idempotent looks its Idempotency-Key up in a [Store]: an executed request is answered from there.
// Otherwise it locks the idempotency key, stores that the request is begun, and later the answer.
// Serialize is inside, so that a replay does not wait for the turn of an order that others work on.
// It takes the request's turn in the queue for "order/42". The handler runs with the lock and its
// fencing token in its context, which ends if the lock is lost. When the handler returns, or
// panics, the lock is given to the next, the answer is stored, and the client gets it. If the turn
// does not come in time (423), nothing was executed, and the request may be repeated with its
// idempotency key.
//
// A request that is not let through is answered with a [Problem] (RFC 9457), by all of them in the
// same way; one without its client leaves all queues.
//
// When a process ends, its requests end first, and then their locks: [http.Server.Shutdown], then
// [coord.Coordinator.Close], which gives the keys to the other processes, then the transport's idle
// connections. See the example "shutdown".
//
// A mutex for requests does not make a handler's writes safe by itself: a process may be stopped
// for longer than its lease, and go on after another holder has got the lock. Let the database
// compare tokens, see [coord.Lock.Fence]. The order of arrival is kept in each process, and not
// between them: with Route all requests of a key come to one process.
package middleware
