package fallback

import "context"

// What the tests see of the inside.
var (
	CheckInfo    = checkInfo
	ParseInfo    = parseInfo
	ParseMessage = parseMessage
	DecodeRow    = decodeRow
	Refused      = refused
	ErrReplica   = errReplica
)

// EpochZero is what epochs count seconds from.
const EpochZero = epochZero

// Encode is the text of a row.
func (r Row) Encode() string { return r.encode() }

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
	return n.(*redisSpace).formatAs(ctx, "cold")
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
