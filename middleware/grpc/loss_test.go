package holdgrpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// A handler that asks its context after a lock was lost is told so by the first answer. That lock
// may be the one of an interceptor further out.
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

// A lock that is lost while a call within it waits for another one: the caller is there, and may
// try again.
func TestSerialize_OuterLockIsLost(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	of := func(key string) grpc.UnaryServerInterceptor {
		return holdgrpc.Serialize(c, func(context.Context, string, any) (string, error) { return key, nil }, nil).Unary
	}
	a, b := of("a"), of("b")
	info := &grpc.UnaryServerInfo{FullMethod: "/x"}
	l, err := c.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	_, err = a(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
		outer, _ := holdgrpc.Lock(ctx)
		go func() {
			await.Until(t, "a call that waits", func() bool { return c.Stats().Waiting == 1 })
			if err := c.Break(t.Context(), "a", outer.Fence(), "a test"); err != nil {
				t.Error(err)
			}
		}()
		return b(ctx, nil, info, func(context.Context, any) (any, error) {
			t.Error("two holders (I1)")
			return nil, nil
		})
	})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}
