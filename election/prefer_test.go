package election_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/crash"
)

func TestNewest(t *testing.T) {
	versions := []string{"", "1.2.9-rc.2", "1.2.9", "v1.2.10-rc.1+dirty", "1.2.10", "2"}
	for i, a := range versions {
		for j, b := range versions {
			for _, build := range []string{"", "+dirty", "+x-1.2"} {
				n := election.Newest(election.Candidate{Version: a + build}, election.Candidate{Version: b})
				if (n < 0) != (i > j) || (n > 0) != (i < j) {
					t.Errorf("%q, %q: %d", a+build, b, n)
				}
			}
		}
	}
}

// An order that panics leaves neither the leadership locked nor the process listed.
func TestPrefer_AnOrderThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		first := campaign(t, join(t, here, nil))
		var once sync.Once
		order := func(a, b election.Candidate) int {
			once.Do(func() { panic("the order") })
			return 0
		}
		bad := join(t, here, &election.Options{Prefer: order})
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			bad.Campaign(t.Context())
		}()
		time.Sleep(time.Second)
		resign(t, first)
		if p := <-panicked; p != "the order" {
			t.Errorf("Campaign: %v", p)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if next, err := join(t, there, nil).Campaign(ctx); err != nil {
			t.Error(err)
		} else {
			resign(t, next)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("the next leader came after %v", d)
		}
		time.Sleep(time.Second)
		if ids := listed(t, there, "candidates"); len(ids) > 0 {
			t.Errorf("listed: %v", ids)
		}
	})
}

// listed returns the IDs in a list of the election.
func listed(t *testing.T, c *coord.Coordinator, of string) (ids []string) {
	t.Helper()
	results, err := c.Results()
	if err != nil {
		t.Fatal(err)
	}
	r, err := results.Get(t.Context(), "election/billing#"+of)
	if err != nil {
		t.Fatal(err)
	}
	var all []election.Candidate
	if r.Fence != 0 && json.Unmarshal(r.Value, &all) != nil {
		t.Fatalf("%q", r.Value)
	}
	for _, x := range all {
		ids = append(ids, x.ID)
	}
	return ids
}

// Candidates that crashed are taken from the list by those that wait.
func TestPrefer_CrashedCandidatesAreNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const keep = 30 * time.Second // longer than a crashed candidate keeps the list locked
		cut := &crash.Arbiter{Memory: a}
		here, there, crashes := start(t, a, nil), start(t, a, nil), start(t, cut, nil)
		named := func(id string) *election.Options {
			return &election.Options{ID: id, Prefer: election.Newest, Keep: keep}
		}
		term := campaign(t, join(t, here, named("leads")))
		next := make(chan *election.Term)
		e := join(t, there, named("waits"))
		go func() { next <- campaign(t, e) }()
		ctx, cancel := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		for i := range 20 {
			e := join(t, crashes, named(fmt.Sprint("crashes", i)))
			gone.Go(func() { e.Campaign(ctx) })
		}
		time.Sleep(2 * keep)
		if ids := listed(t, there, "candidates"); len(ids) != 21 {
			t.Errorf("listed before the crash: %v", ids)
		}
		cut.Cut()
		time.Sleep(10*time.Second + 10*keep) // its session, and a look at each
		if ids := listed(t, there, "candidates"); !slices.Equal(ids, []string{"waits"}) {
			t.Errorf("listed after the crash: %v", ids)
		}
		cancel()
		gone.Wait()
		resign(t, term)
		resign(t, <-next)
		cut.Mend()
		time.Sleep(time.Minute) // until it has a session to close again
	})
}
