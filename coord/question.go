package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/peer"
)

// Nodes ask each other about keys, in JSON, which travels in the Key fields of Query and Answer
// frames. Request is the number of the question. All parts but the last have flagMore. A node asks
// only nodes with a card that says that they answer: to older ones these frames are errors. A node
// ignores fields that it does not know, and refuses questions that it does not know.

// flagMore in a Query or Answer frame: another part follows.
const flagMore = 1

// Bounds of questions. A grant may have to wait until a text is written.
const (
	maxText      = 64 << 10 // bytes of a question or an answer
	maxQuestions = 16       // that wait for a node's answers
	maxAsked     = 4        // of one other node among them
)

// A question is a node's question to another one.
type question struct {
	About  string   `json:"about"` // keys, held, top, waits, node, break or drain
	Keys   [][]byte `json:"keys,omitempty"`
	Names  bool     `json:"names,omitempty"`  // of keys: also the names of their holds
	Most   int      `json:"most,omitempty"`   // of held and top
	By     By       `json:"by,omitempty"`     // of top
	Wanted bool     `json:"wanted,omitempty"` // of LongestHeld: LongestWanted; older nodes tell of all
	Fence  Fence    `json:"fence,omitempty"`  // of break, and Keys[0]
	Why    string   `json:"why,omitempty"`    // of break and drain
}

// A reply is a node's answer to a question.
type reply struct {
	Process Process     `json:"process"`
	Keys    []keyPart   `json:"keys,omitempty"`
	More    int         `json:"more,omitempty"`   // keys that were left out
	Left    int         `json:"left,omitempty"`   // keys that were not looked at, as that would have taken too long
	Broken  bool        `json:"broken,omitempty"` // the lock
	Node    *NodeReport `json:"node,omitempty"`
	Waits   []waitPart  `json:"waits,omitempty"`  // of callers that have one of the keys
	Behind  []placePart `json:"behind,omitempty"` // of requests for reading one of the keys
	Error   string      `json:"error,omitempty"`
}

// A keyPart is one node's knowledge of a key. Times are told as durations, since clocks differ.
type keyPart struct {
	Key      []byte        `json:"key"`
	Epoch    uint32        `json:"epoch,omitempty"` // of the partition, if the node serves it; 0: it does not
	Locked   bool          `json:"locked,omitempty"`
	Kept     bool          `json:"kept,omitempty"`
	Fence    Fence         `json:"fence,omitempty"`
	Held     time.Duration `json:"held,omitempty"`
	Turns    int           `json:"turns,omitempty"`
	Wanted   bool          `json:"wanted,omitempty"`
	Label    string        `json:"label,omitempty"`
	Waiting  int           `json:"waiting,omitempty"`
	Waited   time.Duration `json:"waited,omitempty"`
	Expected bool          `json:"expected,omitempty"` // of ExpectLong; nodes of the version before do not tell
	Labels   []string      `json:"labels,omitempty"`   // of callers that wait
	Given    *givenPart    `json:"given,omitempty"`
	Queue    []string      `json:"queue,omitempty"`   // sessions of nodes that wait; "": the node that answers
	Names    [][]byte      `json:"names,omitempty"`   // of a key: its holds that are not exclusive, as far as the node knows
	Readers  int           `json:"readers,omitempty"` // or callers with permits
	Reading  []string      `json:"reading,omitempty"` // labels of readers, or of callers with permits
	Free     int           `json:"free,omitempty"`    // permits that no caller has
}

// A givenPart is another node's hold as its owner knows it.
type givenPart struct {
	Session string        `json:"session"`
	Node    string        `json:"node,omitempty"`
	Token   Fence         `json:"token"`
	Held    time.Duration `json:"held,omitempty"`
}

// asked is a question of another node.
type asked struct {
	l  *link
	id uint64
	question
}

// asks are the questions on one stream, in both directions.
type asks struct {
	mu   mutex[leafRank] // protects the fields below, and keeps the parts of a text together
	last uint64
	open map[uint64]*pending

	part    []byte // of the other node's question; of the read loop only
	partOf  uint64
	waiting atomic.Int32 // questions of the other node that are not answered
}

// pending is a question of this node that is not answered.
type pending struct {
	text []byte
	done chan struct{} // closed when text is whole, or the stream has ended
	err  error
}

var (
	errOldNode = errors.New("it is of a version that answers no questions: upgrade it")
	errNoNode  = errors.New("there is no stream to it")
	errAnswer  = errors.New("its answer is malformed")

	errNoCluster = errors.New("without Options.Cluster other processes cannot be asked")
	errTwoNodes  = errors.New("several nodes have that name: use the ID")
)

// ask asks the other node, and waits for its answer until ctx ends.
func (l *link) ask(ctx context.Context, q question) (a reply, err error) {
	if k, ok := l.x.members.card(l.Node()); !ok || !k.Answers {
		return a, errOldNode
	}
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	w := &pending{done: make(chan struct{})}
	l.asks.mu.Lock()
	if l.Down() {
		l.asks.mu.Unlock()
		return a, errNoNode
	}
	if l.asks.open == nil {
		l.asks.open = make(map[uint64]*pending)
	}
	l.asks.last++
	id := l.asks.last
	l.asks.open[id] = w
	l.say(peer.Query, id, text)
	l.asks.mu.Unlock()
	l.s.Flush()
	select {
	case <-w.done:
	case <-ctx.Done():
		l.asks.mu.Lock()
		delete(l.asks.open, id)
		l.asks.mu.Unlock()
		return a, fmt.Errorf("it did not answer: %w", context.Cause(ctx))
	}
	if w.err != nil {
		return a, w.err
	}
	if json.Unmarshal(w.text, &a) != nil {
		return reply{}, errAnswer
	}
	if a.Error != "" {
		return reply{}, errors.New("it answers: " + quoted(a.Error))
	}
	return a, nil
}

// askLink asks a node, for CallTimeout at most.
func (c *Coordinator) askLink(ctx context.Context, l *link, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	return l.ask(ctx, q)
}

// say queues a text as frames, one after another: the caller sees to it that no other text of that
// kind comes between.
func (l *link) say(kind peer.Kind, id uint64, text []byte) {
	for more := true; more; {
		f := peer.Frame{Kind: kind, Request: id, Key: text[:min(len(text), peer.MaxKey)]}
		text = text[len(f.Key):]
		if more = len(text) > 0; more {
			f.Flags = flagMore
		}
		_ = l.s.Queue(&f) // an error ends the stream
	}
}

// replied takes a part of an answer.
func (l *link) replied(f *peer.Frame) {
	l.asks.mu.Lock()
	defer l.asks.mu.Unlock()
	w := l.asks.open[f.Request]
	if w == nil {
		return // given up
	}
	if len(w.text)+len(f.Key) > maxText {
		l.settle(f.Request, errAnswer)
		return
	}
	w.text = append(w.text, f.Key...)
	if f.Flags&flagMore == 0 {
		l.settle(f.Request, nil)
	}
}

// settle ends a question. l.asks.mu is held.
func (l *link) settle(id uint64, err error) {
	w := l.asks.open[id]
	delete(l.asks.open, id)
	w.err = err
	close(w.done)
}

// unanswered ends all questions, as the stream has ended.
func (l *link) unanswered() {
	l.asks.mu.Lock()
	defer l.asks.mu.Unlock()
	for id := range l.asks.open {
		l.settle(id, errNoNode)
	}
}

// queried takes a part of a question.
func (l *link) queried(f *peer.Frame) {
	if l.asks.partOf != f.Request {
		l.asks.partOf, l.asks.part = f.Request, nil
	}
	if len(l.asks.part)+len(f.Key) > maxText {
		l.s.Close(peer.ErrProtocol)
		return
	}
	l.asks.part = append(l.asks.part, f.Key...)
	if f.Flags&flagMore != 0 {
		return
	}
	q := asked{l: l, id: f.Request}
	err := json.Unmarshal(l.asks.part, &q.question)
	l.asks.partOf, l.asks.part = 0, nil
	if err != nil {
		l.s.Close(peer.ErrProtocol)
		return
	}
	if l.asks.waiting.Add(1) <= maxAsked {
		select {
		case l.x.asked.questions <- q:
			return
		default:
		}
	}
	q.answer(reply{Error: "too many questions at once: ask again"})
}

// answer sends an answer.
func (q *asked) answer(a reply) {
	q.l.asks.waiting.Add(-1)
	text := a.encode()
	q.l.asks.mu.Lock()
	q.l.say(peer.Answer, q.id, text)
	q.l.asks.mu.Unlock()
	q.l.s.Flush()
}

// unlabel leaves the labels out. It reports whether there were any.
func (a *reply) unlabel() (any bool) {
	for i := range a.Keys {
		k := &a.Keys[i]
		any = any || k.Label != "" || len(k.Labels) > 0 || len(k.Reading) > 0
		k.Label, k.Labels, k.Reading = "", nil, nil
	}
	return any
}

// encode leaves out the labels, and as many keys, as are too long for an answer.
func (a *reply) encode() []byte {
	for {
		text, err := json.Marshal(a)
		if err != nil {
			text = []byte(`{"error":"the answer cannot be encoded"}`)
		}
		if len(text) <= maxText {
			return text
		}
		if len(a.Keys) == 0 {
			if a.Process == (Process{}) && a.Node == nil {
				return []byte(`{"error":"the answer is too long"}`)
			}
			if a.Node != nil {
				a.Node = a.Node.shorter()
			} else {
				a.Process = Process{} // of a node that was made to have long names
			}
			continue
		}
		if a.unlabel() {
			continue
		}
		n := len(a.Keys) / 2
		a.More += len(a.Keys) - n
		a.Keys = a.Keys[:n]
	}
}

// keepAnswering answers other nodes' questions, one after another, until the coordinator stops. So
// they take one core at most.
func (x *cluster) keepAnswering() {
	for {
		select {
		case q := <-x.asked.questions:
			q.answer(x.c.answer(x.c.life.ctx, q.question))
		case <-x.c.life.ctx.Done():
			return
		}
	}
}
