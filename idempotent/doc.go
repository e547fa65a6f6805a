// Package idempotent executes work once, however often it arrives: a message of a queue, for
// example, or a job that is tried again. That holds over all processes that share a namespace of
// locks and a [Store]:
//
//	payments := idempotent.New(locks, store, &idempotent.Options{Scope: "payments"})
//	err := payments.Once(ctx, m.ID, func(ctx context.Context, l coord.Lock) error {
//		return pay(ctx, m)
//	})
//
// The first call with an ID runs the function, with a lock of the ID; calls that come meanwhile
// wait. They, and all later ones, return the result of that run. [middleware.Idempotent] is the
// same for requests of HTTP, and package middleware/grpc has it for calls.
//
// # Once, and not twice
//
// The store gets a record of the function's start before it runs, and one of its end when it has
// returned. If the process dies in between, it is not known whether the function has done its work:
// a later call gets [ErrUnknown], and the application, or a human, has to find out. No store beside
// the data can do better. Where the work is one transaction of an SQL database, package fence can:
// its Inbox keeps the ID in that transaction, and each message is executed exactly once.
//
// docs/once.md shows a consumer.
//
// [middleware.Idempotent]: https://pkg.go.dev/github.com/holdfast-go/holdfast/middleware#Idempotent
package idempotent
