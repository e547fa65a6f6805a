package coord

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

// A KeySummary is a key in the answers of Held and Top.
type KeySummary struct {
	Key      string    `json:"key"`
	Mode     string    `json:"mode,omitempty"`     // as KeyHolder.Mode
	Holder   *Process  `json:"holder,omitempty"`   // nil: none of the processes that were asked has locked it
	Fence    Fence     `json:"fence,omitempty"`    // of the lock; of a holder that does not answer, the first of its hold
	Since    time.Time `json:"since,omitzero"`     // when that began, by this process's clock; zero: not known, or not yet
	Turns    int       `json:"turns,omitempty"`    // as KeyHolder.Turns
	Label    string    `json:"label,omitempty"`    // of WithLabel
	Wanted   bool      `json:"wanted,omitempty"`   // others were seen to ask for the key since then, of the holder's process or through it; they may have given up. False if the holder's process expects long waits
	Waiters  int       `json:"waiters,omitempty"`  // callers; of Held, those of the holder's process
	Waiting  time.Time `json:"waiting,omitzero"`   // since when the first of the waiters waits, of those that are not Expected if there are any
	Expected bool      `json:"expected,omitempty"` // the processes of all waiters expect that they wait for long (Coordinator.ExpectLong)

	given bool   // it is the owner that tells of the holder
	name  string // of the hold
}

// A KeyList is the answer of Held and Top.
type KeyList struct {
	Keys       []KeySummary `json:"keys"`
	More       int          `json:"more,omitempty"` // of Held: keys that were left out, or not looked at. Of Top: so many at most, as nodes had no room for them in their answers, or did not answer once more
	Unanswered []Unanswered `json:"unanswered,omitempty"`
}

// Held lists the keys that callers of a process have locked, sorted, 1000 at most. node is the
// NodeInfo.ID or Name of a node of the cluster, which is asked; "" is this process. Errors: a node
// that is not there, or does not answer within Options.CallTimeout.
func (c *Coordinator) Held(ctx context.Context, node string) (KeyList, error) {
	q := question{About: "held", Most: mostKeys}
	a, err := c.askNode(ctx, node, q)
	if err != nil {
		return KeyList{}, fmt.Errorf("coord: Held: node %s: %w", quoted(node), err)
	}
	list := KeyList{More: a.More + a.Left}
	for i := range a.Keys {
		list.Keys = append(list.Keys, c.summary(&a.Process, &a.Keys[i]))
	}
	return list, nil
}

// linkNamed returns the stream to a node by its ID, or by its name if no other has the same one.
func (x *cluster) linkNamed(node string) (*link, error) {
	if x == nil {
		return nil, errNoCluster
	}
	var found *link
	for _, l := range x.all() {
		switch {
		case l.Node() == node:
			return l, nil
		case ring.Process(l.Node()) != node:
		case found != nil:
			return nil, errTwoNodes
		default:
			found = l
		}
	}
	if found == nil {
		return nil, x.noStream(node)
	}
	return found, nil
}

// Top lists the first n keys in an order, over all nodes of the cluster; n is at most 1000. Without
// a cluster it is about this process. It asks each node for its own first n, and then all nodes
// about these keys, as far as they fit into a question. So keys with waiters that are spread over
// many nodes may be missed. So may keys of a node with so many that they do not fit into an answer
// (of 1000, half or a quarter do); KeyList.More tells. Nodes without a stream, and those that do
// not answer within Options.CallTimeout, are listed. So are those that could not look at all of
// their keys within half of it. The owners still tell of the keys that such nodes hold.
func (c *Coordinator) Top(ctx context.Context, n int, by By) (KeyList, error) {
	if by == 0 || int(by) >= len(orders) {
		return KeyList{}, fmt.Errorf("coord: Top: there is no order %v", by)
	}
	n = max(0, min(n, mostKeys))
	var links []*link
	if c.cluster != nil {
		links = c.cluster.all()
	}
	first := question{About: "top", Most: n, By: by}
	if by == LongestWanted {
		first.By, first.Wanted = LongestHeld, true
	}
	all, missed := c.askAll(ctx, links, first)
	list, more := KeyList{Unanswered: append(c.cluster.unlinked(links), missed...)}, 0
	for i := range all {
		more += all[i].More
	}
	list.merge(c, all, by)
	q, size := question{About: "keys"}, 0
	for _, k := range list.Keys {
		if size += 2*len(k.name) + 16; size > maxText || len(q.Keys) == mostKeys {
			break
		}
		q.Keys = append(q.Keys, []byte(k.name))
	}
	rest := list.Keys[len(q.Keys):]
	links = slices.DeleteFunc(links, func(l *link) bool {
		return slices.ContainsFunc(missed, func(u Unanswered) bool { return u.ID == l.Node() })
	})
	all, missed = c.askAll(ctx, links, q)
	for i := range all {
		more += all[i].More
	}
	list = KeyList{More: more, Unanswered: append(list.Unanswered, missed...)}
	list.merge(c, all, by)
	list.Keys = append(list.Keys, rest...)
	list.Keys = list.Keys[:min(n, len(list.Keys))]
	return list, nil
}

// noStream says that there is no stream to a node, given by its ID or name, and why if that is
// known.
func (x *cluster) noStream(node string) error {
	for _, f := range x.net.Failing() {
		if f.Node == node || ring.Process(f.Node) == node {
			return fmt.Errorf("%w: %w", errNoNode, f.Err)
		}
	}
	return errNoNode
}

// unlinked returns the live nodes without a stream, which are not asked.
func (x *cluster) unlinked(links []*link) (all []Unanswered) {
	if x == nil {
		return nil
	}
	for _, n := range x.ring.View().Live() {
		if n.Name == x.self.name || n.Unlisted || slices.ContainsFunc(links, func(l *link) bool { return l.Node() == n.Name }) {
			continue
		}
		p := Process{Name: ring.Process(n.Name), ID: n.Name, Session: n.Session}
		if k, ok := x.members.card(n.Name); ok {
			p = k.process(n.Session)
		}
		all = append(all, Unanswered{p, x.noStream(n.Name).Error()})
	}
	return all
}

// askAll asks nodes and this process at the same time.
func (c *Coordinator) askAll(ctx context.Context, links []*link, q question) (all []reply, missed []Unanswered) {
	answers, errs := make([]reply, len(links)), make([]error, len(links))
	var work sync.WaitGroup
	for i, l := range links {
		work.Go(func() { answers[i], errs[i] = c.askWhole(ctx, l, q) })
	}
	all = append(all, c.answer(ctx, q))
	work.Wait()
	for i, l := range links {
		if errs[i] == nil {
			all = append(all, answers[i])
			continue
		}
		k, _ := c.cluster.members.card(l.Node())
		p := Process{Name: ring.Process(l.Node()), ID: l.Node(), Session: l.Session(), Host: k.Host, PID: k.PID}
		missed = append(missed, Unanswered{p, errs[i].Error()})
	}
	return all, missed
}

// askWhole asks a node once more about the keys that its answer had no room for: the last ones.
// Where that is not answered, the reply's More says how many these are.
func (c *Coordinator) askWhole(ctx context.Context, l *link, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	a, err := c.askLink(ctx, l, q)
	if err != nil || q.About != "keys" {
		return a, err
	}
	for n := len(a.Keys); a.More > 0 && 0 < n && n < len(q.Keys); {
		q.Keys = q.Keys[n:]
		rest, err := c.askLink(ctx, l, q)
		if err != nil {
			break
		}
		n = len(rest.Keys)
		a.Keys, a.More = append(a.Keys, rest.Keys...), rest.More
	}
	return a, nil
}

// merge puts the answers of several processes together, in order.
func (l *KeyList) merge(c *Coordinator, all []reply, by By) {
	merged := make(map[string]*KeySummary)
	for i := range all {
		if n := all[i].Left; n > 0 {
			l.Unanswered = append(l.Unanswered, Unanswered{all[i].Process, fmt.Sprintf("it had no time to look at %d of its keys", n)})
		}
		for j := range all[i].Keys {
			s := c.summary(&all[i].Process, &all[i].Keys[j])
			if old := merged[s.name]; old != nil {
				old.add(&s)
			} else {
				merged[s.name] = &s
			}
		}
	}
	for _, s := range merged {
		if by == LongestWanted && !s.Wanted {
			continue
		}
		if s.Holder != nil || s.Waiters > 0 {
			l.Keys = append(l.Keys, *s)
		}
	}
	slices.SortFunc(l.Keys, by.compare)
}

// summary returns the summary of a process's part of a key.
func (c *Coordinator) summary(p *Process, k *keyPart) KeySummary {
	name := string(k.Key)
	s := KeySummary{Key: namedKey(name), Mode: modeOf(name), name: name, Waiters: k.Waiting, Waiting: c.ago(k.Waited)}
	s.Expected = k.Expected && k.Waiting > 0
	switch g := k.Given; {
	case k.Locked:
		s.Holder, s.Fence, s.Since, s.Turns, s.Label = p, k.Fence, c.ago(k.Held), k.Turns, k.Label
		s.Wanted = k.Wanted && !k.Expected
	case g != nil:
		s.given = true
		s.Holder = &Process{Name: ring.Process(g.Node), ID: g.Node, Session: g.Session}
		s.Fence, s.Since = g.Token, c.ago(g.Held)
	}
	return s
}

// add adds another process's summary.
func (s *KeySummary) add(o *KeySummary) {
	s.addWaiters(o)
	// The holder knows more than the owner. Of two holders the key was handed over meanwhile.
	if o.Holder != nil && (s.Holder == nil || s.given && !o.given || s.given == o.given && o.Fence > s.Fence) {
		s.Holder, s.Fence, s.Since, s.Turns, s.Label, s.given = o.Holder, o.Fence, o.Since, o.Turns, o.Label, o.given
		s.Wanted = o.Wanted
	}
}

// addWaiters adds another process's waiters. Where some are expected, how long the others wait is
// told.
func (s *KeySummary) addWaiters(o *KeySummary) {
	switch {
	case o.Waiters == 0:
		return
	case s.Waiters == 0 || s.Expected && !o.Expected:
		s.Waiting, s.Expected = o.Waiting, o.Expected
	case s.Expected == o.Expected && earlierFirst(o.Waiting, s.Waiting) < 0:
		s.Waiting = o.Waiting
	}
	s.Waiters += o.Waiters
}

// compare orders keys: negative if a comes first.
func (b By) compare(x, y KeySummary) int {
	n := 0
	switch b {
	case LongestHeld, LongestWanted:
		n = earlierFirst(x.Since, y.Since)
	case LongestWait:
		n = cmp.Or(expectedLast(&x, &y), earlierFirst(x.Waiting, y.Waiting))
	case MostWaitedFor:
		n = cmp.Or(expectedLast(&x, &y), cmp.Compare(y.Waiters, x.Waiters))
	case MostTaken:
		n = cmp.Compare(y.Turns, x.Turns)
	}
	return cmp.Or(n, cmp.Compare(x.Key, y.Key), cmp.Compare(x.name, y.name))
}

// expectedLast compares keys by whether long waits for them are expected.
func expectedLast(x, y *KeySummary) int {
	switch {
	case x.Expected == y.Expected:
		return 0
	case x.Expected:
		return 1
	}
	return -1
}

// earlierFirst compares times, with the zero time as the last one.
func earlierFirst(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return a.Compare(b)
	case a.IsZero():
		return 1
	}
	return -1
}
