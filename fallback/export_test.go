package fallback

import "context"

// What the tests see of the inside.
var (
	CheckInfo     = checkInfo
	ParseInfo     = parseInfo
	ParseMessage  = parseMessage
	DecodeRow     = decodeRow
	Refused       = refused
	ErrReplica    = errReplica
	ErrDenied     = errDenied
	DecodeSecrets = decodeSecrets
	CompareClocks = compareClocks
)

// EpochZero is what epochs count seconds from.
const EpochZero = epochZero

// Encode is the text of a row.
func (r Row) Encode() string { return r.encode() }

// Encode is the text of guardians.
func (g Guardians) Encode() string { return g.encode() }

// Injure gives f the state of a namespace, to change it.
func (a *Memory) Injure(namespace string, f func(*Sessions, []Partition)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.spaces[namespace]
	f(&s.sessions, s.parts)
}

// Tap keeps the messages for a session until the function it returns is called, which returns them.
func (a *Memory) Tap(namespace, session string) func() []Message {
	l := &listener{signal: make(chan struct{}, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners[namespace+" "+session] = l
	return func() []Message {
		l.mu.Lock()
		defer l.mu.Unlock()
		q := l.queue
		l.queue = nil
		return q
	}
}

// Reformat formats a namespace on a Redis that was flushed, as Attach does with ColdStart.
func Reformat(ctx context.Context, n Namespace) error {
	n.(*redisSpace).secrets.Store(nil)
	return n.(*redisSpace).formatAs(ctx, "cold")
}

// Adopt is n.Restore of one hold, granted at its token's epoch.
func Adopt(ctx context.Context, n HoldStore, p uint32, key string, row Row) (Verdict, error) {
	return restore(ctx, n, p, Claim{Key: key, Row: row, Owned: row.Token.Epoch()})
}

// ReclaimRow is n.Restore of one hold that rests on its row.
func ReclaimRow(ctx context.Context, n HoldStore, p uint32, key string, row Row) (Verdict, error) {
	return restore(ctx, n, p, Claim{Key: key, Row: row})
}

func restore(ctx context.Context, n HoldStore, p uint32, c Claim) (Verdict, error) {
	r := n.Restore(ctx, []Claims{{Partition: p, Holds: []Claim{c}}})[0]
	if r.Err != nil {
		return 0, r.Err
	}
	return r.Verdicts[0], nil
}

// Verify is n.Verify for those who want one error.
func Verify(ctx context.Context, n Namespace, reads []Read) ([]State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}
