// Package spec is the lock protocol as seen from outside: the nodes that serve a partition, with
// their epochs, and the nodes that have holds of its keys. It is a deterministic state machine
// without times, faults and messages.
//
// Two things are compared with it, by the same events. Package model checks, while it explores,
// that each of its transitions is one that State.Step allows. Package sim has the events of its
// runs checked, which the code of package lease has made. So the model and the code cannot part in
// anything that this package sees.
package spec

import (
	"fmt"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Kind is the kind of an Event.
type Kind uint8

// The kinds of events. Those of the arbiter happen when it has executed a call. Those that are sent
// happen when a node calls.
const (
	Acquired  Kind = iota + 1 // the arbiter gives the partition to Session at Epoch, and answers with Rows
	Served                    // Session begins to serve Epoch
	Frozen                    // Session ends its service of Epoch
	Kept                      // Session has frozen Epoch, and Hold is one of its own callers: it gets an identity
	Granted                   // Session, which serves the partition, grants Hold to another one
	Took                      // Session, which serves the partition, grants Hold to a caller of its own: when that ends, is not seen
	Demoted                   // sent: Session demotes Epoch, with Rows
	Forsworn                  // sent: Session demotes Epoch, which it does not serve
	Reclaimed                 // sent: Session wants its ownership of Epoch back
	Locked                    // the arbiter grants Hold
	Accepted                  // the node of Hold's session begins to hold it
	Dropped                   // the node of Hold's session ends it
	Unlocked                  // sent: the row of Hold's identity is to go
	Adopted                   // sent: Hold is to have a row, or to have it again
	Dead                      // the arbiter says that Session is dead
	Over                      // Session is over by its own node's clock, or its process has ended
	Opened                    // there is a new Session

	Kinds // so many, and one more
)

var kinds = [...]string{
	Acquired: "acquired", Served: "serves", Frozen: "freezes", Kept: "keeps", Granted: "grants", Took: "takes", Demoted: "demotes", Forsworn: "forswears",
	Reclaimed: "reclaims", Locked: "locked", Accepted: "accepts", Dropped: "drops", Unlocked: "unlocks", Adopted: "adopts", Dead: "is dead",
	Over: "is over", Opened: "opens",
}

// String returns the Kind's name.
func (k Kind) String() string { return kinds[k] }

// A Hold is a right to a key, of the session in its Row.
type Hold struct {
	Key    string
	Name   string // of the row
	Shared bool   // it stands beside other shared ones

	// It was granted to a session that has the exclusive hold, or a row of it. A caller gets it if
	// that hold is in force then.
	Downgraded bool

	fallback.Row
}

// An Event is something that happens to a partition or to one of its keys.
type Event struct {
	Kind    Kind
	Session string
	Epoch   uint32
	Hold    Hold
	Rows    []fallback.Row
}

// String returns the event on a line.
func (e *Event) String() string {
	switch e.Kind {
	case Granted, Took:
		return fmt.Sprintf("%.4s %v %v", e.Session, e.Kind, &e.Hold)
	case Kept:
		return fmt.Sprintf("%.4s %v %v, of epoch %d", e.Session, e.Kind, &e.Hold, e.Epoch)
	case Locked, Accepted, Dropped, Unlocked, Adopted:
		return fmt.Sprintf("%v %v", e.Kind, &e.Hold)
	case Dead, Over, Opened:
		return fmt.Sprintf("%.4s %v", e.Session, e.Kind)
	}
	return fmt.Sprintf("%.4s %v epoch %d, %d rows", e.Session, e.Kind, e.Epoch, len(e.Rows))
}

// String returns the hold on a line.
func (h *Hold) String() string {
	return fmt.Sprintf("%q (shared %t) of %.4s %d, token %d.%d", h.Key, h.Shared, h.Session, h.Request, h.Token.Epoch(), h.Token.Seq())
}

// An Answer tells whether a deadline has passed by its node's clock.
type Answer uint8

// The answers. Unknown lets the event happen, and changes nothing.
const (
	Lasts Answer = iota
	Lapsed
	Unknown
)

// A State is the knowledge of a partition. Its zero value knows nothing. It is used by one
// goroutine at a time.
type State struct {
	Top     uint32            // the highest epoch that was given out
	Takers  map[uint32]string // sessions, by the epochs given to them
	Given   map[uint32]string // epochs that a session may begin to serve
	Had     map[uint32]string // epochs that a session has served
	Serving []Service
	Holds   []Hold

	Offers   map[fallback.Identity]fallback.Token // holds that a node may begin to have
	Accepted map[fallback.Identity]fallback.Token // holds that there are or were
	Last     map[string]Tokens                    // by key
	Dead     map[string]bool

	// Lapsed looks whether a service, or a hold, has ended by its node's clock, without an event.
	// nil: none ever has.
	Lapsed func(session string, epoch uint32, h *Hold) Answer
}

// A Service is a session that serves the partition.
type Service struct {
	Session string
	Epoch   uint32
	Seq     uint32 // of the last token that it has given to another node
}

// Tokens are the highest of a key that were accepted.
type Tokens struct{ Any, Exclusive fallback.Token }

// New returns the state of a new partition.
func New() *State {
	return &State{
		Takers: make(map[uint32]string), Given: make(map[uint32]string), Had: make(map[uint32]string), Offers: make(map[fallback.Identity]fallback.Token),
		Accepted: make(map[fallback.Identity]fallback.Token), Last: make(map[string]Tokens), Dead: make(map[string]bool),
	}
}

// Step applies the event. It returns an error that names a rule (docs/protocol.md) if the
// specification does not allow it.
func (s *State) Step(e *Event) error {
	switch e.Kind {
	case Dead:
		return s.die(e.Session)
	case Over:
		s.over(e.Session)
	case Opened:
		delete(s.Dead, e.Session)
	case Acquired, Served, Frozen, Demoted, Forsworn, Reclaimed:
		return s.stepOwner(e)
	default:
		return s.stepHold(e)
	}
	return nil
}

func (s *State) stepOwner(e *Event) error {
	switch e.Kind {
	case Acquired:
		if s.Takers[e.Epoch] == e.Session { // a call that is executed again
			return nil
		}
		if e.Epoch <= s.Top {
			return fmt.Errorf("I6: epoch %d was given out after %d", e.Epoch, s.Top)
		}
		if x := s.other(""); x != nil {
			return fmt.Errorf("I4: the partition is given away while %.4s serves it at %d", x.Session, x.Epoch)
		}
		s.Top = e.Epoch
		s.Given[e.Epoch], s.Takers[e.Epoch] = e.Session, e.Session
		for _, r := range e.Rows {
			s.Offers[r.Identity] = r.Token
		}
	case Served:
		switch x := s.other(e.Session); {
		case s.Dead[e.Session]:
			return fmt.Errorf("rule 1: the session is over")
		case s.Given[e.Epoch] != e.Session:
			return fmt.Errorf("rule 6: the epoch was not given to it, was served before, or forsworn")
		case x != nil:
			return fmt.Errorf("I4: %.4s serves the partition at %d", x.Session, x.Epoch)
		}
		delete(s.Given, e.Epoch)
		s.Had[e.Epoch] = e.Session
		s.ended(e.Session, 0)
		s.Serving = append(s.Serving, Service{Session: e.Session, Epoch: e.Epoch})
	case Frozen:
		if s.Had[e.Epoch] != e.Session {
			return fmt.Errorf("rule 5: it freezes what it has not served")
		}
		s.ended(e.Session, e.Epoch)
	case Demoted:
		if s.serves(e.Session, e.Epoch) {
			return fmt.Errorf("rule 5: it demotes before it freezes")
		}
		return s.whole(e)
	case Forsworn:
		if s.serves(e.Session, e.Epoch) {
			return fmt.Errorf("rule 6: it demotes what it serves as if it did not")
		}
		for epoch, session := range s.Given {
			if epoch <= e.Epoch && session == e.Session {
				delete(s.Given, epoch)
			}
		}
	case Reclaimed:
		if s.Had[e.Epoch] != e.Session {
			return fmt.Errorf("I6: it reclaims what it has not served")
		}
		s.Takers[e.Epoch] = e.Session
	}
	return nil
}

func (s *State) stepHold(e *Event) error {
	h := &e.Hold
	switch e.Kind {
	case Kept:
		if s.Had[e.Epoch] != e.Session || h.Session != e.Session || h.Token.Epoch() != e.Epoch || s.serves(e.Session, e.Epoch) {
			return fmt.Errorf("rule 5: it keeps a hold that is not of the epoch that it has frozen")
		}
		return s.have(h)
	case Granted:
		if err := s.give(e); err != nil {
			return err
		}
		s.Offers[h.Identity] = h.Token
	case Took:
		if err := s.give(e); err != nil {
			return err
		}
		if err := s.order(h); err != nil {
			return err
		}
		return s.free(h)
	case Locked:
		if x := s.other(""); x != nil {
			return fmt.Errorf("I4: the arbiter grants the key while %.4s serves the partition at %d", x.Session, x.Epoch)
		}
		s.Offers[h.Identity] = h.Token
	case Accepted:
		return s.accept(h)
	case Dropped:
		if s.Accepted[h.Identity] != h.Token {
			return fmt.Errorf("rule 9: it was not had")
		}
		s.drop(h.Identity)
	case Unlocked:
		for i := range s.Holds {
			if o := &s.Holds[i]; o.Identity == h.Identity && !s.gone(o) {
				return fmt.Errorf("rule 9: the hold is in force")
			}
		}
		delete(s.Offers, h.Identity)
	case Adopted:
		if s.Accepted[h.Identity] != h.Token {
			return fmt.Errorf("rule 7: a row is asked for that no hold had")
		}
	}
	return nil
}

// give notes a token. The session that gives it out has to serve the partition.
func (s *State) give(e *Event) error {
	t := e.Hold.Token
	for i := range s.Serving {
		if x := &s.Serving[i]; x.Session == e.Session && x.Epoch == t.Epoch() {
			if t.Seq() <= x.Seq {
				return fmt.Errorf("I2: it gave out token %d.%d before", x.Epoch, x.Seq)
			}
			x.Seq = t.Seq()
			return nil
		}
	}
	return fmt.Errorf("I4: it does not serve the partition at that epoch")
}

// accept makes a node begin to have a hold that was granted to it.
func (s *State) accept(h *Hold) error {
	switch {
	case s.Offers[h.Identity] != h.Token:
		return fmt.Errorf("rule 13: it was not granted, or was released before")
	case h.Downgraded && !s.downgrades(h):
		s.Accepted[h.Identity] = h.Token // its node gives it back
		return nil
	}
	if err := s.order(h); err != nil {
		return err
	}
	return s.have(h)
}

// order notes the token of a hold that begins.
func (s *State) order(h *Hold) error {
	t := s.Last[h.Key]
	if !h.Shared && h.Token <= t.Any || h.Token <= t.Exclusive {
		return fmt.Errorf("I2: a token was accepted that is %d.%d", t.Any.Epoch(), t.Any.Seq())
	}
	if t.Any = max(t.Any, h.Token); !h.Shared {
		t.Exclusive = h.Token
	}
	s.Last[h.Key] = t
	return nil
}

// downgrades reports whether the session has the exclusive hold. One that has lapsed unnoticed is
// had: no other request is made for the key before its node drops it.
func (s *State) downgrades(h *Hold) bool {
	for i := range s.Holds {
		if o := &s.Holds[i]; o.Key == h.Key && o.Session == h.Session && !o.Shared {
			return true
		}
	}
	return false
}

// have adds a hold to those that there are.
func (s *State) have(h *Hold) error {
	if s.Dead[h.Session] {
		return fmt.Errorf("rule 1: the session is over")
	}
	if err := s.free(h); err != nil {
		return err
	}
	s.Accepted[h.Identity] = h.Token
	s.drop(h.Identity)
	s.Holds = append(s.Holds, *h)
	return nil
}

// free returns an error if a hold that begins may not stand beside those that there are.
func (s *State) free(h *Hold) error {
	for i := 0; i < len(s.Holds); i++ {
		o := s.Holds[i]
		if o.Key != h.Key || o.Session == h.Session || o.Shared && h.Shared {
			continue
		}
		switch s.lapsed(o.Session, 0, &o) {
		case Lasts:
			return fmt.Errorf("I1: there is %v", &o)
		case Lapsed:
			s.drop(o.Identity)
			i--
		}
	}
	return nil
}

// whole checks that the rows that are written have all holds of the epoch that are in force.
func (s *State) whole(e *Event) error {
	if s.Had[e.Epoch] != e.Session {
		return fmt.Errorf("rule 5: it demotes what it has not served")
	}
	for i := range s.Holds {
		h := &s.Holds[i]
		if h.Token.Epoch() == e.Epoch && !has(e.Rows, h.Identity) && !s.gone(h) {
			return fmt.Errorf("rule 5: the rows lack %v", h)
		}
	}
	return nil
}

func has(rows []fallback.Row, id fallback.Identity) bool {
	for i := range rows {
		if rows[i].Identity == id {
			return true
		}
	}
	return false
}

// die makes the arbiter take a session for dead (I3).
func (s *State) die(session string) error {
	for _, x := range s.Serving {
		if x.Session == session && s.lapsed(session, x.Epoch, nil) == Lasts {
			return fmt.Errorf("I3: it serves the partition at %d", x.Epoch)
		}
	}
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Session == session && !s.gone(h) {
			return fmt.Errorf("I3: it has %v", h)
		}
	}
	s.over(session)
	return nil
}

// over ends all that is in force of a session.
func (s *State) over(session string) {
	s.ended(session, 0)
	holds := s.Holds[:0]
	for _, h := range s.Holds {
		if h.Session != session {
			holds = append(holds, h)
		}
	}
	s.Holds = holds
	for epoch, x := range s.Given {
		if x == session {
			delete(s.Given, epoch)
		}
	}
	s.Dead[session] = true
}

// other returns a service of another session, which lasts.
func (s *State) other(session string) *Service {
	for i := 0; i < len(s.Serving); i++ {
		x := s.Serving[i]
		if x.Session == session {
			continue
		}
		switch s.lapsed(x.Session, x.Epoch, nil) {
		case Lasts:
			return &x
		case Lapsed:
			s.ended(x.Session, x.Epoch)
			i--
		}
	}
	return nil
}

func (s *State) serves(session string, epoch uint32) bool {
	for _, x := range s.Serving {
		if x.Session == session && x.Epoch == epoch {
			return s.lapsed(session, epoch, nil) == Lasts
		}
	}
	return false
}

// ended ends the service of a session, of any epoch if that is 0.
func (s *State) ended(session string, epoch uint32) {
	for i, x := range s.Serving {
		if x.Session == session && (epoch == 0 || x.Epoch == epoch) {
			s.Serving = append(s.Serving[:i], s.Serving[i+1:]...)
			return
		}
	}
}

func (s *State) drop(id fallback.Identity) {
	for i := range s.Holds {
		if s.Holds[i].Identity == id {
			s.Holds = append(s.Holds[:i], s.Holds[i+1:]...)
			return
		}
	}
}

// gone reports whether a hold may be over.
func (s *State) gone(h *Hold) bool { return s.lapsed(h.Session, 0, h) != Lasts }

func (s *State) lapsed(session string, epoch uint32, h *Hold) Answer {
	if s.Lapsed == nil {
		return Lasts
	}
	return s.Lapsed(session, epoch, h)
}
