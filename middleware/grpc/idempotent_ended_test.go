package holdgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// A handler that returns how a context has ended has failed: the call that is repeated runs it.
func TestIdempotent_ContextHasEnded(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	// lose returns the handler's context once the lock of its key is lost.
	lose := func(ctx context.Context) context.Context {
		l, _ := holdgrpc.Lock(ctx)
		if err := c.Break(t.Context(), l.Key(), l.Fence(), "a test"); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return ctx
	}
	always := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, test := range map[string]struct {
		first func(context.Context) error
		code  codes.Code // Unknown: gRPC's server knows no other
	}{
		"deadline":          {always(context.DeadlineExceeded), codes.DeadlineExceeded},
		"wrapped":           {always(fmt.Errorf("q: %w", context.DeadlineExceeded)), codes.DeadlineExceeded},
		"canceled":          {always(fmt.Errorf("q: %w", context.Canceled)), codes.Canceled},
		"lock lost":         {func(ctx context.Context) error { return lose(ctx).Err() }, codes.Canceled},
		"cause of the loss": {func(ctx context.Context) error { return fmt.Errorf("q: %w", context.Cause(lose(ctx))) }, codes.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, nil)
			var runs atomic.Int32
			run := func(ctx context.Context) error {
				if runs.Add(1) == 1 {
					return test.first(ctx)
				}
				return nil
			}
			l := listen(t)
			serve(t, l, &service{
				pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
					return m, run(ctx)
				},
				list: func(m *wrapperspb.StringValue, ss grpc.ServerStream) error {
					if err := run(ss.Context()); err != nil {
						return err
					}
					return ss.SendMsg(m)
				},
			}, grpc.UnaryInterceptor(m.Unary), grpc.StreamInterceptor(m.Stream))
			conn := dial(t, l)
			if _, err := call(keyed(t.Context(), name+" unary"), conn, "42"); status.Code(err) != test.code || runs.Load() != 1 {
				t.Errorf("the first call: %v, want %v, %d runs", err, test.code, runs.Load())
			}
			if text, err := call(keyed(t.Context(), name+" unary"), conn, "42"); text != "42" || err != nil || runs.Load() != 2 {
				t.Errorf("the second call: %q, %v, %d runs", text, err, runs.Load())
			}
			runs.Store(0)
			if got := ask(t.Context(), conn, name+" stream", "42"); got.err == nil || runs.Load() != 1 {
				t.Errorf("the first stream: %+v, %d runs", got, runs.Load())
			}
			if got := ask(t.Context(), conn, name+" stream", "42"); len(got.texts) != 1 || got.err != nil || got.replayed || runs.Load() != 2 {
				t.Errorf("the second stream: %+v, %d runs", got, runs.Load())
			}
		})
	}
}

// Where the end of a context is final, the status that the first caller got is replayed.
func TestIdempotent_EndOfAContextThatIsFinal(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, &holdgrpc.IdempotentOptions{Final: func(codes.Code) bool { return true }})
	for _, of := range []error{fmt.Errorf("q: %w", context.DeadlineExceeded), fmt.Errorf("q: %w", coord.ErrLost), errors.New("sold")} {
		l := listen(t)
		serve(t, l, &service{pay: func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return nil, of }},
			grpc.UnaryInterceptor(m.Unary))
		conn := dial(t, l)
		_, first := call(keyed(t.Context(), of.Error()), conn, "42")
		_, again := call(keyed(t.Context(), of.Error()), conn, "42")
		if status.Code(first) != status.Code(again) || status.Convert(first).Message() != status.Convert(again).Message() {
			t.Errorf("%v: %v, then %v", of, first, again)
		}
	}
}
