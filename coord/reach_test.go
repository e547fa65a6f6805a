package coord_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Two nodes advertise addresses that do not reach them: Settled names the other one, the address,
// and the option; and keys are locked all the same.
func TestSettled_namesTheUnreachable(t *testing.T) {
	takes.Seconds(t)
	for _, port := range []string{"Peer", "Gossip"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			a := fallback.NewMemory()
			told := map[string]bool{}
			var nodes []*coord.Coordinator
			h := newRecords()
			for range 2 {
				o := settledOpts()
				o.Logger = slog.New(h)
				addr := loopback.Address(t)
				told[addr] = true
				if port == "Peer" {
					o.Cluster.PeerAdvertise = addr
				} else {
					o.Cluster.GossipAdvertise, o.Cluster.PeerAdvertise = addr, "127.0.0.1:0"
				}
				nodes = append(nodes, start(t, a, o))
			}
			for _, c := range nodes {
				// Until the failure is known, the error may be that it is not yet.
				for end := time.Now().Add(30 * time.Second); ; {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					err := c.Settled(ctx, 2)
					cancel()
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("got %v", err)
					}
					e, ok := errors.AsType[*coord.UnreachableError](err)
					if !ok && time.Now().Before(end) {
						continue
					}
					if !ok || !told[e.Addr] || e.Port != port || !strings.Contains(e.Node, "/") || e.Cause == nil ||
						!strings.Contains(err.Error(), "Cluster."+port+"Advertise") || !strings.Contains(err.Error(), "no process listens there") || strings.Contains(err.Error(), "open that port") || strings.Contains(err.Error(), "\n") {
						t.Errorf("got %+v: %v", e, err)
					}
					break
				}
				l, err := c.Lock(t.Context(), "key")
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, l)
			}
			if r, err := nodes[0].Report(t.Context(), ""); err != nil || r.Settled || r.Missing == "" || strings.Contains(r.Missing, "settled") {
				t.Errorf("%v: settled %t: %q", err, r.Settled, r.Missing)
			}
			const text = "holdfast: a member is not reachable at the address that it advertises"
			await.Within(t, time.Minute, text, func() bool { return len(h.about(text)) > 0 }) // after 10 s
			r := h.about(text)[0]
			if r.attrs["options"].String() != "Cluster."+port+"Advertise, Cluster."+port || !strings.Contains(r.attrs["member"].String(), "/") {
				t.Errorf("%v", r)
			}
		})
	}
}

// The number of nodes is in the error also where all members can be reached.
func TestSettled_countsTheNodes(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), settledOpts())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := c.Settled(ctx, 3)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "of 3 nodes found") {
		t.Errorf("got %v", err)
	}
}

// On a Redis that has only just been started the error tells a newcomer to wait for Grace.
func TestSettled_saysThatThereIsGrace(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	c := start(t, redisarbiter.New(client, nil), settledOpts())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := c.Settled(ctx, 1)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Grace") || !strings.Contains(err.Error(), "ColdStart") {
		t.Errorf("got %v", err)
	}
}
