package holdgrpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// resolved is a client of two nodes by a Resolver. The second one dies when end is called.
type resolved struct {
	conn         *grpc.ClientConn
	ours, theirs string // orders of the first node and of the second one
	end          func()
}

func resolve(t *testing.T, all [2]*coord.Coordinator, target func(coord.NodeInfo) string) resolved {
	t.Helper()
	var x resolved
	var dies coord.NodeInfo
	for i := 0; x.ours == "" || x.theirs == ""; i++ {
		order := fmt.Sprint(i)
		if n, _ := all[0].Owner(middleware.JoinKey("order", order)); n.Self {
			x.ours = order
		} else {
			x.theirs, dies = order, n
		}
	}
	life, end := context.WithCancelCause(context.Background())
	x.end = func() { end(coord.ErrNodeDead) }
	t.Cleanup(x.end)
	r := holdgrpc.Resolve(all[0], byOrder, &holdgrpc.RouteOptions{Target: target})
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
	t.Cleanup(func() { conn.Close() })
	x.conn = conn
	return x
}

// reaches calls until a node serves an order.
func (x resolved) reaches(t *testing.T, order, node string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		at, err := call(t.Context(), x.conn, order)
		if err != nil || time.Now().After(end) {
			t.Fatalf("order %s: %s, %v", order, at, err)
		}
		if at == node {
			return
		}
	}
}

// Calls that a node has end when it is found dead, though it keeps its connection, whether it owns
// their keys or they have none. Later ones go to another node, and those that others have go on.
func TestResolve_NodeFoundDead(t *testing.T) {
	began, proceed := make(chan string, 8), make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	defer release()
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
	x := resolve(t, all, nil)
	x.reaches(t, x.ours, "node 0")
	x.reaches(t, x.theirs, "node 1")

	type reply struct {
		at  string
		err error
	}
	wait := metadata.AppendToOutgoingContext(t.Context(), "wait", "yes")
	begin := func(ask func(context.Context, *grpc.ClientConn, string) (string, error), order string) <-chan reply {
		ch := make(chan reply, 1)
		go func() {
			at, err := ask(wait, x.conn, order)
			ch <- reply{at, err}
		}()
		select {
		case <-began:
		case early := <-ch:
			t.Fatalf("order %s: %s, %v", order, early.at, early.err)
		}
		return ch
	}
	var theirs, ours []<-chan reply
	for _, ask := range ways {
		theirs, ours = append(theirs, begin(ask, x.theirs)), append(ours, begin(ask, x.ours))
	}
	x.end()
	for _, ch := range theirs {
		if got := <-ch; status.Code(got.err) != codes.Unavailable || !strings.Contains(got.err.Error(), "found dead") {
			t.Errorf("a call that the dead node had: %s, %v", got.at, got.err)
		}
	}
	var wg sync.WaitGroup
	for way, ask := range ways {
		for range 8 {
			wg.Go(func() {
				for range 4 {
					if at, err := ask(t.Context(), x.conn, x.theirs); at != "node 0" || err != nil {
						t.Errorf("%s, after that: %s, %v", way, at, err)
					}
				}
			})
		}
	}
	wg.Wait()
	release()
	for _, ch := range ours {
		if got := <-ch; got.at != "node 0" || got.err != nil {
			t.Errorf("a call that the other node had: %s, %v", got.at, got.err)
		}
	}
}

// Where the only node that can be called was found dead, calls fail, and say so.
func TestResolve_OnlyNodeFoundDead(t *testing.T) {
	_, all := start(t, nil)
	x := resolve(t, all, func(n coord.NodeInfo) string {
		if n.Self {
			return ""
		}
		return strings.TrimPrefix(n.Service, "http://")
	})
	x.reaches(t, x.theirs, "node 1")
	x.end()
	for way, ask := range ways {
		if at, err := ask(t.Context(), x.conn, x.theirs); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "found dead") {
			t.Errorf("%s: %s, %v", way, at, err)
		}
	}
}

// The calls of a Resolver end with the lives that its coordinator knows.
func TestResolve_LivesAreTheCoordinators(t *testing.T) {
	_, all := start(t, nil)
	for _, n := range all[0].Nodes() {
		if got, want := holdgrpc.Resolve(all[0], byOrder, nil).LifeOf(n.ID), all[0].NodeContext(n.ID); got != want {
			t.Errorf("%s: %v, want %v", n.ID, got, want)
		}
	}
}
