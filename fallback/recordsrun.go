package fallback

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// recordsSpace is a namespace on a store of records, as one process sees it.
type recordsSpace struct {
	store     Records
	messenger Messenger // nil: there is none
	settings  Settings
	lengths   recordsLengths
	closed    sync.Once
	secrets   atomic.Pointer[string] // as the table has told them last: they outlive its loss
	opts      RecordsOptions
	observer  *observer     // nil: the store has a clock
	born      atomic.Uint32 // of a durable store: Sessions.Born, as this process has attached to it, or has seen it in Grace
	slowness  slowness      // with RecordsOptions.Slow
	made      made          // of a durable store
	carrier   atomic.Pointer[Sender]
}

func (n *recordsSpace) tableKey() string { return n.settings.Namespace + "/s" }

func (n *recordsSpace) partKey(p uint32) string {
	return n.settings.Namespace + "/p" + strconv.FormatUint(uint64(p), 10)
}

// moment is a Moment, and for how long the store has lost nothing.
type moment struct {
	Moment
	kept time.Duration
	span span // of the look, if there is an observer
}

// An attempt is one record in an operation. It may run more than once, and its last run counts.
type attempt struct {
	key string

	// step runs the transition. It returns the record's new value.
	step func(m moment, value []byte, send Sender) ([]byte, error)

	// confirmed is set by step if its answer counts only once the record is written, also as it
	// was. Nil: it never does.
	confirmed *bool
}

// run runs attempts, each atomically. Errors are in their order.
//
// A transition counts as executed at the moment of Load. Its answer is right even if it comes
// later: the record is the same until Swap, so no other transition came between. An answer that
// rests on a record which is not swapped tells how it was at the moment of Load.
func (n *recordsSpace) run(ctx context.Context, all []attempt) []error {
	errs, left := make([]error, len(all)), indices(len(all))
	var took time.Duration // the last try
	for try := 0; len(left) > 0; try++ {
		err := ctx.Err()
		if err == nil && try > 0 {
			err = pause(ctx, try, took)
		}
		began := time.Now()
		var again []int
		if err == nil {
			again, err = n.round(ctx, all, left, errs)
			took = time.Since(began)
		}
		if err != nil {
			for _, i := range left {
				errs[i] = err
			}
			return errs
		}
		left = again
	}
	return errs
}

// round tries attempts once, and returns those in which another process was faster.
func (n *recordsSpace) round(ctx context.Context, all []attempt, left []int, errs []error) (again []int, err error) {
	grace, done := n.lengths.begin()
	sure := true
	defer func() { done(sure) }()
	if n.opts.Slow {
		defer func(began time.Time) { n.slowness.note(time.Since(began)) }(time.Now())
	}
	keys := make([]string, len(left))
	for i, at := range left {
		keys[i] = all[at].key
	}
	look, at, err := n.look(ctx, keys)
	if err != nil {
		return nil, err
	}
	m := moment{Moment{Now: look.Now, Server: look.Server, Grace: grace}, look.Kept, at}
	var mail []letter
	var changes []Change
	var changed []int // of changes: which attempt each is of
	letters := make([][]letter, len(left))
	for i, at := range left {
		was := look.Values[i]
		send := func(session string, msg Message) {
			letters[i] = append(letters[i], letter{session, msg})
		}
		value, err := all[at].step(m, was.Value, send)
		switch {
		case err != nil:
			errs[at] = err
		case string(value) == string(was.Value) && (all[at].confirmed == nil || !*all[at].confirmed):
			mail = append(mail, letters[i]...)
		default:
			changes, changed = append(changes, Change{keys[i], was.Version, value}), append(changed, i)
		}
	}
	if len(changes) > 0 {
		swapped, err := n.store.Swap(ctx, look.Server, changes)
		some, ok := perChange(err, changes)
		if ok {
			swapped = some.Done
		} else if err != nil {
			sure = notExecuted(err)
			return nil, err
		}
		for c, i := range changed {
			switch {
			case swapped[c]:
				mail = append(mail, letters[i]...)
			case ok && some.Errs[c] != nil:
				errs[left[i]] = some.Errs[c]
				sure = sure && notExecuted(some.Errs[c])
			default:
				again = append(again, left[i])
			}
		}
	}
	n.post(ctx, mail)
	return again, nil
}

// look is Load of the store, with a clock.
func (n *recordsSpace) look(ctx context.Context, keys []string) (look Look, at span, err error) {
	if n.observer == nil {
		look, err = n.store.Load(ctx, keys)
		return look, span{}, err
	}
	at.from = n.observer.now()
	look, err = n.store.Load(ctx, keys)
	look.Now, at.to = at.from, n.observer.now()
	return look, at, err
}

// pause waits for a moment, longer from try to try: processes that were faster may be many. Where a
// try takes long, up to eight times as long: tries that come too early are in the way of each
// other. A try that took longer than most did so because this process stood still.
func pause(ctx context.Context, try int, took time.Duration) error {
	const most = 128 * time.Millisecond
	t := time.NewTimer(rand.N(max(time.Millisecond<<min(try, 6), min(took, most)<<min(try, 6)/8)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// onAll runs a transition on each of some partitions, which are different ones.
func (n *recordsSpace) onAll(ctx context.Context, parts []uint32, f func(i int, m moment, p *Partition, send Sender)) []error {
	errs, left := make([]error, len(parts)), indices(len(parts))
	if !n.opts.Durable {
		n.partitions(ctx, parts, left, nil, errs, f)
		return errs
	}
	for know := make([]knowledge, len(parts)); len(left) > 0; {
		n.partitions(ctx, parts, left, know, errs, f)
		left = n.learn(ctx, parts, left, know, errs)
	}
	return errs
}

// partitions runs a transition on those of some partitions which left has. A partition without a
// record was lost, unless know says otherwise. If know has a partition without a record, and f
// leaves it as it is, no record is written.
func (n *recordsSpace) partitions(ctx context.Context, parts []uint32, left []int, know []knowledge, errs []error, f func(i int, m moment, p *Partition, send Sender)) {
	all := make([]attempt, len(left))
	for k, i := range left {
		key := n.partKey(parts[i])
		all[k] = attempt{key: key, step: func(m moment, value []byte, send Sender) ([]byte, error) {
			p, g, err := decodePartition(value)
			if err != nil {
				return nil, err
			}
			var as *Partition
			if know != nil {
				if as, err = know[i].enter(p, n.made.has(parts[i])); err != nil {
					return nil, err
				}
			}
			end := p.GraceEnd
			if n.observer != nil {
				end = n.observer.grace(key, g, m.span)
			}
			var blank []byte
			if as != nil {
				p.Server, p.Process, p.Epoch, p.GraceEnd = m.Server, m.Process, as.Epoch, as.GraceEnd
				blank, end = encodePartition(p, storedGrace{}), as.GraceEnd
			}
			if err := p.Refuses(m.Moment); err != nil {
				return nil, err
			}
			p.GraceEnd = end
			server := p.Server
			f(i, m, p, send)
			switch {
			case blank != nil && string(blank) == string(encodePartition(p, storedGrace{})):
				know[i].created = false
				return value, nil
			case n.observer == nil:
				return partitionShape.keepUnknown(value, encodePartition(p, storedGrace{})), nil
			}
			g = n.observer.graceAfter(key, g, end, p.GraceEnd, m.Now, p.Server != server)
			p.GraceEnd = 0
			return partitionShape.keepUnknown(value, encodePartition(p, g)), nil
		}}
	}
	for k, err := range n.run(ctx, all) {
		errs[left[k]] = err
	}
}

// on runs a transition on one partition.
func (n *recordsSpace) on(ctx context.Context, p uint32, f func(m Moment, p *Partition, send Sender)) error {
	return n.onAll(ctx, []uint32{p}, func(_ int, m moment, p *Partition, send Sender) { f(m.Moment, p, send) })[0]
}

// onTable runs a transition on the table of sessions. confirmed may be nil: see attempt.
func (n *recordsSpace) onTable(ctx context.Context, confirmed *bool, f func(m moment, s *Sessions)) error {
	return n.run(ctx, []attempt{{key: n.tableKey(), confirmed: confirmed, step: func(m moment, value []byte, _ Sender) ([]byte, error) {
		s, g, err := decodeSessions(value)
		if err != nil {
			return nil, err
		}
		var end int64
		if n.observer != nil {
			end = n.observer.grace(n.tableKey(), g, m.span)
			s.GraceEnd = end
			n.observer.members(s, m.span)
		}
		server := s.Server
		n.made.saw(s.Made)
		f(m, s)
		if s.Secrets != "" {
			n.secrets.Store(&s.Secrets)
		}
		if s.GraceEnd != 0 {
			n.born.Store(s.Born) // this process's holds and partitions are reclaimed by its end, or over
		}
		if n.observer == nil {
			return sessionsShape.keepUnknown(value, encodeSessions(s, storedGrace{})), nil
		}
		g = n.observer.graceAfter(n.tableKey(), g, end, s.GraceEnd, m.Now, s.Server != server)
		s.GraceEnd = 0
		for id, x := range s.Members {
			x.Expiry = 0
			s.Members[id] = x
		}
		return sessionsShape.keepUnknown(value, encodeSessions(s, g)), nil
	}}})[0]
}

// onSessions is onTable of a table that it formats anew if it was lost.
func (n *recordsSpace) onSessions(ctx context.Context, f func(m Moment, s *Sessions)) error {
	return n.onDeath(ctx, func(m Moment, s *Sessions) (dead bool) { f(m, s); return false })
}

// onDeath is onSessions of a transition that may say that a session is dead. In a store that may be
// deposed the death counts once it is written, also if the table was without the session before. A
// deposed server may not have heard of the session, or of its renewals. It also reads writes that
// it could not tell its replicas.
func (n *recordsSpace) onDeath(ctx context.Context, f func(m Moment, s *Sessions) (dead bool)) error {
	for {
		lost, confirmed := false, false
		err := n.onTable(ctx, &confirmed, func(m moment, s *Sessions) {
			confirmed = false
			if lost = s.Format == ""; !lost {
				confirmed = f(m.Moment, s) && n.opts.Deposable && !n.opts.Durable
			}
		})
		if err != nil || !lost {
			return err
		}
		// This process knows that the namespace was formatted.
		if err := n.format(ctx, full); err != nil {
			return err
		}
	}
}

// byPartition groups things by their partition. It returns the partitions, and the indices for
// each.
func byPartition[T any](all []T, partition func(T) uint32) (parts []uint32, of [][]int) {
	at := make(map[uint32]int)
	for i, x := range all {
		p := partition(x)
		k, ok := at[p]
		if !ok {
			k = len(parts)
			at[p], parts, of = k, append(parts, p), append(of, nil)
		}
		of[k] = append(of[k], i)
	}
	return parts, of
}

// recordsLengths is this process's part in a change of Grace. The rules are those of length.go.
type recordsLengths struct {
	now atomic.Int64 // the agreement's Uses

	mu        sync.Mutex // protects the fields below, and changes of now
	agreement Agreement
	calls     map[int64]int       // on their way, by the Grace that they go by
	late      map[int64]time.Time // until then calls may be executed that were given up, by their Grace
	renewals  int                 // on their way
}

// lateFor is for how long a call that was given up counts as on its way.
const lateFor = time.Minute

func (l *recordsLengths) use(ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreement.Use(ms)
	l.now.Store(ms)
}

// begin returns the Grace that a call goes by. The caller reports at its end whether it is sure
// that nothing of it is on its way any more.
func (l *recordsLengths) begin() (grace int64, done func(sure bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	grace = l.agreement.Uses
	if l.calls == nil {
		l.calls, l.late = make(map[int64]int), make(map[int64]time.Time)
	}
	l.calls[grace]++
	return grace, func(sure bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.calls[grace]--; l.calls[grace] == 0 {
			delete(l.calls, grace)
		}
		if !sure {
			l.late[grace] = time.Now().Add(lateFor)
		}
	}
}

// state returns the Terms that a renewal states. told is to be called with its answer, or with the
// zero Renewal when it has failed.
func (l *recordsLengths) state(own bool) (t Terms, told func(Renewal)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t = l.agreement.Terms()
	for grace := range l.calls {
		t.Uses = min(t.Uses, grace)
	}
	for grace, end := range l.late {
		if time.Now().After(end) {
			delete(l.late, grace)
			continue
		}
		t.Uses = min(t.Uses, grace)
	}
	l.renewals++
	return t, func(r Renewal) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewals--
		if !own {
			return
		}
		if use := l.agreement.Told(r, t, l.renewals == 0); use != l.agreement.Uses {
			l.agreement.Use(use)
			l.now.Store(use)
		}
	}
}
