package holdgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

func order(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md["order"]) == 0 {
		return ""
	}
	return md["order"][0]
}

func TestSerialize_OneAtATime(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	s := holdgrpc.Serialize(c, byOrder, nil)
	var running, most atomic.Int32
	l := listen(t)
	serve(t, l, &service{pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		held, ok := holdgrpc.Lock(ctx)
		if _, err := c.Lock(ctx, held.Key()); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("the lock again: %v", err)
		}
		return wrapperspb.String(fmt.Sprint(held.Key(), " ", ok, " ", held.Fence() > 0)), nil
	}}, grpc.ChainUnaryInterceptor(s.Unary, s.Unary)) // twice is once
	conn := dial(t, l)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if text, err := call(t.Context(), conn, "42"); text != "order/42 true true" || err != nil {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

// Interceptors of one call: the same key is locked once, however they are nested, and by each
// coordinator.
func TestSerialize_Nested(t *testing.T) {
	c, other := locks(t, fallback.NewMemory(), nil), locks(t, fallback.NewMemory(), nil)
	named := func(c *coord.Coordinator, key string) grpc.UnaryServerInterceptor {
		return holdgrpc.Serialize(c, func(context.Context, string, any) (string, error) { return key, nil }, nil).Unary
	}
	l := listen(t)
	serve(t, l, &service{pay: func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		return wrapperspb.String(fmt.Sprint(c.Stats().Locked, other.Stats().Locked)), nil
	}}, grpc.ChainUnaryInterceptor(named(c, "a"), named(other, "a"), named(c, "b"), named(c, "a")))
	if text, err := call(t.Context(), dial(t, l), ""); text != "2 1" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestSerialize_Statuses(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	ended, err := coord.New(t.Context(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended.Close(t.Context())
	held, err := c.Lock(t.Context(), "order/42")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	fails := func(err error) holdgrpc.KeyFunc {
		return func(context.Context, string, any) (string, error) { return "", err }
	}
	for name, test := range map[string]struct {
		s    *holdgrpc.Serializer
		code codes.Code
	}{
		"locked":      {holdgrpc.Serialize(c, byOrder, &holdgrpc.SerializeOptions{Wait: -1}), codes.Aborted},
		"waited":      {holdgrpc.Serialize(c, byOrder, &holdgrpc.SerializeOptions{Wait: 10e6}), codes.Aborted},
		"unavailable": {holdgrpc.Serialize(ended, byOrder, nil), codes.Unavailable},
		"no key":      {holdgrpc.Serialize(c, fails(errors.New("secret")), nil), codes.InvalidArgument},
		"bad key": {holdgrpc.Serialize(c, func(context.Context, string, any) (string, error) { return "k\x00k\x00\xff", nil }, nil),
			codes.InvalidArgument},
		"own status": {holdgrpc.Serialize(c, fails(status.Error(codes.PermissionDenied, "no")), nil), codes.PermissionDenied},
		"skipped":    {holdgrpc.Serialize(c, fails(holdgrpc.ErrSkip), nil), codes.OK},
	} {
		l := listen(t)
		serve(t, l, &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) { return m, nil }},
			grpc.UnaryInterceptor(test.s.Unary))
		if _, err := call(t.Context(), dial(t, l), "42"); status.Code(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSerialize_TooManyWait(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	few := holdgrpc.Serialize(c, byOrder, &holdgrpc.SerializeOptions{MaxWaiters: 1})
	in, out := make(chan struct{}, 3), make(chan struct{})
	l := listen(t)
	serve(t, l, &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		in <- struct{}{}
		<-out
		return m, nil
	}}, grpc.UnaryInterceptor(few.Unary))
	conn := dial(t, l)
	results := make(chan error, 3)
	send := func() { _, err := call(t.Context(), conn, "42"); results <- err }
	go send()
	<-in
	go send()
	go send() // one of the two waits
	if err := <-results; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	close(out)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// Calls whose handlers have unlocked early, and run on, send no other away.
func TestSerialize_HandlersThatUnlockedEarly(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	few := holdgrpc.Serialize(c, byOrder, &holdgrpc.SerializeOptions{MaxWaiters: 1})
	free, proceed := make(chan struct{}), make(chan struct{})
	l := listen(t)
	serve(t, l, &service{pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		held, _ := holdgrpc.Lock(ctx)
		if err := held.Unlock(); err != nil {
			t.Error(err)
		}
		free <- struct{}{}
		<-proceed
		return m, nil
	}}, grpc.UnaryInterceptor(few.Unary))
	conn := dial(t, l)
	var work sync.WaitGroup
	defer work.Wait()
	defer close(proceed)
	for i := range 4 {
		work.Go(func() {
			if _, err := call(t.Context(), conn, "42"); err != nil {
				t.Errorf("%v, behind %d that have unlocked", err, i)
				free <- struct{}{}
			}
		})
		<-free
	}
}

// A stream holds the lock until it ends, also by its caller's leaving.
func TestSerialize_Stream(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	s := holdgrpc.Serialize(c, byOrder, nil)
	l := listen(t)
	serve(t, l, &service{watch: func(ss grpc.ServerStream) error {
		if held, ok := holdgrpc.Lock(ss.Context()); !ok || held.Key() != "order/7" {
			t.Errorf("%v %v", held, ok)
		}
		for {
			var m wrapperspb.StringValue
			if err := ss.RecvMsg(&m); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			ss.SendMsg(&m)
		}
	}}, grpc.StreamInterceptor(s.Stream))
	conn := dial(t, l)
	for _, leave := range []bool{false, true} {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "order", "7"))
		defer cancel()
		ss, err := conn.NewStream(ctx, &desc.Streams[0], watch)
		if err != nil {
			t.Fatal(err)
		}
		var m wrapperspb.StringValue
		if err := errors.Join(ss.SendMsg(wrapperspb.String("x")), ss.RecvMsg(&m)); err != nil || m.Value != "x" {
			t.Fatal(m.Value, err)
		}
		if _, err := c.TryLock(t.Context(), "order/7"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%v", err)
		}
		if leave {
			cancel()
		} else if ss.CloseSend(); !errors.Is(ss.RecvMsg(&m), io.EOF) {
			t.Error("the stream goes on")
		}
		held, err := c.Lock(t.Context(), "order/7")
		if err != nil {
			t.Fatal(err)
		}
		held.Unlock()
	}
}
