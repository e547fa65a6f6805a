package leasetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// after returns a world in which the commands have been executed.
func after(t *testing.T, nodes, commands string) *World {
	t.Helper()
	w := New(strings.Fields(nodes)...)
	do(t, w, commands)
	return w
}

// do executes commands, one per line.
func do(t *testing.T, w *World, commands string) {
	t.Helper()
	for _, line := range strings.Split(commands, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := w.Do(line); err != nil {
			t.Fatal(err)
		}
	}
}

// owned: a owns the partition and holds mine, and b holds theirs, and c waits for that.
const owned = `
	a acquire
	owner a
	ping
	a lock mine
	b lock theirs
	deliver
	c lock theirs
	deliver`

func TestReports_Count(t *testing.T) {
	w := after(t, "a b c", owned+`
		a lock mine
		a lock kept
		a unlock kept`)
	var n lease.Counts
	paths := make(map[lease.Path]uint64)
	none := func(string) bool { return false }
	w.node("a").P.Count(1, nil, &n, func(x lease.Path, n uint64) { paths[x] += n }, none)
	if n.Owned != 1 || n.Locked != 1 || n.Kept != 1 || n.Waiting != 1 || paths[lease.PathOwn] != 2 || paths[lease.PathForwarded] != 0 {
		t.Error(n, paths)
	}
	w.node("b").P.Count(1, nil, &n, func(x lease.Path, n uint64) { paths[x] += n }, none)
	if n.Owned != 1 || n.Locked != 2 || paths[lease.PathForwarded] != 1 {
		t.Error("with b's:", n, paths)
	}
}

func TestReports_OfAnOwner(t *testing.T) {
	w := after(t, "a b c", owned)
	p := &w.node("a").P
	var all []string
	p.Others(func(key string, id fallback.Identity) { all = append(all, key+" of "+identity(id)) })
	slices.Sort(all)
	if !slices.Equal(all, []string{"theirs of b#1", "theirs of c#1"}) {
		t.Error(all)
	}
	var nodes []string
	p.Usage(func(l lease.Link) { nodes = append(nodes, l.Node()) })
	slices.Sort(nodes)
	if !slices.Equal(nodes, []string{"b", "c"}) {
		t.Error(nodes)
	}
	if id, imported := p.HolderOf("theirs"); identity(id) != "b#1" || imported {
		t.Error(id, imported)
	}
	if id, _ := p.HolderOf("mine"); id != (fallback.Identity{}) {
		t.Error(id)
	}
	if epoch, until := p.Serving(); epoch != 102 || until.Sub(w.now) != w.Times.lease() || p.LastSeq() != 1025 || !p.Confirmed().Equal(w.now) {
		t.Error(epoch, until, p.LastSeq(), p.Confirmed())
	}
	if p.Number() != 0 || p.Turns() != 1 || p.Seen() != fallback.MakeToken(102, 0) || p.Sampled() {
		t.Error(p.Number(), p.Turns(), p.Seen(), p.Sampled())
	}
	p.Forget("theirs")
	if id, _ := p.HolderOf("theirs"); id != (fallback.Identity{}) {
		t.Error("it is not forgotten:", id)
	}
}

func TestReports_OfAnotherNode(t *testing.T) {
	w := after(t, "a b c", owned)
	p := &w.node("c").P
	if l, id := p.RequestOf("theirs"); l.Node() != "a" || identity(id) != "c#1" {
		t.Error(l, id)
	}
	if l, _ := p.RequestOf("mine"); l != nil || !p.Confirmed().IsZero() {
		t.Error(l, p.Confirmed())
	}
}

func TestReports_RequestsThatWaitForAcquireAreInUse(t *testing.T) {
	w := after(t, "a b", "owner a\n a send acquire\n b lock k\n deliver")
	var nodes []string
	w.node("a").P.Usage(func(l lease.Link) { nodes = append(nodes, l.Node()) })
	if !slices.Equal(nodes, []string{"b"}) {
		t.Error(nodes)
	}
}

func TestDescribe_TellsAllThatANodeKnowsOfAKey(t *testing.T) {
	w := after(t, "a b c", owned+"\n a lock mine")
	for _, c := range []struct {
		node, key string
		has       []string
	}{
		{"a", "mine", []string{"owned by session a at 102", "turn, 1 wait", "rests on this node", "session's deadline in 9.000 s"}},
		{"a", "theirs", []string{"granted to {b 1}", "imported false", "1 nodes wait"}},
		{"b", "theirs", []string{"unowned", "rests on its owner at 102"}},
		{"c", "theirs", []string{"asks a as {c 1}"}},
		{"c", "unknown", []string{"should be this node's: false"}},
	} {
		text := w.node(c.node).P.Describe(c.key, w.now)
		for _, x := range c.has {
			if !strings.Contains(text, x) {
				t.Errorf("%s of %s lacks %q: %s", c.node, c.key, x, text)
			}
		}
	}
	do(t, w, "a send demote\n owner none\n b lock asked")
	if text := w.node("a").P.Describe("mine", w.now); !strings.Contains(text, "demoting") || !strings.Contains(text, "an earlier epoch is relied on") {
		t.Error(text)
	}
	if text := w.node("b").P.Describe("asked", w.now); !strings.Contains(text, "asks the arbiter as { 0}: no answer") {
		t.Error(text)
	}
}

// overdue returns the reports of Overdue on a node, sorted by key.
func overdue(w *World, node string, wait, hold time.Duration) (all []lease.Overdue) {
	n := w.node(node)
	n.P.Overdue(n.cfg.At(w.now), nil, wait, hold, func(x lease.Overdue) { all = append(all, x) })
	slices.SortFunc(all, func(a, b lease.Overdue) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func TestOverdue_EachLockAndWaitIsToldOnce(t *testing.T) {
	w := after(t, "a b c", "tick 1s"+owned+`
		a lock mine
		owner none
		c lock asked
		owner a`)
	a := &w.node("a").P
	a.Tag(a.Find("mine"), "main.go:7")
	w.node("c").waiters["theirs"][0].Value.Tag = "main.go:9"
	for _, node := range []string{"a", "b", "c"} {
		if all := overdue(w, node, time.Second, time.Second); len(all) > 0 {
			t.Error("too early:", all)
		}
	}
	do(t, w, "tick 2s\n c calls")
	all := overdue(w, "a", 0, 2*time.Second)
	if len(all) != 1 || all[0].Key != "mine" || all[0].Tag != "main.go:7" || fallback.Token(all[0].Fence).Seq() != 1 || all[0].Since != time.Second {
		t.Error("a lock:", all)
	}
	all = overdue(w, "a", time.Second, time.Second)
	if len(all) != 1 || all[0].Waiting != 1 || !all[0].Here || all[0].HeldTag != "main.go:7" || all[0].Reason != nil {
		t.Error("a wait for a lock of this process:", all)
	}
	all = overdue(w, "c", time.Second, time.Second)
	if len(all) != 2 || all[1].Key != "theirs" || all[1].Owner != "a" || all[1].Tag != "main.go:9" || all[1].Since != time.Second || all[1].Waiting != 1 {
		t.Error("a wait at the owner:", all)
	}
	if all = overdue(w, "c", time.Second, time.Second); len(all) > 0 {
		t.Error("twice:", all)
	}
	do(t, w, "a lock theirs\n tick 1s")
	overdue(w, "a", time.Second, 0)
	do(t, w, "tick 1s")
	all = overdue(w, "a", time.Second, time.Second)
	if len(all) != 1 || all[0].Session != "b" || all[0].Here {
		t.Error("a wait for another node:", all)
	}
}

func TestOverdue_TellsTheSessionThatTheArbiterHasNamed(t *testing.T) {
	w := after(t, "a b", "tick 1s\n a lock k\n a calls\n b lock k\n b calls")
	overdue(w, "b", time.Second, 0)
	do(t, w, "tick 1s")
	if all := overdue(w, "b", time.Second, 0); len(all) != 1 || all[0].Session != "a" {
		t.Error(all)
	}
	// A turn that was passed on without a look at the clock is measured from the first look.
	do(t, w, "a lock k")
	if all := overdue(w, "a", time.Second, time.Second); len(all) != 1 || all[0].Held != 0 {
		t.Error(all)
	}
	do(t, w, "tick 1s")
	if all := overdue(w, "a", time.Second, 0); len(all) != 1 || !all[0].Here {
		t.Error(all)
	}
}

// A key with many waiters is looked at in pieces, as many keys are: callers come in between, and
// may leave.
func TestOverdue_ManyWaitersOfOneKey(t *testing.T) {
	const waiters = 3*lease.WalkAtOnce + 5
	w := after(t, "a", "tick 1s\n a acquire\n owner a\n ping\n a lock k"+strings.Repeat("\n a lock k", waiters))
	n := w.node("a")
	look := func(rest func() bool) (told int) {
		n.P.Overdue(n.cfg.At(w.now), rest, time.Second, 0, func(x lease.Overdue) {
			if x.Key != "k" || !x.Here || x.Fence == 0 {
				t.Errorf("%+v", x)
			}
			told += x.Waiting
		})
		return told
	}
	rests := 0
	if told := look(func() bool { rests++; return true }); told != 0 || rests != 3 {
		t.Errorf("%d are told at once; %d rests", told, rests)
	}
	do(t, w, "tick 2s")
	// Those that have got their turns in the first rest are not told.
	rests = 0
	told := look(func() bool {
		if rests++; rests == 1 {
			for range lease.WalkAtOnce + 100 {
				do(t, w, "a unlock k")
			}
		}
		return true
	})
	if s := statusOf(n, "k"); s.Waiting != waiters-lease.WalkAtOnce-100 || told < s.Waiting || told >= waiters {
		t.Errorf("%d are told, %d wait", told, s.Waiting)
	}
	if told := look(func() bool { return true }); told != 0 {
		t.Errorf("%d are told twice", told)
	}
}
