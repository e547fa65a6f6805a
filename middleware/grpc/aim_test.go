package holdgrpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// Calls to an owner end when it is found dead, though it keeps its connection. Later ones go to
// another node, and those to other owners go on.
func TestResolve_OwnerFoundDead(t *testing.T) {
	began, proceed := make(chan string, 8), make(chan struct{})
	await := func(ctx context.Context) {
		if len(metadata.ValueFromIncomingContext(ctx, "wait")) > 0 {
			began <- "a handler"
			<-proceed
		}
	}
	_, all := start(t, nil,
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			await(ctx)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			await(ss.Context())
			return next(srv, ss)
		}))
	orders := map[bool]string{} // by whether the first node owns them
	var dies coord.NodeInfo
	for i := 0; len(orders) < 2; i++ {
		n, _ := all[0].Owner(middleware.JoinKey("order", fmt.Sprint(i)))
		orders[n.Self] = fmt.Sprint(i)
		if !n.Self {
			dies = n
		}
	}
	life, end := context.WithCancelCause(context.Background())
	defer end(nil)
	r := holdgrpc.Resolve(all[0], byOrder, nil)
	r.Lives(func(id string) context.Context {
		if id == dies.ID {
			return life
		}
		return context.Background()
	})
	conn, err := grpc.NewClient("holdfast:///orders", append(r.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for own, order := range orders { // both are connected
		for at := ""; at != map[bool]string{true: "node 0", false: "node 1"}[own]; {
			if at, err = call(t.Context(), conn, order); err != nil {
				t.Fatal(err)
			}
		}
	}

	type reply struct {
		at  string
		err error
	}
	wait := metadata.AppendToOutgoingContext(t.Context(), "wait", "yes")
	theirs, ours := make(chan reply, len(ways)), make(chan reply, len(ways))
	for _, ask := range ways {
		for order, to := range map[string]chan reply{orders[false]: theirs, orders[true]: ours} {
			go func() {
				at, err := ask(wait, conn, order)
				to <- reply{at, err}
			}()
			<-began
		}
	}
	end(coord.ErrNodeDead)
	for range ways {
		if x := <-theirs; status.Code(x.err) != codes.Unavailable || !strings.Contains(x.err.Error(), "found dead") {
			t.Errorf("a call to the dead owner: %s, %v", x.at, x.err)
		}
	}
	for way, ask := range ways {
		for range 4 {
			if at, err := ask(t.Context(), conn, orders[false]); at != "node 0" || err != nil {
				t.Errorf("%s, after that: %s, %v", way, at, err)
			}
		}
	}
	close(proceed)
	for range ways {
		if x := <-ours; x.at != "node 0" || x.err != nil {
			t.Errorf("a call to the other owner: %s, %v", x.at, x.err)
		}
	}
}
