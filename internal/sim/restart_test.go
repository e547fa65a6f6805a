package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	membership "github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// mortal is an arbiter that one process does not reach any more.
type mortal struct {
	*fallback.Memory
	gone chan struct{} // closed when the first process that attached is dead
	used bool
}

type mortalSpace struct {
	fallback.Namespace
	fallback.Burier
	gone chan struct{} // nil: another process's
}

func (a *mortal) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	x := mortalSpace{Namespace: n, Burier: n.(fallback.Burier)}
	if !a.used {
		a.used, x.gone = true, a.gone
	}
	return x, nil
}

// alive returns an error once the process is dead: then it has no other session, either.
func (n mortalSpace) alive() error {
	select {
	case <-n.gone:
		return errUnreachable
	default:
		return nil
	}
}

func (n mortalSpace) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	if err := n.alive(); err != nil {
		return fallback.Renewal{}, err
	}
	return n.Namespace.Open(ctx, id, r)
}

func (n mortalSpace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	if err := n.alive(); err != nil {
		return fallback.Renewal{}, err
	}
	return n.Namespace.Renew(ctx, id, r)
}

// One of three nodes dies, and its process starts again under its name, at another address, before
// the others have it buried. They place it at the burial, and it takes its keys then: also if it
// has started within Debounce before that, and its own ring would not have come to rest.
func TestAProcessThatStartsAgainDelaysNoTakeover(t *testing.T) {
	const takeover = 3 * time.Second
	for after := time.Duration(0); after < 2*takeover; after += 400 * time.Millisecond {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				net := newNetwork(1)
				net.bad = t.Errorf
				a := &mortal{Memory: fallback.NewMemory(), gone: make(chan struct{})}
				nodes, hosts, stop := settledAt(t, net, a, 3, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
				defer stop()
				time.Sleep(time.Minute)
				var keys []string
				for i := 0; len(keys) < 20; i++ {
					key := fmt.Sprint("key", i)
					if n, ok := nodes[1].Owner(key); ok && ring.Process(n.Name) == "node0" {
						keys = append(keys, key)
					}
				}
				close(a.gone)
				hosts[0].die()
				died := time.Now()
				again := make(chan func(), 1)
				go func() {
					time.Sleep(after)
					again <- startAgain(t, net, a, takeover)
				}()
				for _, key := range keys {
					l, err := nodes[1].Lock(t.Context(), key)
					if err != nil {
						t.Fatal(err)
					}
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(died); took < takeover/2 || took > takeover+time.Second/2 {
					t.Errorf("%d keys of the dead node were locked again within %v", len(keys), took)
				}
				(<-again)()
			})
		})
	}
}

// startAgain starts the first node's process once more. stop ends it.
func startAgain(t *testing.T, net *network, a fallback.Arbiter, takeover time.Duration) (stop func()) {
	h := net.newHost()
	h.clock = newClock(1, 1, 9)
	cluster := &coord.Cluster{
		Membership: func(o ring.Options) (ring.Membership, error) { return membership.StartOn(h, o) }, Takeover: takeover,
	}
	wire.Use(cluster, h)
	c, err := coord.New(t.Context(), a, &coord.Options{Namespace: "sim", Name: "node0", Partitions: 61, Cluster: cluster})
	if err != nil {
		t.Error(err)
		return func() {}
	}
	return func() {
		_ = c.Close(context.Background())
		h.die()
		h.bury()
	}
}
