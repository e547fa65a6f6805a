// Package holdgrpc puts the locks of a [coord.Coordinator] around calls of gRPC: [Serialize] runs
// calls about the same thing one after another. [Route] sends callers to the node that owns the
// key. [Idempotent] executes a call once however often it is sent. They are interceptors of a
// grpc.Server, for unary calls and for streams:
//
//	key := holdgrpc.KeyFunc(func(ctx context.Context, method string, req any) (string, error) {
//		order, ok := req.(interface{ GetOrderId() string })
//		if !ok {
//			return "", holdgrpc.ErrSkip
//		}
//		return middleware.JoinKey("order", order.GetOrderId()), nil
//	})
//	grpc.ChainUnaryInterceptor(authenticate, route, idempotent, serialize)
//
// Route is outside of Idempotent and of all that reads a stream, and inside of authentication, as
// here.
//
// Where grpc.Server.ServeHTTP is a handler of net/http, package middleware stands around it as
// well, and its Route forwards the calls.
//
// # Statuses
//
// Aborted: the turn did not come in time. ResourceExhausted: too many calls wait for the key.
// Unavailable: locks, or the store, are not to be had. InvalidArgument: no usable key, or an
// idempotency key that belongs to another call. Nothing was executed then. FailedPrecondition:
// [Idempotent] does not know how the first call with the key ended. AlreadyExists: that call was
// executed, and its answer was too large to be kept.
//
// # Owners
//
// A call is cheapest at the node that owns its key. Clients get there in one of two ways: [Follow]
// lets a server with [Route] tell, and [Resolve] knows, in a process of the cluster.
package holdgrpc
