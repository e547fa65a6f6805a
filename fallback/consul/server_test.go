//go:build unix

package consul

import (
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/consulfake"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A fake stands for Consul, and is injured.
type fake struct {
	t *testing.T
	*consulfake.Fake
}

func startFake(t *testing.T, tokens map[string]string) *fake {
	t.Helper()
	f := &fake{t, consulfake.Start(tokens, func(text string) { t.Error(text) })}
	t.Cleanup(f.Close)
	return f
}

// client is one with connections of its own.
func (f *fake) client(token string) *api.Client {
	f.t.Helper()
	return f.open(token, &http.Transport{})
}

// clientBy is one by a line.
func (f *fake) clientBy(line *storetest.Line) *api.Client {
	f.t.Helper()
	return f.open("", &http.Transport{DialContext: line.Through(new(net.Dialer).DialContext)})
}

func (f *fake) open(token string, transport *http.Transport) *api.Client {
	f.t.Helper()
	f.t.Cleanup(transport.CloseIdleConnections)
	c, err := api.NewClient(&api.Config{Address: f.URL, Token: token, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// snapshot returns a function that puts the present data back, with the indices that go on from
// there.
func (f *fake) snapshot() (restore func()) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	index, pairs := f.Index, maps.Clone(f.Pairs)
	return func() {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		f.Index, f.Pairs = index, maps.Clone(pairs)
	}
}

// unmark deletes the mark.
func (f *fake) unmark() {
	f.t.Helper()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	name := newStore(nil, nil).nameKey()
	if _, there := f.Pairs[name]; !there {
		f.t.Fatal("there is no mark")
	}
	f.Pairs = maps.Clone(f.Pairs)
	delete(f.Pairs, name)
}

// election is one: connections end, of calls on their way it stays unknown whether they were
// executed, and the next ones have no leader.
func (f *fake) election() {
	left := 5
	f.Mu.Lock()
	f.Lose = func(bool) bool { return true }
	f.Mu.Unlock()
	f.CloseClientConnections()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Lose = nil
	f.Before = func(bool) (int, string) {
		if left--; left < 0 {
			return 0, ""
		}
		return http.StatusInternalServerError, "No cluster leader"
	}
}

// leaderless has no leader for two seconds.
func (f *fake) leaderless() {
	end := time.Now().Add(2 * time.Second)
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Before = func(bool) (int, string) {
		if time.Now().After(end) {
			return 0, ""
		}
		return http.StatusInternalServerError, "No cluster leader"
	}
}

// answerLost loses every other answer for two seconds.
func (f *fake) answerLost() {
	end, n := time.Now().Add(2*time.Second), 0
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Lose = func(bool) bool {
		n++
		return n%2 == 0 && time.Now().Before(end)
	}
}

// remove deletes a record.
func (f *fake) remove(t *testing.T, key string) {
	t.Helper()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	before := len(f.Pairs)
	f.Pairs = maps.Clone(f.Pairs)
	maps.DeleteFunc(f.Pairs, func(k string, _ consulfake.Pair) bool { return strings.HasSuffix(k, "/records/"+key) })
	if len(f.Pairs) != before-1 {
		t.Fatalf("%d records of %q", before-len(f.Pairs), key)
	}
}

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (f *fake) injuries() arbitertest.Cluster {
	injure := func(*testing.T) { f.election() }
	empty := f.snapshot()
	return arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return New(f.client(""), isNew) },
		Kill:    injure,
		Restart: injure,
		Careful: func(*testing.T) fallback.Arbiter { return New(f.client(""), nil) },
		Empty:   func(*testing.T) { empty() },
		Delete:  f.remove,
	}
}
