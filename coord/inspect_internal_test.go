package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		SessionTTL: time.Hour, Grace: 2 * time.Hour, Partitions: 1, LongHold: -1, LongWait: -1,
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

// BenchmarkSurvey reports for how long a caller waits for a partition with a million keys while a walk goes over them: as a rule, in
// one of a thousand cases, and at most. The last one has what the machine does beside it.
func BenchmarkSurvey(b *testing.B) {
	c, p := manyKeys(b, 1_000_000)
	var all []time.Duration
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
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(all[len(all)*999/1000].Microseconds()), "µs-p99.9")
	b.ReportMetric(float64(all[len(all)-1].Microseconds()), "µs-max")
}

// A node of an older version closes a stream on which it gets a frame that it does not know.
func TestInspect_AnOlderNodeIsNotAsked(t *testing.T) {
	c, err := New(t.Context(), fallback.NewMemory(), &Options{
		SessionTTL: time.Hour, Grace: 2 * time.Hour, Partitions: 7,
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
	if _, err := c.ns.Open(t.Context(), "old", r); err != nil {
		t.Fatal(err)
	}
	tr, err := peer.Start(peer.Options{
		Node: "old/1", Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, TLS: identity.TLS(), Handler: x, Retry: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Close() }()
	tr.SetPeers(map[string]string{c.cluster.name: c.cluster.net.Addr()})
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
	// It takes a key. What the owner knows of that is told.
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
