package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Records is a store of small records that can be compared and swapped, such as a table of a
// database. [NewRecords] makes an arbiter of it: the transitions of [Partition] and [Sessions] run
// in the process that calls, and take effect if the record has not changed meanwhile.
//
// A namespace has one record for the table of sessions, and one for each partition. A key has up to
// 140 characters, none of them a blank, a brace or a control character. No record is deleted.
//
// All methods are safe for concurrent use. Each blocks until ctx ends at most. A store that also
// has the method of an [Adviser] is asked by its namespaces.
type Records interface {
	// Open makes the store ready, and is called by each Attach: it checks settings, and creates
	// missing parts. Errors are those of [Arbiter.Attach].
	Open(ctx context.Context) error

	// Load reads the records of some keys, each as it is at a moment during the call. A record has
	// every Swap of it that was acknowledged before the call. The moments may be different ones: no
	// operation compares two records of one Load. All are of the server that the Look names. Values
	// are in the order of the keys.
	Load(ctx context.Context, keys []string) (Look, error)

	// Swap writes records, each if it still has the version that the change names, and if the store
	// is the server that Load named. done tells which were written, in the order of the changes;
	// they are of different keys. Each change is atomic by itself. With an error it is unknown
	// which were written, except for [ErrRefused] and [ErrNotSent]: none; and for a [SwapError],
	// which tells it of each.
	Swap(ctx context.Context, server string, changes []Change) (done []bool, err error)

	// Close ends the work that one Open began. A Swap that was given up may still be executed.
	Close() error
}

// A Look is the answer of [Records.Load].
type Look struct {
	// Now is the store's clock, in Unix milliseconds. It was read during the call. It counts for
	// nothing with [RecordsOptions.NoClock].
	Now int64

	// Server names the server that answered. It stays while no acknowledged change can have been
	// lost, also over a restart. It is another one after a failover that may have lost some. Never
	// empty. That of a durable store is always the same.
	Server string

	// Kept is how long ago the store may last have lost something. A namespace that is
	// missing is new if that is as long as Grace. Else it is in Grace at first, for the difference.
	// It counts for nothing in a durable store.
	Kept time.Duration

	Values []Versioned // in the order of the keys
}

// Versioned is a record as [Records.Load] found it.
type Versioned struct {
	Version string // empty: there is no record. No two values of a record, ever, have the same version
	Value   []byte
}

// A Change is a record for [Records.Swap] to write.
type Change struct {
	Key     string
	Version string // that the record must have; empty: there must be none
	Value   []byte
}

// A Viewer is a Records that can read a record without Open, which creates missing parts: a program
// that observes may have been given another store than the application's.
type Viewer interface {
	// View reads a record, and changes nothing. It is nil where there is none, also if Open has
	// made nothing there. Errors are those of Open and Load.
	View(ctx context.Context, key string) ([]byte, error)
}

// A Messenger is a Records that delivers messages between processes. It is optional: without one,
// each waiter asks again by its timer.
type Messenger interface {
	// Send sends messages, and may lose any.
	Send(ctx context.Context, all []Mail) error

	// Receive hands the texts that are sent to the channels to handle, one at a time and in order.
	// It does so in a goroutine of its own, until stop is called. It calls lost where texts may be
	// missing. It returns once it is in force. stop waits for a running handle, and may be called
	// more than once.
	Receive(ctx context.Context, channels []string, handle func(text string), lost func()) (stop func(), err error)
}

// Mail is a text for a channel.
type Mail struct {
	Channel string // as a key of Records
	Text    string // printable ASCII
}

// RecordsOptions are the options of [NewRecords]. The zero value is valid, and so is a nil pointer.
type RecordsOptions struct {
	// ColdStart says that a store without the namespace is new, rather than one that lost it,
	// whatever [Look.Kept] is. For tests, demos and development, and for tools that make a
	// namespace before processes use it.
	ColdStart bool

	// Durable says two things, whichever of the store's members fail: the store never loses an
	// acknowledged write ([Durable]), and a Load has every Swap that was acknowledged before it.
	// Nothing is written for a partition before it is first used. A namespace that is missing
	// begins with Grace, as its records may have been deleted: see ColdStart.
	Durable bool

	// Deposable says that a server of the store may go on after another one has taken its place.
	// Only its writes wait for replicas, if anything does. Then a session's death counts once a
	// write has told the replicas. Deposable counts for nothing in a durable store: its Load has
	// all acknowledged writes, of any member.
	Deposable bool

	// NoClock says that the store has no clock that could be read in the same step as a record.
	// Then a process declares a session dead, or Grace over, when it has seen it stand still for
	// long enough by its own clock. Epochs of a new namespace are of the clock of the process that
	// makes it.
	NoClock bool

	// Slow says that a call may take a good part of a second, as with an object store. Namespaces
	// time calls then, and advise a longer SessionTTL where too many take long ([Adviser]).
	Slow bool

	// MinLease is the shortest [Settings.Lease], which is SessionTTL + Margin, that Attach does not
	// refuse. 0: any, and a Lease of 0 is never refused.
	MinLease time.Duration
}

// NewRecords returns an arbiter on a store. opts may be nil.
//
// An operation is one Load, and one Swap if it changes anything; both again if another process was
// faster. It is a [Describer], which changes nothing if the store is a [Viewer]. Its namespaces are
// Guarded, or Durable. They are a [Keeper], a [Lister], a [WaiterLister], a [Burier] and an
// [Adviser], and with a [Messenger] an [Announcer]. They are no [ResultStore].
func NewRecords(store Records, opts *RecordsOptions) Arbiter {
	a := &recordsArbiter{store: store}
	if opts != nil {
		a.opts = *opts
	}
	return a
}

type recordsArbiter struct {
	store Records
	opts  RecordsOptions
}

// Attach implements [Arbiter].
func (a *recordsArbiter) Attach(ctx context.Context, s Settings) (Namespace, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Lease > 0 && s.Lease < a.opts.MinLease {
		return nil, fmt.Errorf("%w: SessionTTL + Margin is %v, must be %v or more with this store, whose calls may take long: set SessionTTL to %v",
			ErrRefused, s.Lease, a.opts.MinLease, (a.opts.MinLease * 10 / 11).Round(time.Second))
	}
	if err := a.store.Open(ctx); err != nil {
		return nil, err
	}
	n := &recordsSpace{store: a.store, settings: s, opts: a.opts, made: newMade()}
	if a.opts.NoClock {
		n.observer = newObserver()
	}
	n.lengths.agreement.Needs = s.Needs()
	if err := n.begin(ctx, a.opts.ColdStart); err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	if m, ok := a.store.(Messenger); ok {
		n.messenger = m
		return &talkingSpace{n}, nil
	}
	return n, nil
}

// Describe implements [Describer].
func (a *recordsArbiter) Describe(ctx context.Context, namespace string) (s Settings, err error) {
	n := &recordsSpace{store: a.store, settings: Settings{Namespace: namespace}}
	value, err := a.view(ctx, n.tableKey())
	if err != nil {
		return Settings{}, err
	}
	table, _, err := decodeSessions(value)
	if err != nil {
		return Settings{}, err
	}
	if table.Format == "" {
		return Settings{}, fmt.Errorf("%w: %q", ErrNoNamespace, namespace)
	}
	return ParseMark(namespace, table.Format)
}

// view reads a record. It changes nothing in a store that is a Viewer.
func (a *recordsArbiter) view(ctx context.Context, key string) (value []byte, err error) {
	if v, ok := a.store.(Viewer); ok {
		return v.View(ctx, key)
	}
	if err := a.store.Open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.store.Close()) }()
	at, err := a.store.Load(ctx, []string{key})
	if err != nil {
		return nil, err
	}
	return at.Values[0].Value, nil
}

// formatting tells for how long a namespace is in Grace that has no format mark.
type formatting int

const (
	look formatting = iota // unless nothing was lost for so long
	cold                   // it is new
	full                   // it was formatted: the store has lost it
)

// begin goes by the format mark, which it makes if there is none.
func (n *recordsSpace) begin(ctx context.Context, coldStart bool) error {
	how := look
	switch {
	case coldStart:
		how = cold
	case n.opts.Durable:
		how = full // nothing tells a namespace that was never made from one that was deleted while processes use it
	}
	for {
		at, _, err := n.look(ctx, []string{n.tableKey()})
		if err != nil {
			return err
		}
		if err := compareClocks(time.UnixMilli(at.Now), time.Now()); err != nil {
			return err
		}
		table, _, err := decodeSessions(at.Values[0].Value)
		if err != nil {
			return err
		}
		n.born.Store(table.Born)
		n.made.saw(table.Made)
		if table.Format != "" {
			s, err := n.settings.Adopt(table.Format, true)
			n.settings = s
			n.lengths.use(s.Grace.Milliseconds())
			return err
		}
		n.lengths.use(n.settings.Grace.Milliseconds())
		if err := n.format(ctx, how); err != nil {
			return err
		}
	}
}

// compareClocks refuses a server with a clock far ahead of this process's. A new namespace has no
// epoch yet that would tell.
func compareClocks(theirs, ours time.Time) error {
	if theirs.After(ours.AddDate(1, 0, 0)) {
		return fmt.Errorf("%w: the server's clock is more than a year ahead of this process's: it says %s, this one %s: set the wrong one",
			ErrRefused, theirs.UTC().Format(time.DateOnly), ours.UTC().Format(time.DateOnly))
	}
	return nil
}

// format makes the records of all partitions, unless the store is durable, and then the table with
// the mark. If the mark is missing, the next process starts over, and existing records stay as they
// are.
func (n *recordsSpace) format(ctx context.Context, how formatting) error {
	var left []uint32
	for i := range uint32(n.settings.Partitions) {
		if n.opts.Durable {
			break // a partition without a record is in Grace while the table is
		}
		left = append(left, i)
	}
	length := func(m Moment, kept time.Duration) int64 {
		switch how {
		case cold:
			return 0
		case full:
			return m.Grace
		default:
			return max(0, m.Grace-kept.Milliseconds())
		}
	}
	const chunk = 256
	for len(left) > 0 {
		part := left[:min(chunk, len(left))]
		left = left[len(part):]
		used, errs := make([]bool, len(part)), make([]error, len(part))
		n.partitions(ctx, part, indices(len(part)), nil, errs, func(i int, m moment, p *Partition, _ Sender) {
			if p.Server == "" {
				p.Format(m.Moment, length(m.Moment, m.kept))
			} else {
				used[i] = p.Owner != "" || len(p.Rows) > 0
			}
		})
		for i := range part {
			if errs[i] != nil {
				return errs[i]
			}
			if used[i] {
				// The namespace is not new, only its table of sessions is missing: processes may be
				// at work.
				how = full
			}
		}
	}
	secrets := NewSecrets()
	if known := n.secrets.Load(); known != nil {
		secrets = *known
	}
	return n.onTable(ctx, nil, func(m moment, s *Sessions) {
		grace := length(m.Moment, m.kept)
		s.Mark(m.Moment, n.settings.mark(time.Duration(m.Grace)*time.Millisecond), grace)
		s.FirstSecret(m.Moment, secrets)
		if n.opts.Durable && s.Born == 0 {
			// After Grace, so that all tokens of deleted records are lower.
			s.Born = uint32(min(max((m.Now+grace+999)/1000-epochZero, 1), MaxEpoch))
		}
	})
}
