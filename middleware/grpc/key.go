package holdgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

// A KeyFunc names the resource that a call is about, as a key of a [coord.Coordinator]. method is
// the full name, such as "/shop.Orders/Pay". req is the request of a unary call, and nil for a
// stream: its key comes from the method and the metadata in ctx. It may be called concurrently.
// [ErrSkip] lets the call pass; an error that has a status of gRPC goes to the caller; any other is
// InvalidArgument, and its text does not go to the caller.
type KeyFunc func(ctx context.Context, method string, req any) (string, error)

// ErrSkip is returned by a KeyFunc for a call that is to be left alone.
var ErrSkip = middleware.ErrSkip

// of returns the call's key. ok is false if the call is to pass.
func (f KeyFunc) of(ctx context.Context, method string, req any) (key string, ok bool, err error) {
	key, err = f(ctx, method, req)
	if errors.Is(err, ErrSkip) {
		return "", false, nil
	}
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return "", false, err
		}
		return "", false, status.Error(codes.InvalidArgument, "the call has no usable key")
	}
	if key == "" || len(key) > coord.MaxKey {
		return "", false, status.Errorf(codes.InvalidArgument, "the key of the call has %d bytes, must have 1 to %d", len(key), coord.MaxKey)
	}
	return key, true, nil
}
