//go:build linux

package faults

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// awaitGuards waits until other nodes guard each one.
func (f *fabric) awaitGuards() {
	f.t.Helper()
	await.Until(f.t, "each node is guarded", func() bool {
		f.judge.mu.Lock()
		defer f.judge.mu.Unlock()
		return len(f.judge.guarded) == len(f.names)
	})
}

// Processes of one host see one of them end. Its keys can be locked long before the promises to it
// have passed, and those that others hold by its word stay theirs. It is not seen where it is
// Unwatched, or is stopped and may go on.
func TestAKilledProcessIsSeenByItsHost(t *testing.T) {
	takes.Seconds(t)
	for _, x := range []struct {
		name          string
		takeover, ttl time.Duration
		unwatched     bool
		signal        syscall.Signal
		from, to      time.Duration // when the others get its keys
	}{
		{"killed", 6 * time.Second, 8 * time.Second, false, syscall.SIGKILL, 0, 3 * time.Second},
		{"killed and unwatched", 2 * time.Second, 5 * time.Second, true, syscall.SIGKILL, 2 * time.Second / 3, 5*time.Second + scheduling},
		{"stopped", 2 * time.Second, 5 * time.Second, false, syscall.SIGSTOP, 2 * time.Second / 3, 5*time.Second + scheduling},
	} {
		t.Run(x.name, func(t *testing.T) {
			long(t)
			server := redistest.Start(t)
			base := clustered(server.Addr, x.ttl)
			base.Takeover, base.Unwatched = x.takeover, x.unwatched
			f := newIdleFabric(t, server, base, 3)
			f.awaitGuards()
			victim := f.node(f.awaitOwners(time.Second)[0])
			var others []*process
			for _, p := range f.workers {
				if p != victim {
					others = append(others, p)
				}
			}
			// Keys of each partition: some are held by the word of the victim, and others by the victim.
			his, kept := keysOf("v"), keysOf("h")
			f.hold(victim, his...)
			f.hold(others[0], kept...)
			for _, k := range slices.Concat(his, kept, f.keys) {
				f.give(others[1], brief(k))
			}
			f.settle(f.keys...)

			late, at := mine.Late(), f.signal(victim, x.signal)
			if x.signal == syscall.SIGKILL {
				f.killed[victim.name] = true
				f.forget(victim.name)
			}
			got := f.judge.await(t, x.to, "another node gets the keys that it held",
				each(his, byKey, func(v visit) bool { return v.Worker != victim.name }))
			first := x.ttl
			for _, v := range f.judge.seen() {
				if slices.Contains(his, v.Key) && v.Worker != victim.name {
					first = min(first, v.Entered.Sub(at))
				}
			}
			t.Logf("Takeover is %v, T is %v; its keys are locked again after %v to %v", x.takeover, x.ttl, first.Round(time.Millisecond),
				got.Sub(at).Round(time.Millisecond))
			if d := got.Sub(at); first < x.from || d > x.to+slack(late) {
				t.Errorf("its keys are locked again after %v to %v, and it was to be %v to %v", first, d, x.from, x.to)
			}
			f.judge.await(t, x.ttl+scheduling, "the keys of all partitions are used",
				each(f.keys, byKey, func(v visit) bool { return v.Entered.After(got) }))
			// What rested on its word would be lost when that ends.
			await.Throughout(t, time.Until(at.Add(x.takeover+time.Second)), "none else has lost a key", func() bool {
				return !slices.ContainsFunc(f.judge.seen(), func(v visit) bool {
					return slices.Contains(kept, v.Key) && (v.Worker != others[0].name || v.State != open)
				})
			})
			if x.signal == syscall.SIGSTOP {
				f.signal(victim, syscall.SIGCONT)
				f.judge.await(t, x.ttl+scheduling, "it is told",
					each(his, byKey, func(v visit) bool { return v.Worker == victim.name && v.State == forfeited }))
			}
			all := f.check()
			delete(all, victim.name)
			f.unscathed(all)
		})
	}
}
