package fallback

import (
	"context"
	"errors"
	"sync"
	"time"
)

// notExecuted reports whether an error says that nothing was executed.
func notExecuted(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrNotSent) }

// Guarded implements [Namespace].
func (n *recordsSpace) Guarded() bool { return true }

// Durability implements [Keeper].
func (n *recordsSpace) Durability() Durability {
	if n.opts.Durable {
		return Durable
	}
	return Guarded
}

// Grace implements [Namespace].
func (n *recordsSpace) Grace() time.Duration {
	return time.Duration(n.lengths.now.Load()) * time.Millisecond
}

// Close implements [Namespace]. The second and later ones do nothing.
func (n *recordsSpace) Close() (err error) {
	n.closed.Do(func() { err = n.store.Close() })
	return err
}

func (n *recordsSpace) Open(ctx context.Context, id string, r Registration) (Renewal, error) {
	wait, looked := false, true
	a, err := n.renew(ctx, id, r, func(m Moment, s *Sessions, t Terms) (a Renewal) {
		looked = n.observer.looked(m, s)
		a, wait, _ = s.OpenWith(m, id, r.TTL.Milliseconds(), r.Info, t)
		return a
	})
	switch {
	case err == nil && wait:
		return Renewal{}, ErrWait
	case !looked && errors.Is(err, errFull):
		return Renewal{}, roomError{err}
	}
	return a, err
}

func (n *recordsSpace) Renew(ctx context.Context, id string, r Registration) (Renewal, error) {
	return n.renew(ctx, id, r, func(m Moment, s *Sessions, t Terms) Renewal {
		s.Witness(m, Stamp{id, r.Seen})
		a, _ := s.RenewWith(m, id, r.TTL.Milliseconds(), r.Info, t)
		if n.observer != nil && a.Alive && s.GraceEnd == 0 {
			s.sweep(m) // a process that comes has not seen yet which of them have ended
			a.Sessions = len(s.Members)
		}
		return a
	})
}

func (n *recordsSpace) renew(ctx context.Context, id string, r Registration, f func(Moment, *Sessions, Terms) Renewal) (a Renewal, err error) {
	if err := r.Guardians.Check(); err != nil {
		return Renewal{}, err
	}
	t, told := n.lengths.state(n.settings.Lease > 0)
	var beat int64
	err = n.onSessions(ctx, func(m Moment, s *Sessions) {
		if a = f(m, s, t); !a.Alive {
			return
		}
		a.Version, a.Expiry = s.Guard(id, r.Guardians), s.Members[id].Expiry
		if n.observer != nil {
			x := s.Members[id]
			beat = n.observer.next(memberThing(id), x.Beat)
			x.Beat = beat
			s.Members[id] = x
		}
	})
	if n.observer != nil && err == nil && a.Alive {
		n.observer.wrote(memberThing(id), beat)
	}
	if err != nil {
		a = Renewal{}
	}
	told(a)
	return a, err
}

func (n *recordsSpace) Dead(ctx context.Context, id string, by Stamp) (l Liveness, err error) {
	err = n.onDeath(ctx, func(m Moment, s *Sessions) (dead bool) {
		s.Witness(m, by)
		l = s.Declare(m, id)
		return l.Dead
	})
	if err != nil {
		return Liveness{}, err
	}
	return l, nil
}

func (n *recordsSpace) List(ctx context.Context) (l Listing, err error) {
	err = n.onSessions(ctx, func(m Moment, s *Sessions) { l = s.List(m) })
	if err != nil {
		return Listing{}, err
	}
	return l, nil
}

func (n *recordsSpace) Rotate(ctx context.Context) error {
	key := NewSecret()
	return n.onSessions(ctx, func(m Moment, s *Sessions) { s.Rotate(m, key) })
}

func (n *recordsSpace) CloseSession(ctx context.Context, id string) error {
	return n.onSessions(ctx, func(m Moment, s *Sessions) { s.CloseSession(m, id) })
}

// Bury implements [Burier].
func (n *recordsSpace) Bury(ctx context.Context, session string, version uint32, voters []string) (b Burial, err error) {
	if err := CheckNames("voters", voters); err != nil {
		return Burial{}, err
	}
	err = n.onDeath(ctx, func(m Moment, s *Sessions) (dead bool) {
		if b = s.Bury(m, session, version, voters); b.Dead {
			s.Declare(m, session) // it may have expired
		}
		return b.Dead
	})
	if err != nil {
		return Burial{}, err
	}
	return b, nil
}

func (n *recordsSpace) Load(ctx context.Context, p uint32) (r Record, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition, _ Sender) { r = p.Load(m) })
	return r, err
}

func (n *recordsSpace) Acquire(ctx context.Context, p uint32, me string, x Expect) (a Acquisition, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition, _ Sender) { a = p.Acquire(m, me, x) })
	return a, err
}

func (n *recordsSpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]Row) (d Demotion, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition, _ Sender) { d = p.Demote(m, me, epoch, holds) })
	return d, err
}

func (n *recordsSpace) DemoteUnserved(ctx context.Context, p uint32, me string, epoch uint32) (d Demotion, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition, _ Sender) { d = p.DemoteUnserved(m, me, epoch) })
	return d, err
}

func (n *recordsSpace) Witness(ctx context.Context, p uint32, seen Token) (r Record, err error) {
	err = n.on(ctx, p, func(m Moment, p *Partition, _ Sender) { r = p.Witness(m, seen) })
	return r, err
}

func (n *recordsSpace) Revoke(ctx context.Context, number uint32, epoch uint32, _ string) error {
	return n.on(ctx, number, func(m Moment, p *Partition, send Sender) { p.Revoke(m, number, epoch, send) })
}

func (n *recordsSpace) Lock(ctx context.Context, r LockRequest) (a LockAnswer, err error) {
	err = n.on(ctx, r.Partition, func(m Moment, p *Partition, send Sender) { a = p.Lock(m, r, send) })
	return a, err
}

func (n *recordsSpace) Unlock(ctx context.Context, releases []Release) []error {
	parts, of := byPartition(releases, func(r Release) uint32 { return r.Partition })
	var errs []error
	for i, err := range n.onAll(ctx, parts, func(i int, m moment, p *Partition, send Sender) {
		for _, at := range of[i] {
			p.Unlock(m.Moment, releases[at].Key, releases[at].Identity, send)
		}
	}) {
		if err == nil {
			continue
		}
		if errs == nil {
			errs = make([]error, len(releases))
		}
		for _, at := range of[i] {
			errs[at] = err
		}
	}
	return errs
}

func (n *recordsSpace) Restore(ctx context.Context, claims []Claims) []Restored {
	answers := make([]Restored, len(claims))
	var some []int // that have holds: without, there is nothing to be done, not even to look
	for i, c := range claims {
		if len(c.Holds) > 0 {
			some = append(some, i)
		}
	}
	parts, of := byPartition(some, func(at int) uint32 { return claims[at].Partition })
	for i, err := range n.onAll(ctx, parts, func(i int, m moment, p *Partition, _ Sender) {
		for _, k := range of[i] {
			answers[some[k]] = p.Restore(m.Moment, claims[some[k]].Holds)
		}
	}) {
		if err != nil {
			for _, k := range of[i] {
				answers[some[k]] = Restored{Err: err}
			}
		}
	}
	return answers
}

func (n *recordsSpace) ReclaimOwners(ctx context.Context, me string, owned []Ownership) []Reclaimed {
	answers := make([]Reclaimed, len(owned))
	parts, of := byPartition(owned, func(o Ownership) uint32 { return o.Partition })
	for i, err := range n.onAll(ctx, parts, func(i int, m moment, p *Partition, _ Sender) {
		for _, at := range of[i] {
			answers[at] = p.ReclaimOwner(m.Moment, me, owned[at].Epoch)
		}
	}) {
		if err != nil {
			for _, at := range of[i] {
				answers[at] = Reclaimed{Err: err}
			}
		}
	}
	return answers
}

func (n *recordsSpace) Verify(ctx context.Context, reads []Read) []State {
	states := make([]State, len(reads))
	parts, of := byPartition(reads, func(r Read) uint32 { return r.Partition })
	for i, err := range n.onAll(ctx, parts, func(i int, m moment, p *Partition, _ Sender) {
		for _, at := range of[i] {
			states[at] = p.Verify(m.Moment, reads[at])
		}
	}) {
		if err != nil {
			for _, at := range of[i] {
				states[at] = State{Err: err}
			}
		}
	}
	return states
}

// Advise implements [Adviser].
func (n *recordsSpace) Advise(ctx context.Context) (advice []string, err error) {
	if a, ok := n.store.(Adviser); ok {
		advice, err = a.Advise(ctx)
	}
	return append(advice, n.slowness.advice(n.settings.Lease)...), err
}

// Rows implements [Lister].
func (n *recordsSpace) Rows(ctx context.Context, partitions []uint32) ([]map[string]Row, error) {
	all := make([]map[string]Row, len(partitions))
	return all, n.peek(ctx, partitions, func(i int, p *Partition) { all[i] = p.Rows })
}

// Waiters implements [WaiterLister].
func (n *recordsSpace) Waiters(ctx context.Context, partition uint32, key string, most int) (all []Release, err error) {
	err = n.peek(ctx, []uint32{partition}, func(_ int, p *Partition) {
		all = waitersOf(partition, key, p.Queues[key], most)
	})
	return all, err
}

// peek looks at partitions, and changes nothing.
func (n *recordsSpace) peek(ctx context.Context, partitions []uint32, f func(i int, p *Partition)) error {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = n.partKey(p)
	}
	look, err := n.store.Load(ctx, keys)
	if err != nil {
		return err
	}
	for i, v := range look.Values {
		p, _, err := decodePartition(v.Value)
		if err != nil {
			return err
		}
		f(i, p)
	}
	return nil
}

// channel is the one of a session; that of all sessions has no name.
func (n *recordsSpace) channel(session string) string { return n.settings.Namespace + "/c" + session }

// A letter is a message for a session.
type letter struct {
	session string
	Message
}

// post sends messages, which are hints: it does not matter whether they arrive.
func (n *recordsSpace) post(ctx context.Context, letters []letter) {
	send := n.carrier.Load()
	switch {
	case len(letters) == 0:
	case n.messenger != nil:
		mail := make([]Mail, len(letters))
		for i, x := range letters {
			mail[i] = Mail{n.channel(x.session), encodeMessage(x.Message)}
		}
		_ = n.messenger.Send(ctx, mail)
	case send != nil:
		for _, x := range letters {
			(*send)(x.session, x.Message)
		}
	}
}

// Carry implements [Courier]. A [Messenger] comes first.
func (n *recordsSpace) Carry(send Sender) { n.carrier.Store(&send) }

// Listen implements [Namespace]. No message comes without a [Messenger]: there is one gap, for
// ever.
func (n *recordsSpace) Listen(ctx context.Context, _ string, handle func(Message)) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var gap sync.WaitGroup
	gap.Go(func() { handle(Message{Kind: Gap}) })
	return gap.Wait, nil
}

// Mute implements [Mute].
func (n *recordsSpace) Mute() bool { return n.messenger == nil }

// talkingSpace is a recordsSpace with a Messenger.
type talkingSpace struct{ *recordsSpace }

// Listen implements [Namespace].
func (n *talkingSpace) Listen(ctx context.Context, session string, handle func(Message)) (func(), error) {
	return n.messenger.Receive(ctx, []string{n.channel(session), n.channel("")}, func(text string) {
		if m, ok := decodeMessage(text); ok {
			handle(m)
		}
	}, func() { handle(Message{Kind: Gap}) })
}

// Announce implements [Announcer].
func (n *talkingSpace) Announce(ctx context.Context, key string) error {
	return n.messenger.Send(ctx, []Mail{{n.channel(""), encodeMessage(Message{Kind: Changed, Key: key})}})
}
