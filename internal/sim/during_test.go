package sim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/ring"
)

// mortal is an arbiter that one process does not reach any more.
type mortal struct {
	*fallback.Memory
	gone chan struct{} // closed when the first process that attached is dead
	slow time.Duration // of its renewals
	used bool
}

type mortalSpace struct {
	fallback.Namespace
	fallback.Burier
	gone chan struct{} // nil: another process's
	slow time.Duration
}

func (a *mortal) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	x := mortalSpace{Namespace: n, Burier: n.(fallback.Burier)}
	if !a.used {
		a.used, x.gone, x.slow = true, a.gone, a.slow
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
	time.Sleep(n.slow)
	if err := n.alive(); err != nil {
		return fallback.Renewal{}, err
	}
	return n.Namespace.Renew(ctx, id, r)
}

func (n mortalSpace) Acquire(ctx context.Context, p uint32, id string, e fallback.Expect) (fallback.Acquisition, error) {
	if err := n.alive(); err != nil {
		return fallback.Acquisition{}, err
	}
	return n.Namespace.Acquire(ctx, p, id, e)
}

func (n mortalSpace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if err := n.alive(); err != nil {
		return fallback.LockAnswer{}, err
	}
	return n.Namespace.Lock(ctx, r)
}

// One of three nodes dies. Its keys are to be had again D later, whatever another process does
// meanwhile, and whenever. The dead one's process starts again under its name, at another address:
// the others place it at the burial, when its own ring would not have come to rest. Another process
// starts, and wants the keys as well. Or one of the two guardians leaves, and its vote is needed.
func TestNothingDelaysATakeover(t *testing.T) {
	const takeover, keys = 3 * time.Second, 20
	for _, what := range []string{"it starts again", "another one starts", "another one leaves"} {
		for after := time.Duration(0); after < 2*takeover; after += 400 * time.Millisecond {
			t.Run(fmt.Sprint(what, " after ", after), func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					net := newNetwork(1)
					net.bad = t.Errorf
					a := &mortal{Memory: fallback.NewMemory(), gone: make(chan struct{})}
					nodes, hosts, stop := settledAt(t, net, a, 3, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
					defer stop()
					time.Sleep(time.Minute)
					var list []string
					for i := 0; len(list) < keys; i++ {
						key := fmt.Sprint("key", i)
						if n, ok := nodes[1].Owner(key); ok && ring.Process(n.Name) == "node0" {
							list = append(list, key)
						}
					}
					close(a.gone)
					hosts[0].die()
					died := time.Now()
					again := func(c *coord.Coordinator, within time.Duration) {
						for _, key := range list {
							l, err := c.Lock(t.Context(), key)
							if err != nil {
								t.Error(err)
								return
							}
							if err := l.Unlock(); err != nil {
								t.Error(err)
							}
						}
						if took := time.Since(died); took < takeover/2 || took > within+takeover/6 {
							t.Errorf("%d keys of the dead node were locked again within %v", keys, took)
						}
					}
					var others sync.WaitGroup
					defer others.Wait()
					others.Go(func() {
						time.Sleep(after)
						begin := time.Now()
						switch what {
						case "another one leaves":
							if err := nodes[2].Close(t.Context()); err != nil {
								t.Error(err)
							}
							if took := time.Since(begin); took > max(takeover-after, 0)+takeover/3 {
								t.Errorf("it took %v to leave", took)
							}
						case "it starts again":
							_, stop := startAnother(t, net, a, "node0", takeover)
							defer stop()
							time.Sleep(2 * takeover)
						default:
							c, stop := startAnother(t, net, a, "node3", takeover)
							defer stop()
							again(c, max(takeover, after))
							time.Sleep(takeover)
						}
					})
					again(nodes[1], takeover)
				})
			})
		}
	}
}

// startAnother starts one more process. stop ends it.
func startAnother(t *testing.T, net *network, a fallback.Arbiter, name string, takeover time.Duration) (c *coord.Coordinator, stop func()) {
	c, h := startOne(t, net, a, 9, name, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
	return c, func() {
		_ = c.Close(context.Background())
		h.die()
		h.bury()
	}
}

// A process that joins another one is to be its guardian, and leaves before promises cover what the
// other one has relied on alone. The other one tells it that it is not needed, so it does not stay.
func TestALeaverIsToldThatItIsNotNeeded(t *testing.T) {
	const takeover = 3 * time.Second
	for after := takeover / 3; after < 3*takeover; after += 700 * time.Millisecond {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				net := newNetwork(1)
				net.bad = t.Errorf
				a := fallback.NewMemory()
				_, _, stop := settledAt(t, net, a, 1, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
				defer stop()
				time.Sleep(time.Minute)
				_, leave := startAnother(t, net, a, "node1", takeover)
				time.Sleep(after)
				begin := time.Now()
				leave()
				if took := time.Since(begin); took > takeover/3 {
					t.Errorf("it took %v to leave", took)
				}
			})
		})
	}
}
