package holdgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// serveHTTP serves calls as a handler of net/http, with middleware.Idempotent around.
func serveHTTP(t *testing.T, c *coord.Coordinator, s *service) net.Listener {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(ctx, req) // desc calls one
		}))
	server.RegisterService(&desc, s)
	m := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)
	h := httptest.NewUnstartedServer(m(server))
	h.Config.Protocols = new(http.Protocols)
	h.Config.Protocols.SetUnencryptedHTTP2(true)
	h.Start()
	t.Cleanup(func() {
		h.Close()
		server.Stop()
	})
	return h.Listener
}

// middleware.Idempotent around grpc.Server.ServeHTTP takes the codes for final that the interceptor
// does.
func TestIdempotent_CodesByHTTP(t *testing.T) {
	var runs atomic.Int32
	s := &service{pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		runs.Add(1)
		var code codes.Code
		_, err := fmt.Sscan(m.Value, &code)
		if err == nil {
			err = status.Error(code, "again?")
		}
		return m, err
	}}
	l := listen(t)
	m := holdgrpc.Idempotent(locks(t, fallback.NewMemory(), nil), middleware.NewMemoryStore(nil), one, nil)
	serve(t, l, s, grpc.UnaryInterceptor(m.Unary))
	intercepted, handled := dial(t, l), dial(t, serveHTTP(t, locks(t, fallback.NewMemory(), nil), s))
	twice := func(conn *grpc.ClientConn, code codes.Code) int32 {
		runs.Store(0)
		for range 2 {
			text := fmt.Sprint(uint32(code))
			if _, err := call(keyed(t.Context(), text), conn, text); status.Code(err) != code {
				t.Errorf("%v, want %v", err, code)
			}
		}
		return runs.Load()
	}
	for code := range codes.Code(18) { // one more than there are
		if got, want := twice(handled, code), twice(intercepted, code); got != want {
			t.Errorf("%v: %d runs, the interceptor has %d", code, got, want)
		}
	}
}

// A call goes on when its client's deadline has passed: the answer is there when that calls again.
func TestIdempotent_DeadlineByHTTP(t *testing.T) {
	var runs atomic.Int32
	gone := make(chan struct{})
	conn := dial(t, serveHTTP(t, locks(t, fallback.NewMemory(), nil), &service{
		pay: func(ctx context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
			runs.Add(1)
			if d, ok := ctx.Deadline(); ok {
				t.Errorf("the handler has a deadline: %v", d)
				<-ctx.Done()
			}
			<-gone
			return m, ctx.Err()
		},
	}))
	ctx, cancel := context.WithTimeout(keyed(t.Context(), "k"), 100*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, conn, "text"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	close(gone)
	if got, err := call(keyed(t.Context(), "k"), conn, "text"); err != nil || got != "text" || runs.Load() != 1 {
		t.Errorf("%q, %v, %d runs", got, err, runs.Load())
	}
}

// A client gets the same again: messages, status with its details, header and trailer.
func TestIdempotent_ReplayByHTTP(t *testing.T) {
	var runs atomic.Int32
	sold, err := status.New(codes.FailedPrecondition, "sold: 100 %").WithDetails(&errdetails.ErrorInfo{Reason: "SOLD"})
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, serveHTTP(t, locks(t, fallback.NewMemory(), nil), &service{list: func(m *wrapperspb.StringValue, ss grpc.ServerStream) error {
		runs.Add(1)
		if err := ss.SetHeader(metadata.Pairs("head", "1", "head-bin", "\x00\xff")); err != nil {
			return err
		}
		ss.SetTrailer(metadata.Pairs("tail", "2", "tail-bin", "\x00\xff"))
		for i := range len(m.Value) {
			if err := ss.SendMsg(wrapperspb.String(m.Value[:i])); err != nil {
				return err
			}
		}
		if m.Value == "abc" {
			return nil
		}
		return sold.Err()
	}}))
	for _, text := range []string{"abc", "ab", ""} {
		runs.Store(0)
		first, again := hear(t, conn, text), hear(t, conn, text)
		if v := again.head[holdgrpc.ReplayedHeader]; len(v) != 1 || v[0] != "true" || runs.Load() != 1 {
			t.Errorf("%q: %v, %d runs", text, again.head, runs.Load())
		}
		for _, of := range []heard{first, again} {
			delete(of.head, holdgrpc.ReplayedHeader)
			delete(of.head, "date") // the handler has none
		}
		if !reflect.DeepEqual(first.texts, again.texts) || len(again.texts) != len(text) ||
			!proto.Equal(first.end.Proto(), again.end.Proto()) || len(again.tail["tail-bin"]) != 1 ||
			!reflect.DeepEqual(first.head, again.head) || !reflect.DeepEqual(first.tail, again.tail) {
			t.Errorf("%q: %+v\nagain: %+v", text, first, again)
		}
	}
}

// The server gives a call up when its lock is lost, and leaves a response without a status. The
// call's outcome is not known, as its handler goes on.
func TestIdempotent_LossByHTTP(t *testing.T) {
	var runs atomic.Int32
	end := make(chan struct{})
	c := locks(t, fallback.NewMemory(), nil)
	conn := dial(t, serveHTTP(t, c, &service{list: func(m *wrapperspb.StringValue, ss grpc.ServerStream) error {
		runs.Add(1)
		if err := ss.SendMsg(m); err != nil {
			return err
		}
		l, _ := middleware.Lock(ss.Context())
		if err := c.Break(t.Context(), l.Key(), l.Fence(), "a test"); err != nil {
			t.Error(err)
		}
		<-end
		return nil
	}}))
	defer close(end)
	if got := hear(t, conn, "text"); len(got.texts) != 1 || got.end == nil {
		t.Errorf("%+v", got)
	}
	if got := hear(t, conn, "text"); got.end.Code() != codes.FailedPrecondition || runs.Load() != 1 {
		t.Errorf("%+v, %d runs", got, runs.Load())
	}
}

// heard is all that a client hears of a call.
type heard struct {
	texts      []string
	end        *status.Status
	head, tail metadata.MD
}

func hear(t *testing.T, conn *grpc.ClientConn, text string) (got heard) {
	t.Helper()
	stream, err := conn.NewStream(keyed(t.Context(), "k"+text), &grpc.StreamDesc{ServerStreams: true}, list)
	if err == nil {
		err = stream.SendMsg(wrapperspb.String(text))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		var m wrapperspb.StringValue
		if err = stream.RecvMsg(&m); err != nil {
			break
		}
		got.texts = append(got.texts, m.Value)
	}
	if !errors.Is(err, io.EOF) {
		got.end = status.Convert(err)
	}
	got.head, err = stream.Header()
	if err != nil {
		t.Error(err)
	}
	got.tail = stream.Trailer()
	return got
}
