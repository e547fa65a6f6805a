package holdgrpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// Each call goes to the owner of its key at once, by unary and by stream. One without a usable key
// goes to any node.
func TestResolve(t *testing.T) {
	_, all := start(t, nil)
	r := holdgrpc.Resolve(all[0], byOrder, nil)
	conn, err := grpc.NewClient("holdfast:///orders", append(r.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for way, ask := range ways {
		seen := map[string]bool{}
		for i := range 40 {
			order := fmt.Sprint(i)
			n, _ := all[0].Owner(middleware.JoinKey("order", order))
			want := "node 1"
			if n.Self {
				want = "node 0"
			}
			// Until the second node is connected, the first may serve its calls.
			at, err := ask(t.Context(), conn, order)
			for end := time.Now().Add(20 * time.Second); err == nil && at != want && time.Now().Before(end) && len(seen) < 2; {
				at, err = ask(t.Context(), conn, order)
			}
			if at != want || err != nil {
				t.Fatalf("%s, order %s: %s, %v, want %s", way, order, at, err, want)
			}
			seen[at] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: all went to %v", way, seen)
		}
	}
	for range 4 {
		if _, err := call(t.Context(), conn, strings.Repeat("x", coord.MaxKey)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a key that is too long: %v", err)
		}
	}
}

// Where the owner cannot be connected to, another node serves; where there is no node to call, the
// error names the option to set.
func TestResolve_OwnerNotReached(t *testing.T) {
	gone := listen(t)
	gone.Close()
	nodes, all := start(t, nil)
	target := func(n coord.NodeInfo) string {
		if n.Self {
			return nodes[0].Addr().String()
		}
		return gone.Addr().String()
	}
	r := holdgrpc.Resolve(all[0], byOrder, &holdgrpc.RouteOptions{Target: target})
	conn, err := grpc.NewClient("holdfast:///orders", append(r.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 10 {
		if at, err := call(t.Context(), conn, fmt.Sprint(i)); at != "node 0" || err != nil {
			t.Errorf("order %d: %s, %v", i, at, err)
		}
	}

	alone := locks(t, fallback.NewMemory(), nil)
	r = holdgrpc.Resolve(alone, byOrder, nil)
	none, err := grpc.NewClient("holdfast:///orders", append(r.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := call(ctx, none, "1"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "Cluster.Service") {
		t.Error(err)
	}
}
