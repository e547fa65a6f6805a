package holdgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

func TestMain(m *testing.M) { leak.Main(m) }

// service has the methods of a generated server: /shop.Orders/Pay, /shop.Orders/Watch both ways,
// and /shop.Orders/List.
type service struct {
	pay   func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	watch func(grpc.ServerStream) error
	list  func(*wrapperspb.StringValue, grpc.ServerStream) error
}

var desc = grpc.ServiceDesc{
	ServiceName: "shop.Orders",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: func(srv any, ctx context.Context, dec func(any) error, by grpc.UnaryServerInterceptor) (any, error) {
		req := new(wrapperspb.StringValue)
		if err := dec(req); err != nil {
			return nil, err
		}
		return by(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: pay}, func(ctx context.Context, req any) (any, error) {
			return srv.(*service).pay(ctx, req.(*wrapperspb.StringValue))
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		return srv.(*service).watch(s)
	}}, {StreamName: "List", ServerStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		req := new(wrapperspb.StringValue)
		if err := s.RecvMsg(req); err != nil {
			return err
		}
		return srv.(*service).list(req, s)
	}}},
}

const pay, watch, list = "/shop.Orders/Pay", "/shop.Orders/Watch", "/shop.Orders/List"

// byOrder takes the value of a request, or, of a stream, the metadata "order".
var byOrder holdgrpc.KeyFunc = func(ctx context.Context, _ string, req any) (string, error) {
	if m, ok := req.(*wrapperspb.StringValue); ok {
		return middleware.JoinKey("order", m.Value), nil
	}
	return middleware.JoinKey("order", order(ctx)), nil
}

func locks(t *testing.T, a fallback.Arbiter, opts *coord.Options) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), a, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if s := c.Stats(); s.Locked > 0 || s.Waiting > 0 {
			t.Errorf("%d locks, %d waiters are left", s.Locked, s.Waiting)
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t *testing.T, l net.Listener, s *service, opts ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	server.RegisterService(&desc, s)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return server
}

func dial(t *testing.T, l net.Listener, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(l.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, text string, opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var res wrapperspb.StringValue
	err := conn.Invoke(ctx, pay, wrapperspb.String(text), &res, opts...)
	return res.Value, err
}
