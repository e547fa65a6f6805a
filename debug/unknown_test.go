package debug_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// A key whose owner does not answer is not called free, nor its semaphore unused.
func TestHandler_AnOwnerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "shop", Partitions: 1, Grace: 80 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ns.Open(t.Context(), "mute", fallback.Registration{TTL: time.Hour, Info: "name=mute&n=mute/1"}); err != nil {
		t.Fatal(err)
	}
	s := site(t, open(t, a, &coord.Options{Namespace: "shop", Name: "op", Observe: true}), nil)
	_, page, _ := do(t, s, "GET", "/debug/locks/keys/k", browser, nil, nil)
	contains(t, page, "it is free")
	r, err := ns.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ns.Acquire(t.Context(), 0, "mute", fallback.Expect{Epoch: r.Epoch}); err != nil || got.Verdict != fallback.Granted {
		t.Fatal(got, err)
	}
	await.Until(t, "the key is asked about again", func() bool {
		_, page, _ = do(t, s, "GET", "/debug/locks/keys/k", browser, nil, nil)
		return !strings.Contains(page, "it is free")
	})
	contains(t, page, "held by<dd>not known: its owner does not answer", "The semaphore of this key: not known")
	_, text, _ := do(t, s, "GET", "/debug/locks/keys/k", curl, nil, nil)
	var k debug.Key
	if err := json.Unmarshal([]byte(text), &k); err != nil || !k.Unknown || k.Semaphore == nil || !k.Semaphore.Unknown {
		t.Errorf("%+v, %v", k, err)
	}
}

// Of an owner that answers, but does not serve the partition, the page does not say that it does
// not answer.
func TestHandler_AnOwnerThatDoesNotServe(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	anna := open(t, a, &coord.Options{Namespace: "shop", Name: "anna", Partitions: 1, SessionTTL: time.Minute, Grace: 80 * time.Second})
	all, err := anna.Processes(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "shop", Partitions: 1, Grace: 80 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r, err := ns.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ns.Acquire(t.Context(), 0, all[0].Session, fallback.Expect{Epoch: r.Epoch}); err != nil || got.Verdict != fallback.Granted {
		t.Fatal(got, err)
	}
	_, page, _ := do(t, site(t, anna, nil), "GET", "/debug/locks/keys/k", browser, nil, nil)
	contains(t, page, "held by<dd>not known: its owner does not serve the key", "The semaphore of this key: not known, as the key's owner does not serve", "Not asked: anna")
	if strings.Contains(page, "does not answer") {
		t.Error(page)
	}
}

// However many look at a key at once, the arbiter is asked about it once for its lock, and once for
// its semaphore.
func TestHandler_ManyLookAtAKey(t *testing.T) {
	t.Parallel()
	c := open(t, fallback.NewMemory(), &coord.Options{Name: "anna", SessionTTL: time.Minute})
	s := site(t, c, nil)
	calls := func() uint64 {
		r, err := c.Report(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return r.Calls["verify"] // as which holds are looked at
	}
	before := calls()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if status, text, _ := do(t, s, "GET", "/debug/locks/keys/k", curl, nil, nil); status != http.StatusOK {
				t.Errorf("%d: %s", status, text)
			}
		})
	}
	all.Wait()
	if n := calls() - before; n == 0 || n > 8 { // more than 2 on a machine that takes seconds
		t.Errorf("%d calls", n)
	}
}
