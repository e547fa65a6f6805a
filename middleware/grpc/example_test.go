package holdgrpc_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// exampleLocks are of one process: a service has a coordinator at Redis, with a Cluster whose
// Service says where to call this process.
func exampleLocks() *coord.Coordinator {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// exampleServer serves /shop.Orders/Pay, and returns where.
func exampleServer(
	pay func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error), opts ...grpc.ServerOption,
) (target string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	server.RegisterService(&desc, &service{pay: pay})
	go server.Serve(l)
	return l.Addr().String(), server.Stop
}

func examplePay(ctx context.Context, conn *grpc.ClientConn, order string) {
	var answer wrapperspb.StringValue
	var head metadata.MD
	err := conn.Invoke(ctx, "/shop.Orders/Pay", wrapperspb.String(order), &answer, grpc.Header(&head))
	fmt.Println(status.Code(err), answer.Value, head[holdgrpc.ReplayedHeader])
}

// Calls about one order run one after another, in all processes.
func ExampleSerialize() {
	locks := exampleLocks()
	defer locks.Close(context.Background())

	byOrder := holdgrpc.KeyFunc(func(_ context.Context, _ string, req any) (string, error) {
		order, ok := req.(*wrapperspb.StringValue) // or interface{ GetOrderId() string }
		if !ok {
			return "", holdgrpc.ErrSkip
		}
		return middleware.JoinKey("order", order.Value), nil
	})
	serialize := holdgrpc.Serialize(locks, byOrder, nil)
	target, stop := exampleServer(func(ctx context.Context, order *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		l, _ := holdgrpc.Lock(ctx)
		return wrapperspb.String("paid with " + l.Key()), nil
	}, grpc.ChainUnaryInterceptor(serialize.Unary), grpc.ChainStreamInterceptor(serialize.Stream))
	defer stop()

	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	examplePay(context.Background(), conn, "42")
	// Output: OK paid with order/42 []
}

// A call that is sent again with its idempotency key is not executed again.
func ExampleIdempotent() {
	locks := exampleLocks()
	defer locks.Close(context.Background())
	store := middleware.NewMemoryStore(nil) // middleware.NewRedisStore(client, nil)

	user := func(ctx context.Context, _ string, _ any) (string, error) { // as authentication has found out
		md, _ := metadata.FromIncomingContext(ctx)
		if len(md["user"]) != 1 {
			return "", status.Error(codes.Unauthenticated, "no user")
		}
		return md["user"][0], nil
	}
	idempotent := holdgrpc.Idempotent(locks, store, user, nil)
	n := 0
	target, stop := exampleServer(func(_ context.Context, order *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		n++
		return wrapperspb.String(fmt.Sprintf("payment %d of %s", n, order.Value)), nil
	}, grpc.ChainUnaryInterceptor(idempotent.Unary), grpc.ChainStreamInterceptor(idempotent.Stream))
	defer stop()

	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "user", "ann", "idempotency-key", "7f3a")
	examplePay(ctx, conn, "42")
	examplePay(ctx, conn, "42")
	examplePay(ctx, conn, "43") // another request
	// Output:
	// OK payment 1 of 42 []
	// OK payment 1 of 42 [true]
	// InvalidArgument  []
}

// Servers tell clients that follow which node owns the key of a call.
func ExampleRoute() {
	locks := exampleLocks()
	defer locks.Close(context.Background())
	route, serialize := holdgrpc.Route(locks, byOrder, nil), holdgrpc.Serialize(locks, byOrder, nil)
	target, stop := exampleServer(func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		return wrapperspb.String("paid"), nil
	}, grpc.ChainUnaryInterceptor(route.Unary, serialize.Unary), grpc.ChainStreamInterceptor(route.Stream, serialize.Stream))
	defer stop()

	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	f := holdgrpc.Follow(creds)
	defer f.Close()
	conn, err := grpc.NewClient(target, creds, grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	examplePay(context.Background(), conn, "42")
	// Output: OK paid []
}

// A process of the cluster calls the owner at once.
func ExampleResolve() {
	var locks *coord.Coordinator // of this process, a gateway
	call := func() (*grpc.ClientConn, error) {
		r := holdgrpc.Resolve(locks, byOrder, nil)
		creds := grpc.WithTransportCredentials(insecure.NewCredentials())
		return grpc.NewClient("holdfast:///orders", append(r.DialOptions(), creds)...)
	}
	_ = call
}
