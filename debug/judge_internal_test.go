package debug

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// The nodes' reports of arbiters and of each other become sentences, and none where all is well.
func TestJudge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) []coord.CallFailure {
		return []coord.CallFailure{{Op: "lock", Time: now.Add(-d), Reason: "full", Error: "the server has reached maxmemory"}}
	}
	hot := coord.KeySummary{Key: "sku", Waiters: hotWaiters}
	wanted := coord.KeySummary{Key: "sku", Wanted: true, Since: now.Add(-6 * time.Hour), Holder: &coord.Process{Name: "berta", Host: "vm", PID: 7}}
	for _, tt := range []struct {
		name, want string
		o          Overview
		r          coord.NodeReport
	}{
		{
			"all is well", "", Overview{},
			coord.NodeReport{Renewal: 200 * time.Millisecond, Failures: ago(time.Hour), Nodes: []coord.NodeInfo{{Name: "berta", Linked: true}}},
		},
		{
			"a slow arbiter", "Node anna: the arbiter is slow: a renewal of its session took 300ms.", Overview{},
			coord.NodeReport{Renewal: 300 * time.Millisecond},
		},
		{
			"calls that fail", "Node anna: calls of the arbiter fail: lock (locking keys), the last one 2s ago: the server has reached maxmemory", Overview{},
			coord.NodeReport{Failures: ago(2 * time.Second)},
		},
		{
			"an arbiter that evicts locks", "Node anna: the arbiter is not fit for locks, and two processes may have the same one: maxmemory-policy is allkeys-lru", Overview{},
			coord.NodeReport{Unfit: "maxmemory-policy is allkeys-lru"},
		},
		{
			"another key", "Node anna and node berta refuse each other: none of the shared keys", Overview{},
			coord.NodeReport{Nodes: []coord.NodeInfo{{Name: "berta", Refused: "none of the shared keys"}}},
		},
		{
			"a node with another arbiter", "Node berta does not find node anna at its arbiter, and refuses it. If that lasts, berta does not reach the arbiter, or uses another one: " +
				`peer: refused by the other side: "not a member"`, Overview{},
			coord.NodeReport{Nodes: []coord.NodeInfo{{Name: "berta", Refused: `peer: refused by the other side: "not a member"`}}},
		},
		{
			"a hot key", `Key "sku" is hot: 50 callers wait for it.`, Overview{Taken: []coord.KeySummary{hot}, Waited: []coord.KeySummary{hot}},
			coord.NodeReport{},
		},
		{
			"a hot key that each caller holds for long", `Key "sku" is hot: 50 callers wait for it.`, Overview{Wanted: []coord.KeySummary{hot}},
			coord.NodeReport{},
		},
		{
			"a key that is both", `Key "sku" is hot: 50 callers wait for it.`,
			Overview{Taken: []coord.KeySummary{hot}, Wanted: []coord.KeySummary{hot}}, coord.NodeReport{},
		},
		{
			"a lock that others want", `Key "sku" is wanted, and callers may have given up. It is held by berta (vm:7), for 6h0m0s.`,
			Overview{stuck: []coord.KeySummary{wanted}}, coord.NodeReport{},
		},
		{"one that none wants", "", Overview{stuck: []coord.KeySummary{{Key: "sku", Holder: wanted.Holder, Since: wanted.Since}}}, coord.NodeReport{}},
		{
			"one that is held for a moment", "",
			Overview{stuck: []coord.KeySummary{{Key: "sku", Holder: wanted.Holder, Since: now.Add(-time.Minute), Wanted: true}}}, coord.NodeReport{},
		},
		{
			"the leadership", "", Overview{
				Taken:  []coord.KeySummary{{Key: "leader", Waiters: hotWaiters, Expected: true}},
				Waited: []coord.KeySummary{{Key: "leader", Waiters: hotWaiters, Waiting: now.Add(-time.Hour), Expected: true}},
			}, coord.NodeReport{},
		},
		{
			"Grace", "Grace: the arbiter has failed over or lost data, and grants nothing new for 9s. Owners go on granting.",
			Overview{Grace: 9 * time.Second}, coord.NodeReport{Owned: 61},
		},
		{
			"Grace and some owners", "Grace: the arbiter has failed over or lost data, and grants nothing new for 9s. Owners go on granting; keys without one wait.\n" +
				"1 partition has no owner that answers: its keys are locked at the arbiter, or wait.", Overview{Grace: 9 * time.Second, Unowned: 1}, coord.NodeReport{Owned: 60},
		},
		{
			"Grace and no owner", "Grace: the arbiter has failed over or lost data, and grants nothing new for 9s. No process that answers owns keys: all locks that are not held already wait.\n" +
				"61 partitions have no owner that answers: their keys are locked at the arbiter, or wait.", Overview{Grace: 9 * time.Second, Unowned: 61}, coord.NodeReport{},
		},
		{
			"a session lost", "Node anna has lost its session, and all its locks, 1 time, the last time 40s ago.", Overview{},
			coord.NodeReport{Sessions: 2, Events: []coord.Event{{Time: now.Add(-40 * time.Second), Text: "session lost, and all locks with it session=s"}}},
		},
		{
			"one lost long ago", "", Overview{},
			coord.NodeReport{Sessions: 2, Events: []coord.Event{{Time: now.Add(-time.Hour), Text: "session lost, and all locks with it session=s"}}},
		},
		{"a key that is not", "", Overview{Taken: []coord.KeySummary{{Key: "sku", Waiters: hotWaiters - 1}}}, coord.NodeReport{}},
	} {
		tt.r.Clock = now
		tt.o.Time, tt.o.Nodes = now, []Node{{NodeInfo: coord.NodeInfo{Name: "anna"}, Report: &tt.r}}
		tt.o.judge(10 * time.Second)
		if got := strings.Join(tt.o.Problems, "\n"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The page says how many nodes were not asked, in the place of partitions without an owner.
func TestPage_SaysThatNotAllWereAsked(t *testing.T) {
	for more, want := range [][]string{
		{"All is well.", "61 partitions, 7 of them without an owner that answers"},
		{"All is well at the nodes that were asked.", "61 partitions; 1 more node was not asked"},
	} {
		w := httptest.NewRecorder()
		new(handler).show(w, 200, "overview.html", &page{Overview: &Overview{Partitions: 61, Unowned: 7, More: more}})
		for _, part := range want {
			if text := w.Body.String(); !strings.Contains(text, part) {
				t.Errorf("the page lacks %q: %s", part, text)
			}
		}
	}
}
