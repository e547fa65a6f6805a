package holdgrpc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

func keyed(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

// one is the scope of a service with one client.
func one(context.Context, string, any) (string, error) { return "all", nil }

func TestIdempotent(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, nil)
	var runs atomic.Int32
	l := listen(t)
	serve(t, l, &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		runs.Add(1)
		switch m.Value {
		case "sold":
			s, _ := status.New(codes.FailedPrecondition, "sold").WithDetails(&errdetails.ErrorInfo{Reason: "SOLD"})
			return nil, s.Err()
		case "busy":
			return nil, status.Error(codes.Unavailable, "busy")
		}
		return wrapperspb.String("paid " + m.Value), nil
	}}, grpc.UnaryInterceptor(m.Unary))
	conn := dial(t, l)
	for _, test := range []struct {
		key, text, answer string
		code              codes.Code
		runs              int32
		replayed          bool
	}{
		{"1", "42", "paid 42", codes.OK, 1, false}, {"1", "42", "paid 42", codes.OK, 0, true}, {"2", "42", "paid 42", codes.OK, 1, false},
		{"1", "43", "", codes.InvalidArgument, 0, false},
		{"3", "sold", "", codes.FailedPrecondition, 1, false}, {"3", "sold", "", codes.FailedPrecondition, 0, true},
		{"4", "busy", "", codes.Unavailable, 1, false}, {"4", "busy", "", codes.Unavailable, 1, false},
		{"", "42", "", codes.InvalidArgument, 0, false},
	} {
		runs.Store(0)
		var head metadata.MD
		text, err := call(keyed(t.Context(), test.key), conn, test.text, grpc.Header(&head))
		if text != test.answer || status.Code(err) != test.code || runs.Load() != test.runs || (len(head[holdgrpc.ReplayedHeader]) > 0) != test.replayed {
			t.Errorf("%v: %q, %v, %d runs, %v", test, text, err, runs.Load(), head)
		}
		if test.text == "sold" && len(status.Convert(err).Details()) != 1 {
			t.Errorf("%v: details %v", test, status.Convert(err).Details())
		}
	}
}

// Calls that come at the same time run once; the run goes on when its caller has left.
func TestIdempotent_Together(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, nil)
	in, out := make(chan struct{}, 9), make(chan struct{})
	l := listen(t)
	serve(t, l, &service{pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		in <- struct{}{}
		<-out
		return m, ctx.Err()
	}}, grpc.UnaryInterceptor(m.Unary))
	conn := dial(t, l)
	ctx, leave := context.WithCancel(keyed(t.Context(), "k"))
	left := make(chan error, 1)
	go func() { _, err := call(ctx, conn, "42"); left <- err }()
	<-in
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if text, err := call(keyed(t.Context(), "k"), conn, "42"); text != "42" || err != nil {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
	leave()
	if err := <-left; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	close(out)
	wg.Wait()
	if len(in) > 0 {
		t.Errorf("%d more runs", len(in))
	}
}

// So many calls wait for the first one; the next is told at once.
func TestIdempotent_MaxWaiters(t *testing.T) {
	for most, waiting := range map[int]int{0: 32, 2: 2, -1: 40} { // 0: the default
		c := locks(t, fallback.NewMemory(), nil)
		m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, &holdgrpc.IdempotentOptions{Wait: time.Minute, MaxWaiters: most})
		info := &grpc.UnaryServerInfo{FullMethod: pay}
		in, out := make(chan struct{}, 99), make(chan struct{})
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
		send := func(ctx context.Context) error {
			_, err := m.Unary(ctx, wrapperspb.String("42"), info, func(_ context.Context, req any) (any, error) {
				in <- struct{}{}
				<-out
				return req, nil
			})
			return err
		}
		var wg sync.WaitGroup
		for i := range 1 + waiting {
			wg.Go(func() {
				if err := send(ctx); err != nil {
					t.Errorf("%d: %v", most, err)
				}
			})
			if i == 0 {
				<-in
			}
		}
		await.Until(t, "calls that wait", func() bool { return c.Stats().Waiting == waiting })
		if most >= 0 {
			at, cancel := context.WithTimeout(ctx, 10*time.Second) // so that one that waits is noticed
			if err := send(at); status.Code(err) != codes.Aborted || at.Err() != nil {
				t.Errorf("%d: one more: %v, %v", most, err, at.Err())
			}
			cancel()
		}
		close(out)
		wg.Wait()
		if len(in) > 0 {
			t.Errorf("%d: %d more runs", most, len(in))
		}
	}
}

// forgetful loses the record of the answer.
type forgetful struct {
	middleware.Store
	puts atomic.Int32
}

func (f *forgetful) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	if f.puts.Add(1) == 2 {
		return errors.New("lost")
	}
	return f.Store.Put(ctx, key, record, fence, ttl)
}

func TestIdempotent_OutcomeUnknown(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, &forgetful{Store: middleware.NewMemoryStore(nil)}, one, nil)
	l := listen(t)
	serve(t, l, &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return m, nil }},
		grpc.UnaryInterceptor(m.Unary))
	conn := dial(t, l)
	if text, err := call(keyed(t.Context(), "k"), conn, "42"); text != "42" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := call(keyed(t.Context(), "k"), conn, "42"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
}
