package holdgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// listed is the answer that a caller of List gets.
type listed struct {
	texts    []string
	err      error
	replayed bool
}

// ask calls List, and reads to the end.
func ask(ctx context.Context, conn *grpc.ClientConn, key, text string) (got listed) {
	ctx, cancel := context.WithTimeout(keyed(ctx, key), 20*time.Second)
	defer cancel()
	s, err := conn.NewStream(ctx, &desc.Streams[1], list)
	if err == nil {
		err = errors.Join(s.SendMsg(wrapperspb.String(text)), s.CloseSend())
	}
	for err == nil {
		var m wrapperspb.StringValue
		if err = s.RecvMsg(&m); err == nil {
			got.texts = append(got.texts, m.Value)
		}
	}
	if !errors.Is(err, io.EOF) {
		got.err = err
	}
	if s != nil {
		head, _ := s.Header()
		got.replayed = len(head[holdgrpc.ReplayedHeader]) > 0
	}
	return got
}

// A call whose server streams is executed once; a repeated one gets all its messages, and its
// status.
func TestIdempotent_Stream(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, &holdgrpc.IdempotentOptions{MaxAnswer: 1000})
	s := holdgrpc.Serialize(c, func(context.Context, string, any) (string, error) { return "all", nil }, nil)
	var runs atomic.Int32
	l := listen(t)
	serve(t, l, &service{
		pay: func(_ context.Context, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
			runs.Add(1)
			return wrapperspb.String(strings.Repeat("x", 2000)), nil
		},
		list: func(m *wrapperspb.StringValue, ss grpc.ServerStream) error {
			runs.Add(1)
			if _, ok := holdgrpc.Lock(ss.Context()); !ok {
				return status.Error(codes.Internal, "no lock")
			}
			if m.Value == "large" {
				return ss.SendMsg(wrapperspb.String(strings.Repeat("x", 2000)))
			}
			for i := range 3 {
				if err := ss.SendMsg(wrapperspb.String(fmt.Sprint(m.Value, " ", i))); err != nil {
					return err
				}
			}
			switch m.Value {
			case "sold":
				return status.Error(codes.FailedPrecondition, "sold")
			case "busy":
				return status.Error(codes.Unavailable, "busy")
			}
			return nil
		},
	}, grpc.ChainStreamInterceptor(m.Stream, s.Stream), grpc.UnaryInterceptor(m.Unary))
	conn := dial(t, l)
	for _, test := range []struct {
		key, text string
		texts     []string
		code      codes.Code
		runs      int32
		replayed  bool
	}{
		{"1", "a", []string{"a 0", "a 1", "a 2"}, codes.OK, 1, false}, {"1", "a", []string{"a 0", "a 1", "a 2"}, codes.OK, 0, true},
		{"1", "b", nil, codes.InvalidArgument, 0, false}, {"2", "a", []string{"a 0", "a 1", "a 2"}, codes.OK, 1, false},
		{"3", "sold", []string{"sold 0", "sold 1", "sold 2"}, codes.FailedPrecondition, 1, false},
		{"3", "sold", []string{"sold 0", "sold 1", "sold 2"}, codes.FailedPrecondition, 0, true},
		{"4", "busy", []string{"busy 0", "busy 1", "busy 2"}, codes.Unavailable, 1, false},
		{"4", "busy", []string{"busy 0", "busy 1", "busy 2"}, codes.Unavailable, 1, false},
		{"5", "large", []string{strings.Repeat("x", 2000)}, codes.OK, 1, false}, {"5", "large", nil, codes.AlreadyExists, 0, false},
	} {
		runs.Store(0)
		got := ask(t.Context(), conn, test.key, test.text)
		if !slices.Equal(got.texts, test.texts) || status.Code(got.err) != test.code || runs.Load() != test.runs || got.replayed != test.replayed {
			t.Errorf("%+v: %+v, %d runs", test, got, runs.Load())
		}
	}
	runs.Store(0)
	for _, code := range []codes.Code{codes.OK, codes.AlreadyExists} {
		if _, err := call(keyed(t.Context(), "6"), conn, "large"); status.Code(err) != code || runs.Load() != 1 {
			t.Errorf("unary: %v, want %v, %d runs", err, code, runs.Load())
		}
	}
	ctx, cancel := context.WithTimeout(keyed(t.Context(), "7"), 20*time.Second)
	defer cancel()
	both, err := conn.NewStream(ctx, &desc.Streams[0], watch)
	if err != nil {
		t.Fatal(err)
	}
	if err := both.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a caller that streams: %v", err)
	}
}

// A caller that goes away does not stop the handler: the one that calls again gets the whole
// answer.
func TestIdempotent_StreamWhoseCallerLeaves(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	m := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, nil)
	l := listen(t)
	in, gone := make(chan struct{}), make(chan struct{})
	serve(t, l, &service{list: func(_ *wrapperspb.StringValue, ss grpc.ServerStream) error {
		close(in)
		<-gone
		for i := range 100 {
			if err := ss.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
				return err
			}
		}
		return ss.Context().Err()
	}}, grpc.StreamInterceptor(m.Stream))
	conn := dial(t, l)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-in
		leave()
	}()
	if got := ask(ctx, conn, "k", "x"); status.Code(got.err) != codes.Canceled {
		t.Errorf("%+v", got)
	}
	close(gone)
	if got := ask(t.Context(), conn, "k", "x"); len(got.texts) != 100 || got.err != nil || !got.replayed {
		t.Errorf("%+v", got)
	}
}

// A call that is repeated at another node is replayed, also if it has no messages.
func TestIdempotent_StreamAtAnotherNode(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	store := middleware.NewMemoryStore(nil)
	var runs atomic.Int32
	handler := &service{list: func(_ *wrapperspb.StringValue, ss grpc.ServerStream) error {
		runs.Add(1)
		return ss.SetHeader(metadata.Pairs("a", "b"))
	}}
	for i := range 2 { // two nodes
		l := listen(t)
		serve(t, l, handler, grpc.StreamInterceptor(holdgrpc.Idempotent(c, store, one, nil).Stream))
		if got := ask(t.Context(), dial(t, l), "k", "x"); got.err != nil || got.replayed != (i == 1) || runs.Load() != 1 {
			t.Errorf("node %d: %+v, %d runs", i, got, runs.Load())
		}
	}
}
