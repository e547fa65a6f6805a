package coord_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// unguardedText is the record of a node that none guards.
const unguardedText = "holdfast: no node guards this one"

// A node with another Cluster.Takeover than the others is guarded by none. It says so once, and
// nodes that are guarded say nothing.
func TestLog_ANodeThatNoneGuards(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	var logs []records
	options := func(name string, takeover time.Duration, h slog.Handler) *coord.Options {
		o := unhurried()
		o.Name, o.Logger = name, slog.New(h)
		o.SessionTTL, o.Grace = 10*time.Second, 12*time.Second // it is told after 10 s
		o.Cluster.Keepalive, o.Cluster.Takeover = 2*time.Second, takeover
		return o
	}
	for i, takeover := range []time.Duration{7 * time.Second, 8 * time.Second, 8 * time.Second, -1} {
		logs = append(logs, newRecords())
		nodes = append(nodes, join(t, a, options(string(rune('a'+i)), takeover, logs[i])))
	}
	settled(t, 61, nodes...)
	await.Within(t, time.Minute, "it says so", func() bool { return len(logs[0].about(unguardedText)) > 0 })
	r := logs[0].about(unguardedText)[0]
	theirs, _ := r.attrs["theirs"].Any().([]time.Duration)
	if r.level != slog.LevelWarn || r.attrs["takeover"].Duration() != 7*time.Second || r.attrs["nodes"].Int64() != 3 ||
		!slices.Equal(theirs, []time.Duration{0, 8 * time.Second}) {
		t.Errorf("%v", r)
	}
	for i, want := range []struct {
		takeover time.Duration
		guarded  bool
	}{{7 * time.Second, false}, {8 * time.Second, true}, {8 * time.Second, true}, {0, false}} {
		if s := nodes[i].Stats(); s.Takeover != want.takeover || s.Guardians > 0 != want.guarded {
			t.Errorf("node %d: Takeover %v, %d guardians", i, s.Takeover, s.Guardians)
		}
		for _, n := range nodes[0].Nodes() {
			if n.Name == string(rune('a'+i)) && n.Takeover != want.takeover {
				t.Errorf("%+v", n)
			}
		}
	}
	nodes = append(nodes, join(t, a, options("e", 7*time.Second, slog.DiscardHandler)))
	await.Within(t, time.Minute, "the node that came guards it", func() bool { return nodes[0].Stats().Guardians > 0 })
	for i, l := range logs {
		if n := len(l.about(unguardedText)); n > 1 || n > 0 != (i == 0) {
			t.Errorf("node %d says so %d times", i, n)
		}
	}
}

// Nodes that start together guard each other as soon as there are streams: the first one, which was
// alone at the arbiter, too. Neither waits until the other's next look at its guardians, in ten
// minutes here, or for the end of a lease of ten hours.
func TestTakeover_NodesThatStartTogetherAreGuardedAtOnce(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	options := func() *coord.Options {
		o := unhurried()
		o.SessionTTL, o.Grace, o.Cluster.Takeover = 10*time.Hour, 12*time.Hour, time.Hour
		return o
	}
	nodes := []*coord.Coordinator{join(t, a, options()), join(t, a, options())}
	settled(t, 61, nodes...)
	for i, n := range nodes {
		await.Until(t, fmt.Sprintf("node %d is guarded", i), func() bool { return n.Stats().Guardians > 0 })
	}
}

// A node with guardians that reaches them and not the arbiter has its session until the lease ends,
// and says so: pings make the promises longer.
func TestLog_ARenewalFailsWhileGuardiansAreThere(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	a := fallback.NewMemory()
	f, h := &faulty{Arbiter: a}, newRecords()
	options := func() *coord.Options {
		o := unhurried()
		o.SessionTTL, o.Grace, o.Cluster.Takeover = 20*time.Second, 24*time.Second, 3*time.Second
		return o
	}
	o := options()
	o.Logger = slog.New(h)
	nodes := []*coord.Coordinator{join(t, f, o), join(t, a, options())}
	settled(t, 61, nodes...)
	await.Within(t, time.Minute, "it is guarded", func() bool { return nodes[0].Stats().Guardians > 0 })
	const text = "holdfast: renewal failed, trying again"
	cut := time.Now()
	f.cut("renew")
	defer f.mend()
	await.Within(t, time.Minute, "it says so", func() bool { return len(h.about(text)) > 0 })
	if left := h.about(text)[0].attrs["deadline"].Time().Sub(cut); left < 9*time.Second {
		t.Errorf("it says that it has had its session for %v more, with a lease of 18 s", left)
	}
}
