package election_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Leadership goes from process to process as each is told to stop, and a third process observes it.
// No hand-over waits for a timer; the shortest is RetryEvery, 500 ms.
func TestHandOver_OverRedis(t *testing.T) {
	takes.Seconds(t)
	for name, cluster := range map[string]*coord.Cluster{"key by key": nil, "in a cluster": {Gossip: "127.0.0.1:0", Membership: gossip.Start}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			node := func(id string) (*coord.Coordinator, *election.Election) {
				arbiter := redisarbiter.New(s.Client(t), &redisarbiter.Options{ColdStart: true})
				c := start(t, arbiter, &coord.Options{Partitions: 31, Cluster: cluster})
				return c, join(t, c, &election.Options{ID: id, Keep: time.Hour})
			}
			_, a := node("a")
			_, b := node("b")
			c, observer := node("observer")
			if cluster != nil {
				if err := c.Settled(t.Context(), 3); err != nil {
					t.Fatal(err)
				}
			}
			seen := make(chan election.Leader, 1000)
			ctx, stop := context.WithCancel(t.Context())
			observed := make(chan struct{})
			go func() {
				defer close(observed)
				for l := range observer.Observe(ctx) {
					if l.Fence != 0 {
						seen <- l
					}
				}
			}()
			type leads struct {
				term *election.Term
				at   time.Time
			}
			elected := make(chan leads)
			run := func(e *election.Election) (sigterm func()) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- e.Run(ctx, func(ctx context.Context, term *election.Term) error {
						elected <- leads{term, time.Now()}
						<-ctx.Done()
						return nil
					})
				}()
				return func() {
					cancel()
					if err := <-done; err != nil {
						t.Errorf("Run: %v", err)
					}
				}
			}
			var took []time.Duration
			stopLeader := run(a)
			now := <-elected
			for i := range 20 {
				for l := range seen { // each term is observed: the next one begins after that
					if l.Fence == now.term.Fence() {
						break
					}
				}
				stopNext := run([]*election.Election{b, a}[i%2])
				time.Sleep(20 * time.Millisecond) // it waits for its turn, or will in a moment
				told := time.Now()
				stopLeader()
				last := now
				now = <-elected
				if now.term.Fence() <= last.term.Fence() {
					t.Errorf("fence %d after %d", now.term.Fence(), last.term.Fence())
				}
				took = append(took, now.at.Sub(told))
				stopLeader = stopNext
			}
			stopLeader()
			stop()
			<-observed
			slices.Sort(took)
			t.Logf("hand-over: p50 %v, max %v", took[len(took)/2], took[len(took)-1])
			if took[len(took)/2] > 100*time.Millisecond {
				t.Errorf("half of the hand-overs took %v and more", took[len(took)/2])
			}
		})
	}
}
