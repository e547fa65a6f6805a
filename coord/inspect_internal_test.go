package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// manyKeys returns an owner of a partition with so many keys that are held.
func manyKeys(tb testing.TB, n int) (c *Coordinator, p *partition) {
	tb.Helper()
	c, err := New(context.Background(), fallback.NewMemory(), &Options{
		SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, Partitions: 1, LongHold: -1, LongWait: -1,
		Cluster: &Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 10 * time.Millisecond},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = c.Close(canceled) // the locks are in use
	})
	await.Until(tb, "it owns all", func() bool { return c.Stats().Owned == 1 })
	for i := range n {
		if _, err := c.Lock(tb.Context(), fmt.Sprint("key", i)); err != nil {
			tb.Fatal(err)
		}
	}
	return c, &c.parts[0]
}

// A walk over many keys lets callers in that come meanwhile, and sees all keys that stay.
func TestSurvey_CallersDoNotWaitForItsEnd(t *testing.T) {
	const keys = 20_000
	c, p := manyKeys(t, keys)
	var in atomic.Bool
	coming := make(chan struct{})
	seen := 0
	c.survey(t.Context(), func(g *lease.Glance) {
		if seen++; seen == 1 {
			go func() {
				close(coming)
				p.mu.Lock()
				p.Key("another")
				p.mu.Unlock()
				in.Store(true)
			}()
			<-coming
		}
	})
	if !in.Load() {
		t.Error("a caller had to wait for the end of the walk")
	}
	if seen < keys {
		t.Errorf("%d of %d keys were seen", seen, keys)
	}
}

// Whatever looks at all keys has the mutex for so many of them at a time: callers come in between.
func TestSurvey_WorkPerHold(t *testing.T) {
	const keys = 10*lease.WalkAtOnce + 1
	c, p := manyKeys(t, keys)
	for name, walk := range map[string]func(rest func() bool, seen func()){
		"Survey": func(rest func() bool, seen func()) { p.Survey(0, rest, func(lease.Glance) { seen() }) },
		"Overdue": func(rest func() bool, seen func()) {
			p.Overdue(c.moment()+time.Hour, rest, 1, 1, func(lease.Overdue) { seen() })
		},
	} {
		all, most, n, rests := 0, 0, 0, 0
		p.mu.Lock()
		if name == "Overdue" {
			p.Overdue(c.moment(), p.letIn, time.Hour, time.Hour, func(lease.Overdue) {}) // looks at the locks for the first time
		}
		walk(func() bool {
			rests, n = rests+1, 0
			return p.letIn()
		}, func() {
			n++
			all, most = all+1, max(most, n)
		})
		p.mu.Unlock()
		if all != keys || most != lease.WalkAtOnce || rests != 10 {
			t.Errorf("%s: %d keys, %d at once at most, %d rests", name, all, most, rests)
		}
	}
	rests, counts := 0, lease.Counts{}
	p.mu.Lock()
	p.Count(c.moment(), func() bool { rests++; return p.letIn() }, &counts, func(lease.Path, uint64) {}, c.tells.expected.has)
	p.mu.Unlock()
	if counts.Locked != keys || rests != 10 {
		t.Errorf("Count: %+v, %d rests", counts, rests)
	}
}

// A node that has no time to look at all its keys tells of those that it has seen, and the number
// of the others.
func TestSurvey_OutOfTime(t *testing.T) {
	const keys = 3 * lease.WalkAtOnce
	c, _ := manyKeys(t, keys)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	left := c.survey(ctx, func(*lease.Glance) {
		seen++
		cancel()
	})
	if seen != lease.WalkAtOnce || left != keys-seen {
		t.Errorf("%d of %d keys were seen, %d left", seen, keys, left)
	}
	if left := c.survey(ctx, func(*lease.Glance) {}); left != keys {
		t.Errorf("%d of %d keys are left", left, keys)
	}
	var list KeyList
	list.merge(c, []reply{{Process: Process{Name: "busy"}, Left: left}}, LongestHeld)
	if len(list.Unanswered) != 1 || list.Unanswered[0].Name != "busy" || !strings.Contains(list.Unanswered[0].Reason, fmt.Sprint(left)) {
		t.Errorf("%+v", list)
	}
}

// Older nodes do not know LongestWanted, and answer with the keys that they hold for longest.
func TestTop_LongestWantedOfAnOlderNode(t *testing.T) {
	c, _ := manyKeys(t, 1)
	for _, q := range []question{{By: LongestHeld}, {By: LongestHeld, Wanted: true}} {
		q.About, q.Most = "top", 10
		if a := c.answer(t.Context(), q); len(a.Keys) == 1 == q.Wanted || a.Error != "" {
			t.Errorf("%+v: %+v", q, a)
		}
	}
	var list KeyList
	list.merge(c, []reply{{Keys: []keyPart{{Key: []byte("a"), Locked: true, Held: 2}, {Key: []byte("b"), Locked: true, Wanted: true, Held: 1}}}}, LongestWanted)
	if len(list.Keys) != 1 || list.Keys[0].Key != "b" {
		t.Errorf("%+v", list)
	}
}

// BenchmarkSurvey walks over a million keys of one partition. It reports for how long the walk has
// the mutex at a time, by the clock and by the processor's time, at most: the latter leaves out the
// machine's other work. And it reports for how long a caller waits that comes meanwhile.
func BenchmarkSurvey(b *testing.B) {
	c, p := manyKeys(b, 1_000_000)
	var all, holds, busy []time.Duration
	for b.Loop() {
		ctx, stop := context.WithCancel(b.Context())
		var work sync.WaitGroup
		work.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				p.mu.Lock()
				_ = p.Phase()
				p.mu.Unlock()
				all = append(all, time.Since(start))
				time.Sleep(100 * time.Microsecond)
			}
		})
		c.survey(b.Context(), func(*lease.Glance) {})
		stop()
		work.Wait()

		b.StopTimer()
		runtime.LockOSThread()
		seen := 0
		p.mu.Lock()
		start, used := time.Now(), threadTime(b)
		p.Survey(c.moment(), func() bool {
			holds, busy = append(holds, time.Since(start)), append(busy, threadTime(b)-used)
			p.letIn()
			start, used = time.Now(), threadTime(b)
			return true
		}, func(lease.Glance) { seen++ })
		p.mu.Unlock()
		runtime.UnlockOSThread()
		if seen < 1_000_000 {
			b.Errorf("%d keys", seen)
		}
		b.StartTimer()
	}
	for _, x := range []struct {
		name string
		all  []time.Duration
	}{{"wait", all}, {"hold", holds}, {"hold-busy", busy}} {
		slices.Sort(x.all)
		b.ReportMetric(float64(x.all[len(x.all)/2].Microseconds()), "µs-"+x.name+"-p50")
		b.ReportMetric(float64(x.all[len(x.all)*999/1000].Microseconds()), "µs-"+x.name+"-p99.9")
		b.ReportMetric(float64(x.all[len(x.all)-1].Microseconds()), "µs-"+x.name+"-max")
	}
}

// A node of an older version closes a stream when it gets an unknown frame.
func TestInspect_AnOlderNodeIsNotAsked(t *testing.T) {
	c, err := New(t.Context(), fallback.NewMemory(), &Options{
		SessionTTL: time.Hour, RenewEvery: 15 * time.Minute, Grace: 2 * time.Hour, Partitions: 7,
		Cluster: &Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 10 * time.Millisecond, Keepalive: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	x := &hostile{make(chan *peer.Stream, 64), make(chan uint32, 64)}
	identity, err := peer.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r := fallback.Registration{TTL: time.Hour, Info: card{Name: "old", Node: "old/1", Host: "pluto", Key: identity.Fingerprint()}.encode()}
	if _, err := c.remote.ns.Open(t.Context(), "old", r); err != nil {
		t.Fatal(err)
	}
	tr, err := peer.Start(peer.Options{
		Node: "old/1", Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, TLS: identity.TLS(), Handler: x, Retry: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Close() }()
	tr.SetPeers(map[string]string{c.cluster.self.name: c.cluster.net.Addr()})
	s := <-x.ups
	if err := s.Send(&peer.Frame{Kind: peer.Resume, Flags: flagBegin, Session: []byte("old")}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it is known", func() bool { return c.cluster.linkTo("old") != nil })
	if _, err := c.Held(t.Context(), "old"); !errors.Is(err, errOldNode) || !strings.Contains(err.Error(), `"old"`) {
		t.Errorf("Held: %v", err)
	}
	top, err := c.Top(t.Context(), 10, LongestHeld)
	if err != nil || len(top.Unanswered) != 1 || top.Unanswered[0].Host != "pluto" || top.Unanswered[0].Reason != errOldNode.Error() {
		t.Errorf("Top: %+v, %v", top, err)
	}
	// It takes a key. The owner tells of that.
	p := c.partitionOf("k")
	await.Until(t, "the node serves the partition", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		epoch, _ := p.Serving()
		return epoch > 0
	})
	for _, f := range []peer.Frame{
		{Kind: peer.Resume, Flags: flagEnd}, {Kind: peer.Ping, Ping: 1},
		{Kind: peer.Request, Session: []byte("old"), Request: 1, Partition: p.Number(), Key: []byte("k")},
	} {
		if err := s.Send(&f); err != nil {
			t.Fatal(err)
		}
	}
	var info KeyInfo
	await.Until(t, "it has the key", func() bool {
		info, err = c.Inspect(t.Context(), "k")
		return err == nil && info.Holder != nil
	})
	if h := info.Holder; h.Locked || h.Name != "old" || h.Host != "pluto" || h.Fence == 0 || h.Since.IsZero() || len(info.Unanswered) != 1 {
		t.Errorf("%+v holds it, %+v", info.Holder, info)
	}
	top, err = c.Top(t.Context(), 10, LongestHeld)
	if err != nil || len(top.Keys) != 1 || top.Keys[0].Holder.Name != "old" || top.Keys[0].Fence != info.Holder.Fence {
		t.Errorf("Top: %+v, %v", top, err)
	}
	if c.cluster.linkTo("old") == nil {
		t.Error("the stream has ended")
	}
}

// Of waits that one node expects, and another one does not or is of a version that does not tell,
// the latter count.
func TestTop_MergesWaitsThatAreExpected(t *testing.T) {
	const h = time.Hour
	c := &Coordinator{}
	for _, tt := range []struct {
		name     string
		parts    [2]string // of two nodes, as they come over the network
		expected bool
		waiters  int
		waited   time.Duration
	}{
		{"both expect it", [2]string{`"waiting":1,"waited":18000000000000,"expected":true`, `"waiting":2,"waited":36000000000000,"expected":true`}, true, 3, 10 * h},
		{"an older node", [2]string{`"waiting":1,"waited":36000000000000,"expected":true`, `"waiting":1,"waited":18000000000000`}, false, 2, 5 * h},
		{"only the holder", [2]string{`"locked":true,"expected":true`, `"waiting":1,"waited":18000000000000`}, false, 1, 5 * h},
		{"an older holder", [2]string{`"locked":true`, `"waiting":1,"waited":18000000000000,"expected":true`}, true, 1, 5 * h},
		{"a caller that has just come", [2]string{`"waiting":1,"waited":18000000000000,"expected":true`, `"waiting":1`}, false, 2, 0},
	} {
		for range 2 {
			var all []reply
			for _, part := range tt.parts {
				var a reply
				if err := json.Unmarshal([]byte(`{"keys":[{"key":"aw==",`+part+`}]}`), &a); err != nil {
					t.Fatal(err)
				}
				all = append(all, a)
			}
			var list KeyList
			list.merge(c, all, LongestWait)
			k, waited := list.Keys[0], time.Duration(0)
			if !k.Waiting.IsZero() {
				waited = time.Since(k.Waiting).Truncate(h)
			}
			if k.Expected != tt.expected || k.Waiters != tt.waiters || waited != tt.waited {
				t.Errorf("%s: %+v, waited for %v", tt.name, k, waited)
			}
			slices.Reverse(tt.parts[:])
		}
	}
}

// FuzzQuestions: an answer is short and can be read, whatever was asked and is answered.
func FuzzQuestions(f *testing.F) {
	c, err := New(context.Background(), fallback.NewMemory(), &Options{Partitions: 7})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close(context.Background()) })
	l, err := c.Lock(WithLabel(context.Background(), "a\xff\x00"+strings.Repeat("\x01", MaxLabel)), "k")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Unlock() })
	for range mostWaiters {
		p, err := c.Semaphore("k", mostWaiters).Acquire(WithLabel(context.Background(), strings.Repeat("\x01", MaxLabel)), 1)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = p.Release() })
	}
	var names [][]byte // of the blocks, one for each as they have labels
	for _, name := range c.callers.pools.names(semaphorePrefix + "k") {
		names = append(names, []byte(name))
	}
	a := c.answer(context.Background(), question{About: "keys", Keys: names})
	if n := len(a.encode()); n > maxText || len(names) != mostWaiters || len(a.Keys) != len(names) || !a.Keys[9].Locked {
		f.Errorf("of %d permits with labels %d are told, in %d bytes", len(names), len(a.Keys), n)
	}
	for _, q := range []question{{About: "keys", Keys: [][]byte{[]byte("k"), []byte("l")}}, {About: "held", Most: 1 << 40}, {About: "top", Most: -1, By: LongestHeld}, {About: "?"}} {
		text, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"process":{"name":"` + strings.Repeat("x", maxText) + `"},"keys":[{"key":"aw==","labels":["\u0000"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var q question
		if json.Unmarshal(text, &q) == nil {
			readable(t, c.answer(t.Context(), q))
		}
		var a reply
		if json.Unmarshal(text, &a) == nil {
			for i := range a.Keys {
				_ = c.summary(&a.Process, &a.Keys[i])
			}
			readable(t, a)
		}
	})
}

func readable(t *testing.T, a reply) {
	t.Helper()
	text := a.encode()
	var back reply
	if err := json.Unmarshal(text, &back); err != nil || len(text) > maxText {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
