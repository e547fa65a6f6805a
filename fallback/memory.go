package fallback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is the embedded arbiter: the transitions under one mutex, in this process. It is for
// tests, demos and programs of one process; coordinators that share a Memory exclude each other as
// they would over Redis. It starts empty, so the namespaces in it are new and have no Grace at
// first.
//
// Its clock is [time.Now], and it can be made to fail over. So a test can run through a crash of
// the store in a synctest bubble.
type Memory struct {
	mu        sync.Mutex               // protects the fields below, and every namespace's state
	server    int                      // which server process this is; Restore starts another
	name      string                   // of that process
	openings  bool                     // sessions count once all replicas have them
	apart     map[uint32]string        // names of the servers of partitions that failed over by themselves
	ahead     map[string]time.Duration // by how much clocks of servers are, in simulations; never changed, but replaced
	spaces    map[string]*memorySpace
	listeners map[[2]string]*listener // by namespace and session
}

// memorySpace is the state of one namespace.
type memorySpace struct {
	settings Settings
	secrets  string // that the processes know: they outlive the loss of the table
	sessions Sessions
	opened   map[string]Member // the entries that all replicas have, if openings is set
	parts    []Partition
	results  memoryResults
}

// NewMemory returns an empty embedded arbiter.
func NewMemory() *Memory {
	return &Memory{name: memoryName(0), spaces: make(map[string]*memorySpace), listeners: make(map[[2]string]*listener)}
}

// OpenOnReplicas says that in namespaces that are made from now on a session counts once all
// replicas have it. So a state that Restore brings back may lack renewals, but no session. See
// Rounder.Openings.
func (a *Memory) OpenOnReplicas() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.openings = true
}

// mark is the mark of a namespace that is made now.
func (a *Memory) mark(mark string) string {
	if a.openings {
		return MarkOpenings(mark)
	}
	return mark
}

// Attach implements [Arbiter].
func (a *Memory) Attach(_ context.Context, s Settings) (Namespace, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	sp := a.spaces[s.Namespace]
	if sp == nil {
		sp = &memorySpace{settings: s, parts: make([]Partition, s.Partitions)}
		a.spaces[s.Namespace] = sp
		sp.format(a, a.moment(s.Grace), 0, a.mark(s.Mark(true)))
	}
	mark, _ := CutOpenings(sp.sessions.Format)
	if mark == "" { // lost since
		mark = sp.settings.Mark(true)
	}
	needs := s.Needs()
	s, err := s.Adopt(mark, true)
	if err != nil {
		return nil, err
	}
	uses := s.Grace.Milliseconds()
	n := &memory{arbiter: a, space: sp, settings: s, agreement: Agreement{Needs: needs, Uses: uses, Plans: uses}}
	n.length.Store(uses)
	if sp.sessions.Format == "" {
		sp.format(a, n.moment(), s.Grace.Milliseconds(), a.mark(s.Mark(true)))
	}
	return n, nil
}

func (s *memorySpace) format(a *Memory, m Moment, grace int64, mark string) {
	for i := range s.parts {
		s.parts[i].Format(a.of(m, uint32(i)), grace)
	}
	s.sessions.Mark(m, mark, grace)
	if s.secrets == "" {
		s.secrets = NewSecrets()
	}
	s.sessions.FirstSecret(m, s.secrets)
}

func memoryName(server int) string { return "memory-" + strconv.Itoa(server) }

func (a *Memory) moment(grace time.Duration) Moment {
	now := time.Now()
	if a.ahead != nil {
		now = now.Add(a.ahead[a.name])
	}
	return Moment{Now: now.UnixMilli(), Server: a.name, Process: a.name, Grace: grace.Milliseconds()}
}

// Check refuses settings that no arbiter can serve.
func (s Settings) Check() error {
	switch {
	case s.Namespace == "" || len(s.Namespace) > 128:
		return fmt.Errorf("%w: Namespace must have 1 to 128 characters", ErrRefused)
	case strings.ContainsFunc(s.Namespace, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '{' || r == '}' }):
		return fmt.Errorf("%w: Namespace %q has a brace, a space or a control character", ErrRefused, s.Namespace)
	case s.Partitions < 1 || s.Partitions > 65536:
		return fmt.Errorf("%w: Partitions is %d, must be 1 to 65,536", ErrRefused, s.Partitions)
	case s.Grace < time.Millisecond:
		return fmt.Errorf("%w: Grace is %v, must be positive", ErrRefused, s.Grace)
	}
	return nil
}

// memory is a namespace of a Memory, as one process sees it.
type memory struct {
	arbiter  *Memory
	space    *memorySpace
	settings Settings
	length   atomic.Int64 // the Grace that this process uses: agreement.Uses

	// Protected by the arbiter's mutex:
	agreement Agreement
	carrier   Sender
	letters   []letter // of the transition that runs, for carrier
}

func (n *memory) moment() Moment { return n.arbiter.moment(n.Grace()) }

// agree heeds the length of Grace in the answer of the table of sessions. A call is one step, so
// none is on its way.
func (n *memory) agree(r Renewal, stated Terms) {
	if n.settings.Lease > 0 {
		if use := n.agreement.Told(r, stated, true); use != n.agreement.Uses {
			n.agreement.Use(use)
		}
	}
	n.length.Store(n.agreement.Uses)
}

// do runs a transition.
func (n *memory) do(ctx context.Context, f func(m Moment)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	send, letters := n.step(f)
	for _, x := range letters {
		send(x.session, x.Message)
	}
	return nil
}

func (n *memory) step(f func(m Moment)) (send Sender, letters []letter) {
	n.arbiter.mu.Lock()
	defer n.arbiter.mu.Unlock()
	f(n.moment())
	letters, n.letters = n.letters, nil
	return n.carrier, letters
}

func (n *memory) on(ctx context.Context, p uint32, f func(m Moment, p *Partition)) error {
	var refused error
	err := n.do(ctx, func(m Moment) { refused = n.attempt(m, p, f) })
	return cmp.Or(err, refused)
}

// attempt runs a transition unless the clock does not allow for any.
func (n *memory) attempt(m Moment, p uint32, f func(m Moment, p *Partition)) error {
	m = n.arbiter.of(m, p)
	if err := n.space.parts[p].Refuses(m); err != nil {
		return err
	}
	f(m, &n.space.parts[p])
	return nil
}

// onSessions runs a transition of the session table, which it formats anew if it was lost.
func (n *memory) onSessions(ctx context.Context, f func(m Moment, s *Sessions)) error {
	return n.do(ctx, func(m Moment) {
		if n.space.sessions.Format == "" {
			n.space.format(n.arbiter, m, m.Grace, n.arbiter.mark(n.settings.mark(n.Grace())))
		}
		f(m, &n.space.sessions)
	})
}

func (n *memory) Guarded() bool { return true }

// Grace implements [Namespace].
func (n *memory) Grace() time.Duration { return time.Duration(n.length.Load()) * time.Millisecond }

// Prompt implements [Prompter].
func (n *memory) Prompt() bool { return true }

func (n *memory) Close() error { return nil }

func (n *memory) Open(ctx context.Context, id string, r Registration) (a Renewal, err error) {
	if err := r.Guardians.Check(); err != nil {
		return Renewal{}, err
	}
	wait := false
	err = n.onSessions(ctx, func(m Moment, s *Sessions) {
		t := n.agreement.Terms()
		a, wait, _ = s.OpenWith(m, id, r.TTL.Milliseconds(), r.Info, t)
		if n.agree(a, t); a.Alive {
			a.Version, a.Expiry = s.Guard(id, r.Guardians), s.Members[id].Expiry
			a.Round = s.Turn(m, id, r.Round)
			n.space.replicate(id)
		}
	})
	if err == nil && wait {
		return Renewal{}, ErrWait
	}
	return a, err
}

func (n *memory) Renew(ctx context.Context, id string, r Registration) (a Renewal, err error) {
	if err := r.Guardians.Check(); err != nil {
		return Renewal{}, err
	}
	err = n.onSessions(ctx, func(m Moment, s *Sessions) {
		s.Witness(m, Stamp{id, r.Seen})
		t := n.agreement.Terms()
		a, _ = s.RenewWith(m, id, r.TTL.Milliseconds(), r.Info, t)
		if n.agree(a, t); a.Alive {
			a.Version, a.Expiry = s.Guard(id, r.Guardians), s.Members[id].Expiry
			a.Round = s.Turn(m, id, r.Round)
			n.space.replicate(id)
		}
	})
	return a, err
}

func (n *memory) Dead(ctx context.Context, id string, by Stamp) (l Liveness, err error) {
	err = n.onSessions(ctx, func(m Moment, s *Sessions) {
		s.Witness(m, by)
		l = s.Dead(m, id)
	})
	return l, err
}

func (n *memory) List(ctx context.Context) (l Listing, err error) {
	err = n.onSessions(ctx, func(m Moment, s *Sessions) { l = s.List(m) })
	return l, err
}

func (n *memory) Rotate(ctx context.Context) error {
	key := NewSecret()
	return n.onSessions(ctx, func(m Moment, s *Sessions) { n.space.secrets = s.Rotate(m, key) })
}

func (n *memory) CloseSession(ctx context.Context, id string) error {
	return n.onSessions(ctx, func(m Moment, s *Sessions) {
		s.CloseSession(m, id)
		delete(n.space.opened, id)
	})
}

// Bury implements [Burier].
func (n *memory) Bury(ctx context.Context, session string, version uint32, voters []string) (b Burial, err error) {
	if err := CheckNames("voters", voters); err != nil {
		return Burial{}, err
	}
	err = n.onSessions(ctx, func(m Moment, s *Sessions) { b = s.Bury(m, session, version, voters) })
	return b, err
}

func (n *memory) Load(ctx context.Context, p uint32) (r Record, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition) { r = p.Load(m) })
	return r, err
}

func (n *memory) Acquire(ctx context.Context, p uint32, me string, x Expect) (a Acquisition, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition) { a = p.Acquire(m, me, x) })
	return a, err
}

func (n *memory) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]Row) (d Demotion, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition) { d = p.Demote(m, me, epoch, holds) })
	return d, err
}

func (n *memory) DemoteUnserved(ctx context.Context, p uint32, me string, epoch uint32) (d Demotion, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition) { d = p.DemoteUnserved(m, me, epoch) })
	return d, err
}

func (n *memory) Revoke(ctx context.Context, number uint32, epoch uint32, _ string) error {
	return n.on(ctx, number, func(m Moment, p *Partition) { p.Revoke(m, number, epoch, n.send) })
}

func (n *memory) Lock(ctx context.Context, r LockRequest) (a LockAnswer, err error) {
	err = n.on(ctx, r.Partition, func(m Moment, p *Partition) { a = p.Lock(m, r, n.send) })
	return a, err
}

func (n *memory) Unlock(ctx context.Context, releases []Release) []error {
	errs := make([]error, len(releases))
	err := n.do(ctx, func(m Moment) {
		for i, r := range releases {
			errs[i] = n.attempt(m, r.Partition, func(m Moment, p *Partition) { p.Unlock(m, r.Key, r.Identity, n.send) })
		}
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(releases))
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

func (n *memory) Restore(ctx context.Context, claims []Claims) []Restored {
	answers := make([]Restored, len(claims))
	err := n.do(ctx, func(m Moment) {
		for i, c := range claims {
			if len(c.Holds) == 0 {
				continue // there is nothing to be done, not even to look
			}
			if err := n.attempt(m, c.Partition, func(m Moment, p *Partition) { answers[i] = p.Restore(m, c.Holds) }); err != nil {
				answers[i] = Restored{Err: err}
			}
		}
	})
	if err != nil {
		return slices.Repeat([]Restored{{Err: err}}, len(claims))
	}
	return answers
}

func (n *memory) ReclaimOwners(ctx context.Context, me string, owned []Ownership) []Reclaimed {
	answers := make([]Reclaimed, len(owned))
	err := n.do(ctx, func(m Moment) {
		for i, x := range owned {
			if err := n.attempt(m, x.Partition, func(m Moment, p *Partition) { answers[i] = p.ReclaimOwner(m, me, x.Epoch) }); err != nil {
				answers[i] = Reclaimed{Err: err}
			}
		}
	})
	if err != nil {
		return slices.Repeat([]Reclaimed{{Err: err}}, len(owned))
	}
	return answers
}

func (n *memory) Verify(ctx context.Context, reads []Read) []State {
	states := make([]State, len(reads))
	err := n.do(ctx, func(m Moment) {
		for i, r := range reads {
			err := n.attempt(m, r.Partition, func(m Moment, p *Partition) { states[i] = p.Verify(m, r) })
			states[i].Err = err
		}
	})
	if err != nil {
		return slices.Repeat([]State{{Err: err}}, len(reads))
	}
	return states
}

func (n *memory) Witness(ctx context.Context, p uint32, seen Token) (r Record, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition) { r = p.Witness(m, seen) })
	return r, err
}

// Carry implements [Courier], for wrappers that are [Mute]. Listen gets none of this process's
// messages then.
func (n *memory) Carry(send Sender) {
	n.arbiter.mu.Lock()
	defer n.arbiter.mu.Unlock()
	n.carrier = send
}

// send is called with the arbiter's mutex held.
func (n *memory) send(session string, m Message) {
	if n.carrier != nil {
		n.letters = append(n.letters, letter{session, m})
		return
	}
	if l := n.arbiter.listeners[[2]string{n.settings.Namespace, session}]; l != nil {
		l.put(m)
	}
}

func (n *memory) Listen(ctx context.Context, session string, handle func(Message)) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l := &listener{signal: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	id := [2]string{n.settings.Namespace, session}
	n.arbiter.mu.Lock()
	n.arbiter.listeners[id] = l
	n.arbiter.mu.Unlock()
	go l.run(handle)
	return sync.OnceFunc(func() {
		n.arbiter.mu.Lock()
		if n.arbiter.listeners[id] == l {
			delete(n.arbiter.listeners, id)
		}
		n.arbiter.mu.Unlock()
		close(l.quit)
		<-l.done
	}), nil
}

// maxUndelivered bounds the queue of a listener with a slow handler. Beyond it messages are lost,
// and a Gap says so.
const maxUndelivered = 4096

// listener decouples a handler from the mutex under which messages arise.
type listener struct {
	mu     sync.Mutex // protects queue
	queue  []Message
	signal chan struct{} // capacity 1: the queue is not empty
	quit   chan struct{} // closed to end run
	done   chan struct{} // closed by run
}

func (l *listener) put(m Message) {
	l.mu.Lock()
	if len(l.queue) < maxUndelivered {
		l.queue = append(l.queue, m)
	} else {
		l.queue = append(l.queue[:0], Message{Kind: Gap})
	}
	l.mu.Unlock()
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// gap drops the queued messages, and leaves a Gap.
func (l *listener) gap() {
	l.mu.Lock()
	l.queue = nil
	l.mu.Unlock()
	l.put(Message{Kind: Gap})
}

func (l *listener) run(handle func(Message)) {
	defer close(l.done)
	for {
		select {
		case <-l.quit:
			return
		case <-l.signal:
		}
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		for m := range slices.Values(batch) {
			handle(m)
		}
	}
}
