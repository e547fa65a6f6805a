//go:build unix

package redisquorum

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// A network is a quorum whose servers have clocks of their own, and the ways of processes to them.
type network struct {
	*quorum
	cables storetest.Lines
	lines  [][]*storetest.Line // of each process, to each server
}

func startNetwork(t *testing.T, servers int) *network {
	t.Helper()
	x := &network{quorum: &quorum{t: t}}
	x.clock(servers)
	return x
}

// start is the arbiter of one more process.
func (x *network) start() fallback.Arbiter {
	var lines []*storetest.Line
	var clients []*redis.Client
	for _, s := range x.servers {
		l := x.cables.Another(x.t)
		c := redis.NewClient(&redis.Options{Addr: s.Addr, Dialer: l.Through(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		})})
		x.t.Cleanup(func() { _ = c.Close() })
		lines, clients = append(lines, l), append(clients, c)
	}
	x.lines = append(x.lines, lines)
	return New(clients, new3)
}

// An injury is something that is done to the quorum. end undoes it; nil: it is over at once.
type injury struct {
	what  string
	begin func() (end func())
	lasts time.Duration
}

// cut cuts lines.
func cut(lines ...*storetest.Line) (heal func()) {
	var all []func()
	for _, l := range lines {
		all = append(all, l.Cut())
	}
	return func() {
		for _, heal := range all {
			heal()
		}
	}
}

// injuries are those of one server, and of one process, of the three there are.
func (x *network) injuries(server, process int) []injury {
	n := len(x.servers)
	step := func(by time.Duration) injury {
		return injury{what: fmt.Sprint("a clock steps by ", by), begin: func() func() { x.step(server, by); return nil }}
	}
	return []injury{
		{what: "a server is killed, and comes back empty", begin: func() func() { x.restart(server); return nil }},
		{what: "a server is emptied", begin: func() func() {
			if err := x.servers[n-1].Client(x.t).FlushAll(x.t.Context()).Err(); err != nil {
				x.t.Error(err)
			}
			return nil
		}},
		step(time.Hour),
		{what: "a server stands still", lasts: 3 * time.Second, begin: func() func() {
			if err := x.servers[server].Signal(stop); err != nil {
				x.t.Error(err)
			}
			return func() { _ = x.servers[server].Signal(goOn) } // another injury may have killed it
		}},
		step(-2 * time.Hour),
		{what: "a server is cut off from all processes", lasts: 4 * time.Second, begin: func() func() {
			var to []*storetest.Line
			for _, lines := range x.lines {
				to = append(to, lines[server])
			}
			return cut(to...)
		}},
		{what: "a process is cut off from a majority", lasts: 5 * time.Second, begin: func() func() {
			var to []*storetest.Line
			for i := range majority(n) {
				to = append(to, x.lines[process][(server+i)%n])
			}
			return cut(to...)
		}},
		step(time.Hour),
	}
}

// oneByOne waits until an injury is over, and all servers are members again, before the next one.
// There are locks meanwhile.
func (x *network) oneByOne(all []injury) (steps []func()) {
	for _, i := range all {
		var end func()
		var began time.Time
		steps = append(steps, func() {
			x.t.Log(i.what)
			began, end = time.Now(), i.begin()
		}, func() {
			if end != nil {
				time.Sleep(time.Until(began.Add(i.lasts)))
				end()
			}
			await.Within(x.t, time.Minute, "all are members after: "+i.what, func() bool { return x.members() == len(x.servers) })
		})
	}
	return steps
}

// onTop begins an injury as soon as there are some locks after the one before, so that a majority
// may be away, or have forgotten. The server that is emptied is never one of the others.
func (x *network) onTop(all []injury) (steps []func()) {
	for _, i := range all {
		steps = append(steps, func() {
			if end := i.begin(); end != nil {
				time.AfterFunc(i.lasts, end)
			}
		})
	}
	return steps
}

// Injuries of a server, of one process's way to them, or of clocks.
func TestQuorum_NoTwoHolders(t *testing.T) {
	storetest.Minutes(t)
	for _, x := range []struct {
		name    string
		servers int
		judge   func(t *testing.T, start func() fallback.Arbiter, injuries ...func()) int64
	}{
		{"three servers", 3, storetest.NoTwoHolders},
		{"three servers, a cluster", 3, owners.NoTwoHolders},
		{"five servers, a cluster", 5, owners.NoTwoHolders},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := startNetwork(t, x.servers)
			var all []injury
			for round := range 3 {
				all = append(all, n.injuries(round%(x.servers-1), round)...)
			}
			x.judge(t, n.start, n.oneByOne(all)...)
		})
		t.Run(x.name+", one on top of another", func(t *testing.T) {
			n := startNetwork(t, x.servers)
			var all []injury
			for round := range 3 {
				all = append(all, n.injuries(round%(x.servers-1), round)...)
			}
			x.judge(t, n.start, n.onTop(all)...)
		})
	}
}
