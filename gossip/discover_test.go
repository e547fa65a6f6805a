package gossip

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	watching "github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/ring"
)

// An address without a node that answers is told, with the time of the first attempt, until one
// does.
func TestFailing(t *testing.T) {
	registered, seed := loopback.Address(t), loopback.Address(t)
	opts := options("a")
	opts.Seeds = []string{seed}
	opts.Discover = func(context.Context) ([]string, error) { return []string{registered}, nil }
	opts.RediscoverEvery = 20 * time.Millisecond
	a := begin(t, opts, hooks{})
	failure := func(addr string) (f ring.Failure) {
		for _, x := range a.Failing() {
			if x.Addr == addr {
				f = x
			}
		}
		return f
	}
	watching.Until(t, "failures", func() bool { return failure(registered).Err != nil && failure(seed).Err != nil })
	first := failure(registered)
	if !first.Discovered || failure(seed).Discovered {
		t.Errorf("got %+v", a.Failing())
	}
	watching.Until(t, "another attempt", func() bool { f := failure(registered); return f.Err != nil && f.Err != first.Err })
	if f := failure(registered); !f.Since.Equal(first.Since) {
		t.Errorf("it fails since %v, then since %v", first.Since, f.Since)
	}
	opts = options("b")
	opts.Bind = registered
	b := begin(t, opts, hooks{})
	await(t, a, "b", sees(b.Name()))
	watching.Until(t, "no failure", func() bool { return failure(registered).Err == nil })
	if failure(seed).Err == nil {
		t.Error("the seed is forgotten")
	}
}

// A newcomer does not wait for a host that stands still, which accepts connections and answers
// nothing, once it has joined another node.
func TestANewcomerDoesNotWaitForAHostThatStandsStill(t *testing.T) {
	var reg registry
	opts := options("a")
	opts.Discover = reg.discover
	a := begin(t, opts, hooks{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg.add(a.Gossip(), l.Addr().String())
	opts = options("b")
	opts.Discover, opts.MaxDebounce = reg.discover, time.Hour
	b := begin(t, opts, hooks{tune: func(c *memberlist.Config) {
		quick(c)
		c.TCPTimeout = time.Hour
	}})
	defer l.Close() // before b: its attempt ends
	for _, r := range []*Ring{a, b} {
		if err := r.SetState(ring.Active); err != nil {
			t.Fatal(err)
		}
	}
	await(t, b, "both nodes are placed", func(v *ring.View) bool { return slices.Equal(v.Placement().Members(), members(a, b)) })
}

// members returns the names of nodes, sorted.
func members(rings ...*Ring) (names []string) {
	for _, r := range rings {
		names = append(names, r.Name())
	}
	slices.Sort(names)
	return names
}
