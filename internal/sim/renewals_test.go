package sim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// renewals is an arbiter that answers calls of Renew late, never, or with an error.
type renewals struct {
	*fallback.Memory

	mu    sync.Mutex // protects the fields below
	how   answers
	sent  map[string]int // calls, by session
	under map[string]int // those that are under way
	most  int            // of one session at once
}

// answers is how calls of Renew are answered.
type answers struct {
	takes time.Duration // for a call
	hang  bool          // they end with their ctx
	each  int           // of so many of a session one succeeds; 0: all do
}

type renewalsSpace struct {
	fallback.Namespace
	fallback.Burier
	a *renewals
}

func (a *renewals) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return renewalsSpace{n, n.(fallback.Burier), a}, nil
}

func (n renewalsSpace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	n.a.mu.Lock()
	n.a.sent[id]++
	n.a.under[id]++
	n.a.most = max(n.a.most, n.a.under[id])
	how, fails := n.a.how, n.a.how.each > 0 && n.a.sent[id]%n.a.how.each != 0
	n.a.mu.Unlock()
	defer func() {
		n.a.mu.Lock()
		n.a.under[id]--
		n.a.mu.Unlock()
	}()
	switch {
	case how.hang:
		<-ctx.Done()
		return fallback.Renewal{}, ctx.Err()
	case fails:
		return fallback.Renewal{}, errUnreachable
	}
	time.Sleep(how.takes / 2)
	defer time.Sleep(how.takes / 2)
	return n.Namespace.Renew(ctx, id, r)
}

func newRenewals() *renewals {
	return &renewals{Memory: fallback.NewMemory(), sent: make(map[string]int), under: make(map[string]int)}
}

// set has calls answered so, and counts anew.
func (a *renewals) set(how answers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.how, a.sent, a.most = how, make(map[string]int), 0
}

func (a *renewals) counted() (sent, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.sent {
		sent += n
	}
	return sent, a.most
}

// Of two nodes one falls silent, without a reset. The other one gives its only guardian up, by two
// renewals, while that one's last promise lasts (G7): also where a renewal takes more than a
// quarter of Takeover, or most fail, and whenever the last answer has come.
func TestAnArbiterThatIsSlowOrFailsCostsTheSurvivorNothing(t *testing.T) {
	const takeover, steps, while = 3 * time.Second, 11, time.Minute
	for _, how := range []answers{{takes: 800 * time.Millisecond}, {each: 4}} {
		for i := range steps {
			after := time.Duration(i) * takeover / 6 / steps
			t.Run(fmt.Sprintf("%+v after %v", how, after), func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					net := newNetwork(uint64(i))
					net.bad = t.Errorf
					a := newRenewals()
					nodes, hosts, stop := settledAt(t, net, a, 2, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
					defer stop()
					a.set(answers{takes: how.takes})
					time.Sleep(while)
					a.set(answers{takes: how.takes})
					time.Sleep(while)
					if sent, _ := a.counted(); sent > 2*int(while/(2500*time.Millisecond))+2 {
						t.Errorf("two sessions were renewed %d times in %v, though nothing happened", sent, while)
					}
					time.Sleep(after)
					if n := nodes[0].Stats().Guardians; n != 1 {
						t.Fatalf("%d guardians", n)
					}
					a.set(how)
					hosts[1].die()
					time.Sleep(2 * takeover)
					if s := nodes[0].Stats(); s.Sessions != 1 || s.Guardians != 0 {
						t.Errorf("%d sessions, %d guardians", s.Sessions, s.Guardians)
					}
				})
			})
		}
	}
}

// text is a log.
type text struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) has(s string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Contains(x.b.String(), s)
}

// A session that waits for its next set to be recorded is renewed out of turn, and again while no
// answer comes: ever less often. A log tells of it as soon as the first call has not been answered
// in time.
func TestRenewalsThatHangDoNotPileUp(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 35 * time.Second, 5 * time.Minute} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				const takeover = 3 * time.Second
				net := newNetwork(1)
				net.bad = t.Errorf
				a, log := newRenewals(), new(text)
				_, hosts, stop := settledAt(t, net, a, 3, &coord.Options{
					SessionTTL: ttl, Cluster: &coord.Cluster{Takeover: takeover}, Logger: slog.New(slog.NewTextHandler(log, nil)),
				})
				defer stop()
				time.Sleep(ttl + time.Minute) // each has the others as its guardians
				a.set(answers{hang: true})
				for _, h := range hosts[:2] { // these two give the third one up
					net.setCut(h, hosts[2], true)
					net.setCut(hosts[2], h, true)
				}
				time.Sleep(takeover + ttl/10)
				if !log.has("renewal failed, trying again") {
					t.Error("nothing is said of renewals that are not answered")
				}
				time.Sleep(ttl / 2)
				sent, most := a.counted()
				t.Logf("%d renewals, of one session %d at once", sent, most)
				// Two in each of the four CallTimeouts that a call lasts, and before that one for
				// each doubling of a look (Takeover/6).
				if limit := 8 + int(math.Log2(float64(ttl/10)/float64(takeover/6))); most > limit {
					t.Errorf("%d renewals of one session are under way at once, not %d", most, limit)
				}
				a.set(answers{})
			})
		})
	}
}
