package arbitertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var waitingTests = []test{
	{"a release wakes one waiter, the first, in the order of arrival", firstComeFirstServed},
	{"a waiter that asks again keeps its place", keepsPlace},
	{"who does not wait is not woken", notWaiting},
	{"a free key is kept for the waiter that was woken", promised},
	{"a waiter that was woken and does not come loses its turn", lapsed},
	{"a waiter that does not come gives way to the next", lapsedNext},
	{"Unlock takes a waiter out of the queue", givesUp},
	{"a waiter that was woken and gives up passes its turn on", passesOn},
	{"Unlock repeated wakes nobody twice", wakesOnce},
	{"an eviction does not overtake the queue", evictionQueues},
	{"a session that is gone waits no more", goneQueues},
	{"waiters outlive an ownership", acrossOwnership},
	{"the holder is asked", asked},
	{"the queue is listed in the order of arrival", queueListed},
	{"messages come until stop, to their session only", listening},
	{"what is announced comes to all sessions", announced},
	{"a crowd has one holder per key at a time, and all get their turns", crowd},
}

// inbox has the messages of a session.
type inbox struct {
	s       *space
	session string
	ch      chan fallback.Message
	stop    func()
	fences  uint64
}

// listen skips the test if the namespace is mute, and no [fallback.Courier].
func (s *space) listen(session string) *inbox {
	s.t.Helper()
	in := &inbox{s: s, session: session, ch: make(chan fallback.Message, 1024)}
	handle := func(m fallback.Message) { in.ch <- m }
	_, courier := s.Namespace.(fallback.Courier)
	switch {
	case !mute(s.Namespace):
		in.stop = must(s.Listen(s.ctx, session, handle))(s)
	case courier:
		in.stop = s.carried.listen(session, handle)
	default:
		s.t.Skip("the namespace is mute")
	}
	s.t.Cleanup(in.stop)
	return in
}

func (in *inbox) next() fallback.Message {
	in.s.t.Helper()
	select {
	case m := <-in.ch:
		return m
	case <-time.After(patience):
		in.s.t.Fatalf("no message for %s within %v", in.session, patience)
		return fallback.Message{}
	}
}

// messages returns the messages sent to the session since the last call. Messages come in order, so
// it has one more sent: those that have not come before that one never will. Partition 0 must be
// Shared.
func (in *inbox) messages() (all []fallback.Message) {
	in.s.t.Helper()
	in.fences++
	holder, key := id(in.session, 1<<60+in.fences), fmt.Sprint("fence ", in.fences)
	in.s.take(holder, key)
	defer in.s.unlock(holder, key)
	in.s.try(id("fence", in.fences), key)
	for {
		m := in.next()
		if m.Kind == fallback.Ask && m.Key == key {
			return all
		}
		all = append(all, m)
	}
}

func wake(key string, request uint64) []fallback.Message {
	return []fallback.Message{{Kind: fallback.Wake, Key: key, Request: request}}
}

func firstComeFirstServed(s *space) {
	holder := s.take(id("alice", 1), "k").Identity
	const n = 12 // from 9 to 10, an order of texts is another one
	var in [n]*inbox
	names := [n]string{"h", "b", "z", "a", "c", "y", "d", "x", "e", "w", "10", "9"}
	for i, name := range names {
		in[i] = s.listen(name)
		a := s.wait(id(name, uint64(n-i)), "k")
		want(s, "verdict", a.Verdict, fallback.Held)
	}
	for i, name := range names {
		s.unlock(holder, "k")
		for j := range in {
			var sent []fallback.Message
			if i == j {
				sent = wake("k", uint64(n-i))
			}
			want(s, fmt.Sprintf("release %d: messages for waiter %d", i, j), in[j].messages(), sent)
		}
		holder = id(name, uint64(n-i))
		a := s.wait(holder, "k")
		want(s, "verdict", a.Verdict, fallback.Granted)
		want(s, "contended", a.Contended, i < n-1)
	}
}

func queueListed(s *space) {
	lister, ok := s.Namespace.(fallback.WaiterLister)
	if !ok {
		s.t.Skip("it is no fallback.WaiterLister")
	}
	s.take(id("alice", 1), "k")
	var queue []fallback.Release
	for i, name := range []string{"h", "b", "z", "10", "9"} {
		r := fallback.Release{Key: "k", Identity: id(name, uint64(i+1))}
		if i == 3 {
			r.Key = fallback.SharedName("k", "10")
		}
		queue = append(queue, r)
		s.wait(r.Identity, r.Key)
	}
	want(s, "waiters", must(lister.Waiters(s.ctx, 0, "k", 10))(s), queue)
	want(s, "first waiters", must(lister.Waiters(s.ctx, 0, "k", 2))(s), queue[:2])
	want(s, "no waiters", len(must(lister.Waiters(s.ctx, 0, "k", 0))(s)), 0)
	want(s, "waiters of another key", len(must(lister.Waiters(s.ctx, 0, "l", 10))(s)), 0)
	// It gives up while the key is held: an Unlock of a free key drops waiters with a promise that
	// has lapsed, as the first one's has on a slow machine.
	s.unlock(queue[1].Identity, "k")
	s.unlock(id("alice", 1), "k") // the first is woken, and stays
	want(s, "waiters", must(lister.Waiters(s.ctx, 0, "k", 10))(s), append(queue[:1:1], queue[2:]...))
}

func keepsPlace(s *space) {
	s.take(id("alice", 1), "k")
	first, second := s.listen("first"), s.listen("second")
	s.wait(id("first", 1), "k")
	s.wait(id("second", 1), "k")
	s.wait(id("first", 1), "k") // its timer, or a retry of the client library
	s.unlock(id("alice", 1), "k")
	want(s, "messages for the first", first.messages(), wake("k", 1))
	want(s, "messages for the second", second.messages(), nil)
}

func notWaiting(s *space) {
	s.take(id("alice", 1), "k")
	in := s.listen("bob")
	s.try(id("bob", 1), "k")
	s.unlock(id("alice", 1), "k")
	want(s, "messages", in.messages(), nil)
	a := s.try(id("carol", 1), "k") // the key is kept for no waiter
	want(s, "verdict", a.Verdict, fallback.Granted)
	want(s, "contended", a.Contended, false)
}

// The promise lapses by itself, on a slow machine even before the test looks. So it tries until it
// does not.
func promised(s *space) {
	in := s.listen("waiter")
	for i := range uint64(1000) {
		key := fmt.Sprint("key ", i)
		s.take(id("alice", i), key)
		s.wait(id("waiter", i), key)
		begin := time.Now()
		s.unlock(id("alice", i), key)
		for range 2 {
			a := s.try(id("newcomer", i), key)
			late := time.Since(begin) > fallback.PromiseFor/2
			if late {
				break
			}
			want(s, "verdict for a newcomer", a.Verdict, fallback.Promised)
			if a.Retry <= 0 || a.Retry > fallback.PromiseFor {
				s.t.Errorf("retry in %v, want up to %v", a.Retry, fallback.PromiseFor)
			}
		}
		a := s.wait(id("waiter", i), key)
		if time.Since(begin) > fallback.PromiseFor/2 {
			continue
		}
		want(s, "verdict for the waiter", a.Verdict, fallback.Granted)
		want(s, "contended by one that does not wait", a.Contended, false)
		for j := range i {
			want(s, "late message", in.next().Request, j)
		}
		want(s, "messages", in.messages(), wake(key, i))
		return
	}
	s.t.Error("never within half a promise")
}

func lapsed(s *space) {
	s.take(id("alice", 1), "k")
	in := s.listen("waiter")
	s.wait(id("waiter", 1), "k")
	s.unlock(id("alice", 1), "k") // wakes the waiter, which is not there any more
	eventually(s, "the promise lapses", func() bool { return s.wait(id("newcomer", 1), "k").Verdict == fallback.Granted })
	want(s, "messages", in.messages(), wake("k", 1))

	// It comes after all: as the last.
	a := s.wait(id("waiter", 1), "k")
	want(s, "verdict", a.Verdict, fallback.Held)
	want(s, "holder", a.Holder.Identity, id("newcomer", 1))
}

func lapsedNext(s *space) {
	s.take(id("alice", 1), "k")
	first, second := s.listen("first"), s.listen("second")
	s.wait(id("first", 1), "k")
	s.wait(id("second", 1), "k")
	s.unlock(id("alice", 1), "k")
	// Any caller that asks makes the promise pass on.
	eventually(s, "the second is woken", func() bool {
		s.try(id("passer-by", 1), "k")
		s.unlock(id("passer-by", 1), "k") // on a slow machine even the second promise may have lapsed
		return len(second.ch) > 0
	})
	want(s, "messages for the first", first.messages(), wake("k", 1))
	want(s, "message for the second", second.next(), wake("k", 1)[0])
	eventually(s, "the second gets the key", func() bool { return s.wait(id("second", 1), "k").Verdict == fallback.Granted })
}

func givesUp(s *space) {
	s.take(id("alice", 1), "k")
	first, second := s.listen("first"), s.listen("second")
	s.wait(id("first", 1), "k")
	s.wait(id("second", 1), "k")
	for range 2 {
		s.unlock(id("first", 1), "k")
	}
	want(s, "holder", s.rows("k")[0].Identity, id("alice", 1))
	want(s, "contended", s.try(id("alice", 1), "k").Contended, true)
	s.unlock(id("alice", 1), "k")
	want(s, "messages for the first", first.messages(), nil)
	want(s, "messages for the second", second.messages(), wake("k", 1))

	s.unlock(id("second", 1), "k")
	want(s, "contended, when all gave up", s.try(id("bob", 1), "k"), fallback.LockAnswer{
		Verdict: fallback.Granted, Record: s.load(), Token: s.rows("k")[0].Token,
	})
}

func passesOn(s *space) {
	s.take(id("alice", 1), "k")
	first, second := s.listen("first"), s.listen("second")
	s.wait(id("first", 1), "k")
	s.wait(id("second", 1), "k")
	s.unlock(id("alice", 1), "k")
	want(s, "messages for the first", first.messages(), wake("k", 1))
	s.unlock(id("first", 1), "k")
	want(s, "messages for the second", second.messages(), wake("k", 1))
	want(s, "verdict", s.wait(id("second", 1), "k").Verdict, fallback.Granted)
}

// A retry of the same release, while the promise holds. On a slow machine the promise may lapse
// before; then the next one is woken, rightly.
func wakesOnce(s *space) {
	first, second := s.listen("first"), s.listen("second")
	for i := range uint64(1000) {
		key := fmt.Sprint("key ", i)
		s.take(id("alice", i), key)
		s.wait(id("first", i), key)
		s.wait(id("second", i), key)
		begin := time.Now()
		for range 3 {
			s.unlock(id("alice", i), key)
		}
		if time.Since(begin) > fallback.PromiseFor/2 {
			first.messages()
			second.messages()
			continue
		}
		want(s, "messages for the first", first.messages(), wake(key, i))
		want(s, "messages for the second", second.messages(), nil)
		return
	}
	s.t.Error("never within half a promise")
}

func evictionQueues(s *space) {
	s.take(id("ghost", 1), "k")
	in := s.listen("waiter")
	s.wait(id("waiter", 1), "k")
	a := s.ask(fallback.LockRequest{Key: "k", Me: id("newcomer", 1), Evict: id("ghost", 1), Wait: true})
	want(s, "verdict", a.Verdict, fallback.Promised)
	want(s, "messages", in.messages(), wake("k", 1))
	want(s, "row", s.rows("k")[0], fallback.Row{})
	eventually(s, "the waiter gets it", func() bool { return s.wait(id("waiter", 1), "k").Verdict == fallback.Granted })
}

func goneQueues(s *space) {
	s.take(id("alice", 1), "k")
	for n := range uint64(3) {
		s.wait(id("ghost", 1+n), "k")
	}
	in := s.listen("waiter")
	s.wait(id("waiter", 1), "k")
	s.unlock(id("alice", 1), "k")
	a := s.ask(fallback.LockRequest{Key: "k", Me: id("newcomer", 1), Gone: "ghost", Wait: true})
	want(s, "verdict", a.Verdict, fallback.Promised)
	want(s, "whom it is for", a.Holder.Identity, id("waiter", 1))
	want(s, "messages", in.messages(), wake("k", 1))
}

func acrossOwnership(s *space) {
	s.take(id("alice", 1), "k")
	in := s.listen("waiter")
	s.wait(id("waiter", 1), "k")
	epoch := s.own("bob")
	s.unlock(id("alice", 1), "k") // while it is Owned: the owner sees to the key now
	want(s, "row", s.rows("k")[0], fallback.Row{})
	must(s.Demote(s.ctx, 0, "bob", epoch, map[string]fallback.Row{"k": {Identity: id("carol", 1), Token: fallback.MakeToken(epoch, 5)}}))(s)
	want(s, "messages", in.messages(), nil)
	s.unlock(id("carol", 1), "k")
	want(s, "messages", in.messages(), wake("k", 1))
}

func asked(s *space) {
	s.take(id("alice", 5), "k")
	in, bystander := s.listen("alice"), s.listen("bob")
	s.wait(id("bob", 1), "k")
	s.try(id("carol", 1), "k")
	s.try(id("alice", 5), "k") // herself
	s.try(id("alice", 6), "k") // another request of hers
	ask := fallback.Message{Kind: fallback.Ask, Key: "k", Request: 5}
	want(s, "messages for the holder", in.messages(), []fallback.Message{ask, ask, ask})
	want(s, "messages for a waiter", bystander.messages(), nil)
}

func listening(s *space) {
	alice, bob := s.listen("alice"), s.listen("bob")
	s.take(id("alice", 1), "k")
	s.try(id("carol", 1), "k")
	want(s, "messages for alice", len(alice.messages()), 1)
	want(s, "messages for bob", bob.messages(), nil)

	bob.stop()
	bob.stop()
	s.take(id("bob", 1), "kk")
	s.try(id("carol", 1), "kk")
	want(s, "messages for alice", alice.messages(), nil)
	want(s, "messages for bob after stop", len(bob.ch), 0)

	bob = s.listen("bob") // again
	s.try(id("carol", 1), "kk")
	want(s, "messages for bob", bob.messages(), []fallback.Message{{Kind: fallback.Ask, Key: "kk", Request: 1}})
}

// crowd is I1 and I2 among many callers that lock, ask twice as client libraries do, and are
// interrupted by owners.
func crowd(s *space) {
	const workers, rounds, keys = 8, 10, 2
	var holders [keys]atomic.Int32
	var tokens [keys]atomic.Uint64
	var wg sync.WaitGroup
	twice := func(f func() error) bool {
		for range 1 + rand.IntN(2) {
			if err := f(); err != nil {
				s.t.Error(err)
				return false
			}
		}
		return true
	}

	work := func(worker int) {
		session := fmt.Sprint("worker-", worker)
		woken := make(chan struct{}, 1)
		stop, err := s.Listen(s.ctx, session, func(m fallback.Message) {
			if m.Kind == fallback.Wake {
				select {
				case woken <- struct{}{}:
				default:
				}
			}
		})
		if err != nil {
			s.t.Error(err)
			return
		}
		defer stop()
		for round := range uint64(rounds) {
			k := rand.IntN(keys)
			key, me := fmt.Sprint("key ", k), id(session, round)
			var a fallback.LockAnswer
			for a.Verdict != fallback.Granted {
				if !twice(func() (err error) {
					a, err = s.Lock(s.ctx, fallback.LockRequest{Key: key, Me: me, Block: 1, Wait: true})
					return err
				}) {
					return
				}
				if a.Verdict != fallback.Granted {
					select {
					case <-woken:
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
			if n := holders[k].Add(1); n != 1 {
				s.t.Errorf("%d holders of %s", n, key)
			}
			if last := tokens[k].Swap(uint64(a.Token)); last >= uint64(a.Token) {
				s.t.Errorf("token %v of %s after %v", a.Token, key, fallback.Token(last))
			}
			time.Sleep(rand.N(200 * time.Microsecond))
			holders[k].Add(-1)
			if !twice(func() error { return errors.Join(s.Unlock(s.ctx, []fallback.Release{{Key: key, Identity: me}})...) }) {
				return
			}
		}
	}
	var done atomic.Bool
	own := func(me string) {
		for !done.Load() {
			var r fallback.Record
			var a fallback.Acquisition
			if !twice(func() (err error) { r, err = s.Load(s.ctx, 0); return err }) ||
				!twice(func() (err error) { a, err = s.Acquire(s.ctx, 0, me, fallback.Expect{Epoch: r.Epoch}); return err }) {
				return
			}
			if a.Verdict == fallback.Granted {
				var d fallback.Demotion
				if !twice(func() (err error) { d, err = s.DemoteUnserved(s.ctx, 0, me, a.Record.Epoch); return err }) {
					return
				}
				want(s, "owner after Demote", d.Record.Owner == me, false)
			}
			time.Sleep(rand.N(20 * time.Millisecond))
		}
	}

	var owners sync.WaitGroup
	for i := range 2 {
		owners.Go(func() { own(fmt.Sprint("owner-", i)) })
	}
	for i := range workers {
		wg.Go(func() { work(i) })
	}
	wg.Wait()
	done.Store(true)
	owners.Wait()
	for k := range keys {
		want(s, "row in the end", s.rows(fmt.Sprint("key ", k))[0], fallback.Row{})
	}
}

// announced is skipped for a Namespace that is not an Announcer.
func announced(s *space) {
	a, ok := s.Namespace.(fallback.Announcer)
	if !ok {
		s.t.Skip("the namespace is not a fallback.Announcer")
	}
	const key = "a key: \x00\xff of any bytes"
	alice, bob := s.listen("alice"), s.listen("bob")
	if err := a.Announce(s.ctx, key); err != nil {
		s.t.Fatal(err)
	}
	for _, in := range []*inbox{alice, bob} {
		for {
			m := in.next()
			if m.Kind == fallback.Gap {
				continue
			}
			want(s, "message", m, fallback.Message{Kind: fallback.Changed, Key: key})
			break
		}
	}
}
