package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/peer"
)

// liar is a client of the server that may publish, and nothing else.
type liar struct {
	t      *testing.T
	client *redis.Client
}

// say sends a message to a node in its arbiter's name, and waits until it has been delivered.
func (l liar) say(to *Coordinator, text string) {
	l.t.Helper()
	channel := fmt.Sprintf("{%s:c}:%s", to.opts.Namespace, to.sessions.id())
	if n, err := l.client.Publish(l.t.Context(), channel, text).Result(); err != nil || n != 1 {
		l.t.Fatalf("%d subscribers of %s, %v", n, channel, err)
	}
}

// freed sends the message that a hold was released at the arbiter.
func (l liar) freed(to *Coordinator, key string, id fallback.Identity) {
	l.t.Helper()
	l.say(to, fmt.Sprintf("f%s %d %s", id.Session, id.Request, key))
}

// stays checks for a moment that something stays as it is.
func stays(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !await.Throughout(t, 300*time.Millisecond, what, ok) {
		t.FailNow()
	}
}

// lockOf locks a key of owner's at holder.
func lockOf(t *testing.T, owner, holder *Coordinator, prefix string) Lock {
	t.Helper()
	for n := 0; ; n++ {
		key := fmt.Sprint(prefix, n)
		p := owner.partitionOf(key)
		p.mu.Lock()
		mine := p.Phase() == lease.Owned
		p.mu.Unlock()
		if !mine {
			continue
		}
		l, err := holder.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Unlock() })
		return l
	}
}

// holderOf is the hold of a key in its owner's table.
func holderOf(owner *Coordinator, key string) (id fallback.Identity, imported bool) {
	p := owner.partitionOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.HolderOf(key)
}

func refusedAt(t *testing.T, owner *Coordinator, l Lock) func() bool {
	return func() bool {
		other, err := owner.TryLock(t.Context(), l.Key())
		if err == nil {
			_ = other.Unlock()
		}
		return errors.Is(err, ErrLocked) && l.Context().Err() == nil
	}
}

// TestForgedMessages sends messages by PUBLISH that only the arbiter should send. No node believes
// it.
func TestForgedMessages(t *testing.T) {
	takes.Seconds(t)
	s := redistest.Start(t)
	lie := liar{t, s.Client(t)}
	arbiter := redisarbiter.New(s.Client(t), &redisarbiter.Options{ColdStart: true})
	b := enter(t, arbiter, small())
	await.Until(t, "b owns all", func() bool { return b.Stats().Owned == 61 })
	var before []Lock // a will import some of them
	for n := range 40 {
		l, err := b.Lock(t.Context(), fmt.Sprint("before", n))
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, l)
	}
	a := enter(t, arbiter, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}

	t.Run("a hold that was granted is freed", func(t *testing.T) {
		l := lockOf(t, a, b, "granted")
		id, imported := holderOf(a, l.Key())
		if id.Session == "" || imported {
			t.Fatal(id, imported)
		}
		lie.freed(a, l.Key(), id)
		stays(t, "the key is b's", refusedAt(t, a, l))
	})
	t.Run("a hold that was imported is freed", func(t *testing.T) {
		n := 0
		for _, l := range before {
			if id, imported := holderOf(a, l.Key()); imported {
				n++
				lie.freed(a, l.Key(), id)
				stays(t, "the key is b's", refusedAt(t, a, l))
			}
		}
		if n == 0 {
			t.Error("a has imported nothing")
		}
	})
	t.Run("a hold is freed whose partition was given back", func(t *testing.T) {
		l := lockOf(t, a, b, "demoted")
		id, _ := holderOf(a, l.Key())
		p := a.partitionOf(l.Key())
		p.giveUp(0, time.Hour)
		await.Until(t, "the partition is given back", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.Phase() != lease.Owned && p.Phase() != lease.Demoting
		})
		lie.freed(a, l.Key(), id)
		stays(t, "the row is there", func() bool {
			at := a.remote.ns.Verify(t.Context(), []fallback.Read{{Partition: p.Number(), Keys: []string{l.Key()}}})[0]
			return at.Err == nil && at.Rows[0].Identity == id
		})
	})
	t.Run("a partition is revoked", func(t *testing.T) {
		p := a.partitionOf(lockOf(t, a, b, "revoked").Key())
		epoch := func() uint32 {
			p.mu.Lock()
			defer p.mu.Unlock()
			e, _ := p.Serving()
			return e
		}
		first := epoch()
		lie.say(a, fmt.Sprintf("r%d %d", p.Number(), first))
		stays(t, "the partition is a's", func() bool { return epoch() == first })
		if err := b.remote.ns.Revoke(t.Context(), p.Number(), first, "b"); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the partition is given back", func() bool { return epoch() != first })
	})
	for _, l := range before {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A request that is at an owner waits for no message of the arbiter's. Its row may be there before
// its grant is, and is not removed.
func TestAForgedWake(t *testing.T) {
	t.Parallel()
	m := fallback.NewMemory()
	removed := newRemovals(m)
	a, b := enter(t, m, small()), enter(t, removed, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	l := lockOf(t, a, a, "woken")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l, err := b.Lock(ctx, l.Key()); err == nil {
			_ = l.Unlock()
		}
	}()
	p := b.partitionOf(l.Key())
	request := func() fallback.Identity {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, id := p.RequestOf(l.Key())
		return id
	}
	var id fallback.Identity
	for said := false; !said; said = request() == id { // else b has made its request anew meanwhile, and the message was about the one before
		await.Until(t, "b asks a", func() bool { id = request(); return id.Request > 0 })
		b.handle(b.sessions.current(), fallback.Message{Kind: fallback.Wake, Key: l.Key(), Request: id.Request})
	}
	stays(t, "b keeps its request", func() bool { return !removed.has(id) })
	cancel()
	<-done
}

// A message about a request that has not been made yet removes no row: a release is sent later, and
// again if it fails, so it could come after the row of that request.
func TestAForgedMessageAboutARequestToCome(t *testing.T) {
	t.Parallel()
	removed := newRemovals(fallback.NewMemory())
	o := small()
	o.Cluster = nil
	c := enter(t, removed, o)
	s := c.sessions.current()
	lie := func(kind fallback.MessageKind) (id fallback.Identity) {
		id = fallback.Identity{Session: s.ID, Request: c.callers.requests.Load() + 1}
		c.handle(s, fallback.Message{Kind: kind, Key: "k", Request: id.Request})
		return id
	}
	for _, kind := range []fallback.MessageKind{fallback.Wake, fallback.Ask} {
		id := lie(kind)
		l, err := c.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		stays(t, "the row of the lock is not removed", func() bool { return !removed.has(id) })
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		await.Until(t, "the lock's own release", func() bool { return removed.has(id) })
	}
}

// removals is an arbiter that notes which rows a node wants to be removed.
type removals struct {
	*unlocker
	mu  sync.Mutex // protects ids
	ids map[fallback.Identity]bool
}

func newRemovals(a fallback.Arbiter) *removals {
	r := &removals{ids: make(map[fallback.Identity]bool)}
	r.unlocker = &unlocker{a, func(releases []fallback.Release) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, x := range releases {
			r.ids[x.Identity] = true
		}
		return nil
	}}
	return r
}

func (r *removals) has(id fallback.Identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

// unlocker is an arbiter whose releases are seen before it gets them. It does not get them if see
// returns an error.
type unlocker struct {
	fallback.Arbiter
	see func(releases []fallback.Release) error
}

type unlockerSpace struct {
	fallback.Namespace
	a *unlocker
}

func (a *unlocker) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &unlockerSpace{n, a}, err
}

func (n *unlockerSpace) Unlock(ctx context.Context, releases []fallback.Release) []error {
	if err := n.a.see(releases); err != nil {
		return slices.Repeat([]error{err}, len(releases))
	}
	return n.Namespace.Unlock(ctx, releases)
}

// whisperer is an arbiter of whose rows a node is told, while it acquires them, that they were
// released.
type whisperer struct {
	fallback.Arbiter
	say func(number uint32, rows map[string]fallback.Row)
}

type whispers struct {
	fallback.Namespace
	w *whisperer
}

func (w *whisperer) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := w.Arbiter.Attach(ctx, s)
	return &whispers{n, w}, err
}

func (n *whispers) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	a, err := n.Namespace.Acquire(ctx, p, me, x)
	n.w.say(p, a.Rows)
	return a, err
}

// The rows that Acquire answers with are respected, whatever a message says of them meanwhile.
func TestAForgedReleaseDuringAcquire(t *testing.T) {
	t.Parallel()
	m := fallback.NewMemory()
	b := enter(t, m, small())
	await.Until(t, "b owns all", func() bool { return b.Stats().Owned == 61 })
	var held []Lock
	for n := range 40 {
		l, err := b.Lock(t.Context(), fmt.Sprint("held", n))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	ready := make(chan *Coordinator, 1)
	var a *Coordinator
	w := &whisperer{Arbiter: m, say: func(_ uint32, rows map[string]fallback.Row) {
		c := <-ready
		ready <- c
		for key, r := range rows {
			c.handle(c.sessions.current(), fallback.Message{Kind: fallback.Freed, Key: key, Session: r.Session, Request: r.Request})
		}
	}}
	a = enter(t, w, small())
	ready <- a
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range held {
		if id, _ := holderOf(a, l.Key()); id.Session != "" {
			n++
		}
		if other, err := a.TryLock(t.Context(), l.Key()); err == nil && l.Context().Err() == nil {
			t.Errorf("%q has two holders", l.Key())
			_ = other.Unlock()
		}
		_ = l.Unlock()
	}
	if n == 0 {
		t.Error("a has imported nothing")
	}
}

// A grant is given back if its token is not above the known ones of the partition, or is years
// ahead. No token of it is handed out. The next one is taken.
func TestAGrantOfAnImpossibleToken(t *testing.T) {
	t.Parallel()
	m := fallback.NewMemory()
	a, b := enter(t, m, small()), enter(t, m, small())
	if err := a.Settled(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	first := lockOf(t, a, b, "k")
	key, last := first.Key(), fallback.Token(first.Fence())
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "b has given the key back", func() bool { id, _ := holderOf(a, key); return id.Session == "" })
	p := b.partitionOf(key)
	year := uint32(fallback.EpochAt(time.Now().AddDate(2, 0, 0)))
	for name, token := range map[string]fallback.Token{
		"the last one": last, "of an earlier epoch": fallback.MakeToken(last.Epoch()-1, 1), "of the block before": last + 1,
		"years ahead": fallback.MakeToken(year, 1), "of the last epoch": fallback.MakeToken(fallback.MaxEpoch, 1),
	} {
		mine, err := a.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan Lock, 1)
		go func() {
			l, err := b.Lock(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		var to *link
		var id fallback.Identity
		await.Until(t, "b asks a", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			var at lease.Link
			at, id = p.RequestOf(key)
			to, _ = at.(*link)
			return to != nil
		})
		f := peer.Frame{
			Kind: peer.Grant, Partition: p.Number(), Key: []byte(key), Request: id.Request, Session: []byte(id.Session),
			Epoch: token.Epoch(), Token: uint64(token), Count: 1, Ping: 1, Left: 1000,
		}
		to.mu.Lock()
		f.Ping = to.beat.pings
		to.mu.Unlock()
		b.cluster.Frame(to.s, &f)
		select {
		case l := <-got:
			t.Fatalf("%s: b holds the key with token %v, after %v", name, fallback.Token(l.Fence()), last)
		case <-time.After(20 * time.Millisecond):
		}
		after := fallback.Token(mine.Fence())
		if err := mine.Unlock(); err != nil {
			t.Fatal(err)
		}
		l := <-got
		if last = fallback.Token(l.Fence()); last <= after {
			t.Errorf("%s: then token %v after %v", name, last, after)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		await.Until(t, "b has given the key back", func() bool { id, _ := holderOf(a, key); return id.Session == "" })
	}
}

// Forged messages ask for holds that this process has not got. They do not fill its memory while
// the arbiter takes no releases, whether it does not answer or refuses them. The process's own
// releases always count.
func TestHeard_ReleasesAreBounded(t *testing.T) {
	for name, refuses := range map[string]bool{"silent": false, "refuses": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			end := sync.OnceFunc(func() { close(over) })
			defer end()
			c := enter(t, &unlocker{fallback.NewMemory(), func([]fallback.Release) error {
				select {
				case <-over:
					return nil
				default:
				}
				if refuses {
					return errors.New("not now")
				}
				<-over
				return nil
			}}, &Options{SessionTTL: time.Minute, Grace: 80 * time.Second, RetryEvery: 20 * time.Millisecond})
			l, err := c.Lock(t.Context(), "mine") // the first request
			if err != nil {
				t.Fatal(err)
			}
			r := &c.debts.releases
			undone := func() int {
				r.mu.Lock()
				defer r.mu.Unlock()
				return max(len(r.heard), len(r.pending)+len(r.failed))
			}
			s := c.sessions.current()
			most := maxHeard
			if refuses {
				most = 2 * maxHeard // as many that have failed
			}
			for i := range 2000 {
				c.handle(s, fallback.Message{Kind: fallback.Wake, Key: fmt.Sprint("w", i), Request: 1})
				c.handle(s, fallback.Message{Kind: fallback.Ask, Key: fmt.Sprint("a", i), Request: 1})
				if n := undone(); n > most {
					t.Fatalf("%d releases are to be sent, want %d at most", n, most)
				}
			}
			if n := undone(); n < maxHeard {
				t.Errorf("%d releases are to be sent, want %d at least", n, maxHeard)
			}
			r.add(c.parts[0].ReleaseOf("k", fallback.Identity{Session: s.ID, Request: 1}))
			if n := undone(); n > most+1 {
				t.Errorf("with one of its own %d are to be sent", n)
			}
			end()
			await.Until(t, "all are sent", func() bool { return undone() == 0 })
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
