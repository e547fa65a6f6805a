package fallback_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// world is one partition and the nodes that use it, as honest as the protocol wants them, on
// servers that fail. All happens one after another, and by chance. The invariants are checked at
// each step.
type world struct {
	t    *testing.T
	rand *rand.Rand
	p    *fallback.Partition
	now  fallback.Moment

	alive    []string
	dead     map[string]bool
	requests uint64
	pending  map[string]fallback.Identity // by session and key
	issued   map[fallback.Identity]string // every request there ever was, and its key
	holds    map[string]*hold             // by key: valid holds. I1 says that one is enough
	serving  *service

	copies []*fallback.Partition // of replicas that stopped following
	inStep bool                  // all have seen the present server
	calm   bool                  // no more faults

	late []func() // messages that may arrive once more, at any time

	tokens map[string]fallback.Token // by key: the highest that was handed out
	owners map[uint32]string         // by epoch: the session that Acquire gave it to
}

// hold is a hold as its session believes to have it.
type hold struct {
	fallback.Row
	epoch     uint32 // of the owner that granted it; 0: the arbiter did
	confirmed bool   // its row is
}

// service is an owner at work.
type service struct {
	session string
	epoch   uint32
	seq     uint32
	table   map[string]fallback.Row
}

var worldKeys = []string{"k", "l"}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 0)), p: new(fallback.Partition), inStep: true,
		dead: make(map[string]bool), pending: make(map[string]fallback.Identity), issued: make(map[fallback.Identity]string),
		holds: make(map[string]*hold), tokens: make(map[string]fallback.Token), owners: make(map[uint32]string),
	}
	w.now = fallback.Moment{Now: 1000 * (fallback.EpochZero + 1000), Server: "server 0", Grace: quiet.Milliseconds()}
	w.p.Format(w.now, 0)
	for i := range 3 {
		w.alive = append(w.alive, fmt.Sprint("s", i))
	}
	return w
}

func (w *world) oneIn(n int) bool          { return w.rand.IntN(n) == 0 }
func pick[T any](w *world, from []T) (x T) { return from[w.rand.IntN(len(from))] }

// change runs a transition, sometimes twice, as client libraries do: the second time must change
// nothing. It checks the invariants of all transitions.
func (w *world) change(what string, me fallback.Identity, f func()) {
	w.t.Helper()
	w.p.Load(w.now) // Grace begins or ends: f did not do this
	before := w.p.Clone()
	f()
	w.checkQueues(what, before, me)
	if before.GraceEnd != 0 {
		switch what {
		case "lock", "acquire", "demote", "demote-unserved":
			if !same(before, w.p) {
				w.t.Fatalf("I7: %s in Grace made %+v of %+v", what, w.p, before)
			}
		}
	}
	if w.p.Owner != "" && w.owners[w.p.Epoch] != w.p.Owner {
		w.t.Fatalf("I6: %s: the record names %s at epoch %d, which is %q's", what, w.p.Owner, w.p.Epoch, w.owners[w.p.Epoch])
	}
	if w.oneIn(4) {
		once := w.p.Clone()
		f()
		if !same(once, w.p) {
			w.t.Fatalf("%s, repeated, made %+v of %+v", what, w.p, once)
		}
	}
}

func same(a, b *fallback.Partition) bool {
	x, y := *a, *b
	x.Rows, y.Rows, x.Queues, y.Queues = nil, nil, nil, nil
	return reflect.DeepEqual(x, y) && maps.Equal(a.Rows, b.Rows) &&
		maps.EqualFunc(a.Queues, b.Queues, slices.Equal)
}

// checkQueues: first come, first served. A queue only loses members, or gets one at its end; and
// only the first may have been promised anything.
func (w *world) checkQueues(what string, before *fallback.Partition, me fallback.Identity) {
	w.t.Helper()
	for key, q := range w.p.Queues {
		rest := before.Queues[key]
		for i, x := range q {
			if i > 0 && x.Promised != 0 {
				w.t.Fatalf("%s: number %d of %v was promised the key", what, i, q)
			}
			at := slices.IndexFunc(rest, func(y fallback.Waiter) bool { return x.Identity == y.Identity })
			if at >= 0 {
				rest = rest[at+1:]
			} else if i != len(q)-1 || x.Identity != me {
				w.t.Fatalf("%s by %v: queue %v became %v", what, me, before.Queues[key], q)
			}
		}
	}
}

// again remembers a message that may arrive again, late. Its answer is not heard.
func (w *world) again(f func()) {
	w.late = append(w.late, f)
	w.late = w.late[max(0, len(w.late)-20):]
}

// granted checks a token that was handed out to a hold that is valid from now on.
func (w *world) granted(key string, h *hold, block uint32, before bool) {
	w.t.Helper()
	if other := w.holds[key]; other != nil {
		w.t.Fatalf("I1: %q is held by %+v and granted to %+v; %+v", key, other, h, w.p)
	}
	w.holds[key] = h
	if !before {
		w.handedOut(key, h.Token, block)
	}
}

func (w *world) handedOut(key string, token fallback.Token, block uint32) {
	w.t.Helper()
	if token <= w.tokens[key] {
		w.t.Fatalf("I2: token %v of %q after %v", token, key, w.tokens[key])
	}
	w.tokens[key] = token + fallback.Token(block-1)
}

// request is the session's request for the key: the one that is under way, or a new one.
func (w *world) request(session, key string) fallback.Identity {
	me, ok := w.pending[session+key]
	if !ok {
		w.requests++
		me = id(session, w.requests)
		w.pending[session+key], w.issued[me] = me, key
	}
	return me
}

// has reports whether a session has the hold of that identity, or still wants it (rule 13).
func (w *world) has(key string, who fallback.Identity) bool {
	h := w.holds[key]
	return h != nil && h.Identity == who || w.pending[who.Session+key] == who
}

func (w *world) lock(session, key string) {
	if w.serving != nil && w.serving.session == session {
		return // it would ask itself
	}
	q := fallback.LockRequest{Key: key, Me: w.request(session, key), Block: 1 + w.rand.Uint32N(3), Wait: !w.oneIn(4)}
	if w.oneIn(30) {
		q.Block = 1 << 31 // seq runs out soon
	}
	if r, held := w.p.Rows[key]; held && w.dead[r.Session] {
		q.Evict = r.Identity
	}
	late := w.p.Rows[key].Identity == q.Me // an unheard message got it
	var a, last fallback.LockAnswer
	w.change("lock", q.Me, func() {
		a, last = w.p.Lock(w.now, q, nil), a
		if last.Verdict == fallback.Granted && (a.Verdict != fallback.Granted || a.Token != last.Token) {
			w.t.Fatalf("lock, repeated: %+v after %+v", a, last)
		}
	})
	w.again(func() {
		w.change("lock", q.Me, func() {
			held := w.p.Rows[key].Identity == q.Me
			if a := w.p.Lock(w.now, q, nil); a.Verdict == fallback.Granted && !held {
				w.handedOut(key, a.Token, q.Block)
			}
		})
	})
	switch a.Verdict {
	case fallback.Granted:
		if h := w.holds[key]; h == nil || h.Identity != q.Me {
			delete(w.pending, session+key)
			w.granted(key, &hold{Row: fallback.Row{Identity: q.Me, Token: a.Token}, confirmed: true}, q.Block, late)
		}
	case fallback.Held:
		if !w.has(key, a.Holder.Identity) && !w.dead[a.Holder.Session] {
			w.unlock(key, a.Holder.Identity) // doubt
		}
	case fallback.Owned:
		w.grant(session, key)
	}
}

// grant asks the owner.
func (w *world) grant(session, key string) {
	s := w.serving
	if s == nil || w.p.Owner != s.session || w.p.Epoch != s.epoch || !w.inStep {
		return
	}
	if r, held := s.table[key]; held {
		if w.has(key, r.Identity) {
			return
		}
		// Dead, or in doubt. The rows are read first (rule 8).
		if now := w.p.Rows[key]; now != (fallback.Row{}) && now != r && w.has(key, now.Identity) {
			s.table[key] = now
			return
		}
		w.unlock(key, r.Identity)
		delete(s.table, key)
	}
	me := w.request(session, key)
	delete(w.pending, session+key)
	s.seq++
	h := &hold{Row: fallback.Row{Identity: me, Token: fallback.MakeToken(s.epoch, s.seq)}, epoch: s.epoch}
	s.table[key] = h.Row
	w.granted(key, h, 1, false)
}

func (w *world) unlock(key string, who fallback.Identity) {
	w.again(func() {
		w.change("unlock", fallback.Identity{}, func() { w.p.Unlock(w.now, key, who, nil) })
	})
	w.change("unlock", fallback.Identity{}, func() {
		w.p.Unlock(w.now, key, who, nil)
		if w.p.Rows[key].Identity == who {
			w.t.Fatalf("unlock of %v left its row", who)
		}
	})
}

func (w *world) release(key string) {
	h := w.holds[key]
	if h == nil {
		return
	}
	delete(w.holds, key)
	if s := w.serving; s != nil && s.table[key].Identity == h.Identity {
		delete(s.table, key)
	}
	w.unlock(key, h.Identity)
}

// giveUp cancels a wait at the authority (rule 11).
func (w *world) giveUp(session, key string) {
	if me, ok := w.pending[session+key]; ok {
		delete(w.pending, session+key)
		w.unlock(key, me)
	}
}

func (w *world) acquire(session string) {
	r := w.p.Load(w.now)
	x := fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: w.dead[r.Owner]}
	if !w.calm && w.oneIn(10) {
		x.Epoch-- // its view is out of date
	}
	if w.serving != nil && w.serving.session == session {
		return
	}
	var a fallback.Acquisition
	send := func() {
		a = w.p.Acquire(w.now, session, x)
		if other := w.owners[a.Record.Epoch]; a.Verdict == fallback.Granted && other != "" && other != session {
			w.t.Fatalf("I6: epoch %d was %s's and is given to %s", a.Record.Epoch, other, session)
		}
		if a.Verdict == fallback.Granted {
			w.owners[a.Record.Epoch] = session
		}
	}
	w.again(func() { w.change("acquire", fallback.Identity{}, send) })
	w.change("acquire", fallback.Identity{}, send)
	if a.Verdict != fallback.Granted || r.Owner == session {
		return
	}
	if !w.calm && w.oneIn(8) {
		return // the answer was lost: the record names one that does not serve
	}
	w.serving = &service{session: session, epoch: a.Record.Epoch, table: a.Rows}
	if w.serving.table == nil {
		w.serving.table = make(map[string]fallback.Row)
	}
}

// demote: from sending it, nothing is granted at that epoch, whatever the answer.
func (w *world) demote() {
	s := w.serving
	if s == nil {
		return
	}
	w.serving = nil
	send := func() { w.p.Demote(w.now, s.session, s.epoch, s.table) }
	w.again(func() { w.change("demote", fallback.Identity{}, send) })
	w.change("demote", fallback.Identity{}, send)
	w.adopt(s.epoch)
}

func (w *world) demoteUnserved() {
	if s := w.serving; w.p.Owner == "" || w.dead[w.p.Owner] || s != nil && s.session == w.p.Owner && s.epoch == w.p.Epoch {
		return
	}
	session, epoch := w.p.Owner, w.p.Epoch
	send := func() { w.p.DemoteUnserved(w.now, session, epoch) }
	w.again(func() { w.change("demote-unserved", fallback.Identity{}, send) })
	w.change("demote-unserved", fallback.Identity{}, send)
}

// adopt: the owner of the epoch fell silent, so the holders of its grants go to the arbiter.
func (w *world) adopt(epoch uint32) {
	for key, h := range w.holds {
		if h.confirmed || h.epoch != epoch {
			continue
		}
		w.adoptOne(key)
		if !h.confirmed {
			delete(w.holds, key) // its context is cancelled
		}
	}
}

// adoptOne: a holder may also be wrong about the owner's silence.
func (w *world) adoptOne(key string) {
	if h := w.holds[key]; h != nil && !h.confirmed {
		w.again(func() { w.change("adopt", fallback.Identity{}, func() { w.p.Adopt(w.now, key, h.Row, h.epoch) }) })
		w.change("adopt", fallback.Identity{}, func() { h.confirmed = w.p.Adopt(w.now, key, h.Row, h.epoch) == fallback.Granted })
	}
}

// kill: a node dies, and its holds lapse before the arbiter says so.
func (w *world) kill(session string) {
	w.dead[session] = true
	for key, h := range w.holds {
		if h.Session == session {
			delete(w.holds, key)
		}
	}
	for _, key := range worldKeys {
		delete(w.pending, session+key)
	}
	if s := w.serving; s != nil && s.session == session {
		w.serving = nil
		w.adopt(s.epoch)
	}
	at := slices.Index(w.alive, session)
	w.alive[at] = fmt.Sprint("s", len(w.dead)+2)
}

// crash: another server takes over, with all data, those of some time ago, or none.
func (w *world) crash() {
	w.now.Server = fmt.Sprint("server ", w.requests, len(w.dead), w.now.Now)
	switch w.rand.IntN(3) {
	case 0:
		w.p = new(fallback.Partition)
	case 1:
		if len(w.copies) > 0 {
			w.p = pick(w, w.copies).Clone()
		}
	}
	// The clock is the only witness of lost epochs. More of them than seconds went by is more than
	// it can tell.
	for e := range w.owners {
		w.now.Now = max(w.now.Now, 1000*(fallback.EpochZero+int64(e)+1))
	}
	for _, token := range w.tokens {
		w.now.Now = max(w.now.Now, 1000*(fallback.EpochZero+int64(token.Epoch())+1))
	}
	w.inStep = false
	w.p.Load(w.now)
}
