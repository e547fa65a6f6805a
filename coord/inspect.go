package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Process is a process of the namespace. Its unknown fields are zero.
type Process struct {
	Name    string `json:"name,omitempty"`    // Options.Name
	ID      string `json:"id,omitempty"`      // NodeInfo.ID
	Session string `json:"session,omitempty"` // at the arbiter
	Host    string `json:"host,omitempty"`    // name of the host
	PID     int    `json:"pid,omitempty"`     // on that host, or in that container
}

// A KeyInfo is the knowledge of the nodes and the arbiter about a key at some moment: see
// [Coordinator.Inspect].
type KeyInfo struct {
	Key       string   `json:"key"`
	Partition uint32   `json:"partition"`
	Owner     *Process `json:"owner,omitempty"` // the node that grants the key; nil: the arbiter does
	Epoch     uint32   `json:"epoch"`           // of the partition

	// Unknown reports that the owner has not answered, or does not serve the partition at present:
	// then Holder is nil, and Shared and Waiters are empty, whichever processes have the key or
	// wait for it.
	Unknown bool `json:"unknown,omitempty"`

	// NotServing reports that the owner has answered, and does not serve the partition: it gives it
	// away, or has not begun. That takes a moment, if the arbiter answers it.
	NotServing bool `json:"notServing,omitempty"`

	Holder  *KeyHolder  `json:"holder,omitempty"` // of the lock; nil: no process has it, or Unknown
	Shared  []KeyHolder `json:"shared,omitempty"` // processes with readers, or with permits of a semaphore
	Waiters []KeyWaiter `json:"waiters,omitempty"`

	Unanswered []Unanswered `json:"unanswered,omitempty"` // nodes that know more
}

// A KeyHolder is a process that has a key.
type KeyHolder struct {
	Process
	Mode string `json:"mode,omitempty"` // "" for a lock, "read", or such as "2 of 5 permits"

	// Locked reports whether a caller has the lock. Without, the process keeps the key for its next
	// caller and gives it back when another process asks; or the process could not be asked.
	Locked bool `json:"locked"`

	Fence Fence     `json:"fence,omitempty"` // token of the lock; if the process could not be asked, the first of its hold
	Since time.Time `json:"since,omitzero"`  // by this process's clock; zero: not known, or not yet
	Turns int       `json:"turns,omitempty"` // locks under the present hold, or since another process asked for the key
	Label string    `json:"label,omitempty"` // of WithLabel; with readers, one of Labels

	// Readers are callers that read, or that have permits of the block. 0: the process keeps the
	// lock or the block for the next one, or could not be asked.
	Readers int      `json:"readers,omitempty"`
	Labels  []string `json:"labels,omitempty"` // of readers that have one, or of callers with permits, sorted

	Permits int `json:"permits,omitempty"` // of a semaphore, which this holder has: a block that its callers share
	Of      int `json:"of,omitempty"`      // and how many the semaphore has
	Free    int `json:"free,omitempty"`    // of Permits, those that no caller has now

	name string // of the hold
}

// A KeyWaiter is the callers of one process that wait for a key.
type KeyWaiter struct {
	Process
	Mode    string    `json:"mode,omitempty"`    // as KeyHolder.Mode
	Callers int       `json:"callers,omitempty"` // 0: the process could not be asked
	Since   time.Time `json:"since,omitzero"`    // of the first of them
	Labels  []string  `json:"labels,omitempty"`  // of WithLabel, of those that have one
	Permits int       `json:"permits,omitempty"` // as KeyHolder.Permits, that they wait for
	Of      int       `json:"of,omitempty"`      // as KeyHolder.Of
}

// Unanswered is a process that did not answer.
type Unanswered struct {
	Process
	Reason string `json:"reason"`
}

// Inspect tells which process has a key, since when, and which processes wait for it, in the order
// in which they get it. It asks the key's owner, the arbiter if there is none, and then the
// processes that these name. Without a cluster, and where a process does not answer, the arbiter
// knows holder and waiters, but no times, callers and labels. The answers are of slightly different
// moments. At most 64 waiting nodes and 64 labels of each are told, and 64 holds of readers, or of
// permits.
//
// Readers come after the others that wait, and so do callers that wait for permits, which
// [Semaphore.Inspect] tells of. Without an owner only those of processes with a stream to this one
// are known.
//
// Each question may take Options.CallTimeout. Errors: [ErrInvalidKey]; [ErrUnavailable] if neither
// an owner nor the arbiter answers.
func (c *Coordinator) Inspect(ctx context.Context, key string) (KeyInfo, error) {
	if err := validateKey(key); err != nil {
		return KeyInfo{}, err
	}
	return c.inspect(ctx, key)
}

// inspect is Inspect of a key, or of a semaphore's.
func (c *Coordinator) inspect(ctx context.Context, key string) (KeyInfo, error) {
	x := &inspection{c: c, question: question{About: "keys", Keys: [][]byte{[]byte(key)}, Names: true}}
	x.info = KeyInfo{Key: key, Partition: c.partitionOf(key).Number()}
	turn := make(chan struct{}, 1) // no sync.Once: a bubble of testing/synctest would not go on while one waits for it
	var cards map[string]card
	x.listed = func() map[string]card {
		turn <- struct{}{}
		defer func() { <-turn }()
		if cards == nil {
			if cards, _ = c.list(ctx); cards == nil {
				cards = make(map[string]card) // without it names are missing
			}
		}
		return cards
	}
	if owner := x.owner(ctx); owner.Epoch > 0 {
		x.owned(ctx, owner)
		return x.info, nil
	}
	state, err := x.arbiter(ctx)
	if err != nil {
		return KeyInfo{}, err
	}
	x.info.Epoch = state.Record.Epoch
	x.recorded(ctx, state.Record.Owner, state.Rows[0])
	return x.info, nil
}

// errNotServing is the reason of Unanswered of an owner that has frozen the partition, or does not
// grant its keys yet.
var errNotServing = errors.New("it does not serve the key's partition at present")

// recorded fills in the answer of the owner that the record names. An owner that does not serve
// knows no holders: a hold in force has a row, or is about to get one.
func (x *inspection) recorded(ctx context.Context, session string, row fallback.Row) {
	if session == "" {
		x.shared(ctx, row)
		return
	}
	owner := x.ask(ctx, session)
	if owner.err == nil && owner.Epoch == 0 {
		if row != (fallback.Row{}) {
			x.shared(ctx, row)
			return
		}
		owner.err = errNotServing
	}
	x.owned(ctx, owner)
}

// inspection is one call of Inspect.
type inspection struct {
	c        *Coordinator
	question question
	info     KeyInfo
	names    [][]byte               // of holds that are not exclusive
	listed   func() map[string]card // by session, as the arbiter lists them
}

// seen is one process's knowledge of the key.
type seen struct {
	Process
	keyPart
	err error // why the process did not answer
}

// owner asks the node that should own the partition.
func (x *inspection) owner(ctx context.Context) seen {
	if here := x.here(); here.Epoch > 0 {
		return here
	}
	l, ok := x.c.cluster.route(x.info.Partition).Link.(*link)
	if !ok {
		return seen{}
	}
	return x.askLink(ctx, l)
}

func (x *inspection) here() seen {
	v := seen{Process: x.c.process(), keyPart: x.c.partOf(x.info.Key)}
	v.Names = x.c.namesHere(x.info.Key)
	return v
}

// ask asks the process that has a session.
func (x *inspection) ask(ctx context.Context, session string) seen {
	if session == x.c.sessions.id() {
		return x.here()
	}
	v := seen{err: errNoNode}
	if l := x.c.cluster.linkTo(session); l != nil {
		v = x.askLink(ctx, l)
	}
	if v.err != nil {
		v.Process = x.process(session)
	}
	return v
}

func (x *inspection) askLink(ctx context.Context, l *link) seen {
	a, err := x.c.askLink(ctx, l, x.question)
	switch {
	case err != nil:
		return seen{err: err}
	case len(a.Keys) != 1 || string(a.Keys[0].Key) != x.info.Key:
		return seen{err: errAnswer}
	}
	return seen{Process: a.Process, keyPart: a.Keys[0]}
}

// process describes a process that does not answer.
func (x *inspection) process(session string) Process {
	k, ok := card{}, false
	if m := x.c.cluster; m != nil {
		k, ok = m.members.card(m.members.nodeOf(session))
	}
	if !ok {
		k = x.listed()[session]
	}
	return k.process(session)
}

// list returns the cards that the arbiter lists, by session, but for those of observers. Errors:
// ErrUnavailable.
func (c *Coordinator) list(ctx context.Context) (map[string]card, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	ns, err := c.space(ctx)
	if err != nil {
		return nil, err
	}
	sent := c.now()
	all, err := ns.List(ctx)
	c.called(OpList, sent, err)
	if err != nil {
		return nil, fmt.Errorf("%w: the sessions could not be listed: %w", ErrUnavailable, err)
	}
	cards := make(map[string]card, len(all.Sessions))
	for session, text := range all.Sessions {
		if k := decodeCard(text); !isObserver(k.Node) {
			cards[session] = k
		}
	}
	return cards, nil
}

// arbiter reads the record, and the row of the key.
func (x *inspection) arbiter(ctx context.Context) (fallback.State, error) {
	ctx, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	ns, err := x.c.partitionSpace(ctx)
	if err != nil {
		return fallback.State{}, err
	}
	sent := x.c.now()
	s := ns.Verify(ctx, []fallback.Read{{Partition: x.info.Partition, Keys: []string{x.info.Key}}})[0]
	x.c.called(OpVerify, sent, s.Err)
	if s.Err != nil {
		return s, fmt.Errorf("%w: %w", ErrUnavailable, s.Err)
	}
	return s, nil
}

// owned fills in the answer of the owner, and those of the processes that it names.
func (x *inspection) owned(ctx context.Context, owner seen) {
	x.info.Owner = &owner.Process
	if owner.err != nil {
		x.info.Unknown, x.info.NotServing = true, errors.Is(owner.err, errNotServing)
		x.missed(owner)
		return
	}
	x.info.Epoch = owner.Epoch
	x.named(owner.Names)
	holder, given := "", owner.Given
	switch {
	case given != nil:
		holder = given.Session
	case owner.Locked:
		holder, given = owner.Session, &givenPart{}
	}
	for i, session := range owner.Queue {
		if session == "" {
			owner.Queue[i] = owner.Session
		}
	}
	if holder == "" && owner.Waiting > 0 {
		owner.Queue = append(owner.Queue, owner.Session)
	}
	x.tell(ctx, holder, given, owner.Queue, nil)
}

// shared is owned where the arbiter grants the key. row is the key's.
func (x *inspection) shared(ctx context.Context, row fallback.Row) {
	others := []string{x.c.sessions.id()}
	if m := x.c.cluster; m != nil {
		for _, l := range m.all() {
			others = append(others, l.Session())
		}
	}
	x.tell(ctx, row.Session, &givenPart{Token: Fence(row.Token)}, x.queue(ctx), others)
}

// queue returns the sessions that wait at the arbiter, in order, as far as it tells.
func (x *inspection) queue(ctx context.Context) (sessions []string) {
	lister, ok := (*x.c.remote.namespace.Load()).(fallback.WaiterLister)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	sent := x.c.now()
	waiters, err := lister.Waiters(ctx, x.info.Partition, x.info.Key, mostWaiters)
	x.c.called(OpRows, sent, err)
	if err != nil {
		x.info.Unanswered = append(x.info.Unanswered, Unanswered{Process{Name: "arbiter"}, err.Error()})
	}
	for _, w := range waiters {
		sessions = append(sessions, w.Session)
	}
	return sessions
}

// tell asks the holder, the processes that wait in order, and others that may have waiting callers.
// The holder hands the key to its own callers first.
func (x *inspection) tell(ctx context.Context, holder string, given *givenPart, queue, others []string) {
	defer x.tellShared(ctx, others)
	var sessions []string
	for _, session := range slices.Concat([]string{holder}, queue, others) {
		if session != "" && !slices.Contains(sessions, session) {
			sessions = append(sessions, session)
		}
	}
	all := make([]seen, len(sessions))
	var work sync.WaitGroup
	for i, session := range sessions {
		work.Go(func() { all[i] = x.ask(ctx, session) })
	}
	work.Wait()
	for i, v := range all {
		session := sessions[i]
		x.named(v.Names)
		if v.err != nil && x.c.cluster != nil {
			x.missed(v)
		}
		if session == holder {
			x.holds(v, given)
		}
		if v.Waiting > 0 || v.err != nil && slices.Contains(queue, session) {
			w := KeyWaiter{Process: v.Process, Callers: v.Waiting, Since: x.c.ago(v.Waited), Labels: v.Labels}
			x.info.Waiters = append(x.info.Waiters, w)
		}
	}
}

// holds notes the holder. given is its grantor's knowledge.
func (x *inspection) holds(v seen, given *givenPart) {
	h := &KeyHolder{Process: v.Process, Locked: v.Locked, Fence: v.Fence, Turns: v.Turns, Label: v.Label, Since: x.c.ago(v.Held)}
	if v.err != nil {
		h.Fence, h.Since = given.Token, x.c.ago(given.Held)
	}
	x.info.Holder = h
}

// missed notes a process that did not answer.
func (x *inspection) missed(v seen) {
	x.info.Unanswered = append(x.info.Unanswered, Unanswered{v.Process, v.err.Error()})
}

// ago returns the time before a duration, zero for 0.
func (c *Coordinator) ago(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return c.now().Add(-d)
}
