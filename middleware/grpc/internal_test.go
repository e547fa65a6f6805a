package holdgrpc

import (
	"context"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// Turns go on after 2^31 calls and after 2^32, also where an int has 32 bits. All nodes but one are
// dead for calls of a Resolver.
func TestPicker_ManyCalls(t *testing.T) {
	dead, end := context.WithCancel(context.Background())
	end()
	for _, calls := range []uint32{math.MaxInt32 - 1, math.MaxUint32 - 1} {
		p := &picker{all: []string{"a", "b", "c"}}
		p.next.Store(calls)
		r := &Resolver{life: func(id string) context.Context {
			if id == "b" {
				return t.Context()
			}
			return dead
		}}
		r.ids.Store(&map[string]string{"a": "a", "b": "b", "c": "c"})
		aimed, a := r.newAim(t.Context(), "")
		defer a.cancel()
		for range 4 {
			for _, ctx := range []context.Context{t.Context(), aimed} {
				if _, err := p.Pick(balancer.PickInfo{Ctx: ctx}); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Connections to owners that have gone are closed when another one is made.
func TestFollower_ForgetsOwnersThatHaveGone(t *testing.T) {
	f := Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	conn := func(target string) *grpc.ClientConn {
		c, err := f.conn(target)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	gone, used := conn("passthrough:///gone"), conn("passthrough:///used")
	f.conns["passthrough:///gone"].used = time.Now().Add(-disuse - time.Second)
	conn("passthrough:///used")
	if gone.GetState() == connectivity.Shutdown {
		t.Error("closed, and no other was made")
	}
	conn("passthrough:///new")
	if gone.GetState() != connectivity.Shutdown || used.GetState() == connectivity.Shutdown || len(f.conns) != 2 {
		t.Errorf("gone: %v, used: %v, %d connections", gone.GetState(), used.GetState(), len(f.conns))
	}
	if c := f.reach(context.Background(), "passthrough:///gone"); c != nil || len(f.conns) != 3 {
		t.Errorf("%v, %d connections", c, len(f.conns))
	}
}
