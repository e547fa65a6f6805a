package holdgrpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// A handler that asks its context after a lock was lost is told so by the first answer, also where that is the one of an interceptor
// further out.
func TestSerialize_ErrAfterALoss(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	of := func(key string) grpc.UnaryServerInterceptor {
		return holdgrpc.Serialize(c, func(context.Context, string, any) (string, error) { return key, nil }, nil).Unary
	}
	a, b := of("a"), of("b")
	info := &grpc.UnaryServerInfo{FullMethod: "/x"}
	for _, outer := range []bool{false, true} {
		wrong := 0
		for range 20 {
			_, err := a(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
				l, _ := holdgrpc.Lock(ctx)
				handler := func(ctx context.Context, _ any) (any, error) {
					if ctx.Err() != nil {
						t.Error(ctx.Err())
					}
					if err := c.Break(t.Context(), "a", l.Fence(), "a test"); err != nil {
						t.Error(err)
					}
					if ctx.Err() == nil {
						wrong++
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				if outer {
					return b(ctx, nil, info, handler)
				}
				return handler(ctx, nil)
			})
			if !errors.Is(err, coord.ErrLost) {
				t.Error(err)
			}
		}
		if wrong > 0 {
			t.Errorf("with another lock inside: %v: no error in %d of 20 handlers", outer, wrong)
		}
	}
}
