package leasetest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// Times are those of all nodes. The others are of package coord's defaults.
type Times struct{ TTL, Margin, Grace, Linger time.Duration }

var defaults = Times{TTL: 10 * time.Second, Margin: time.Second, Grace: 12 * time.Second, Linger: time.Second}

const renewEvery, retryEvery, callTimeout = 2500 * time.Millisecond, 500 * time.Millisecond, time.Second

// lease returns the validity of an answer of the arbiter.
func (x Times) lease() time.Duration { return x.TTL - x.Margin }

// World is some nodes with one partition, and the arbiter's record of it.
type World struct {
	Nodes  []*Node
	Times  Times
	Quiet  bool // commands tell nothing
	now    time.Time
	server string
	record fallback.Partition
	owner  string // the node that should own the partition, as all rings say; "" is unknown
	dead   map[string]bool
	table  *fallback.Sessions // says which sessions are dead, besides; nil: there is none
	keeper string             // the server of the table
	capped time.Duration      // the most that an owner's grant is good for since a ping; 0: only its deadlines limit it
	ahead  time.Duration      // by so much the arbiter's clock is ahead
	log    []string

	newest map[string]uint64 // tokens, if not nil: a lower one breaks I2
	broken string            // an invariant that was violated
}

// Node is one node. Its calls to the arbiter take no time, and are made when the script says so.
type Node struct {
	w          *World
	Name       string
	P          lease.Partition
	session    *lease.Session
	cfg        lease.Config
	requests   atomic.Uint64
	offers     atomic.Int64
	ends       map[string]*end // of streams, by the other node
	running    []*lease.Contender
	calls      []*call // that are under way
	stray      []*call // that have failed, and may be executed
	doubts     []lease.Doubt
	rumors     []lease.Rumor // to be looked up
	again      []lease.Rumor // to be heard again
	missing    lease.Claims  // to be reclaimed
	releases   []fallback.Release
	frozen     lease.Frozen
	demoting   bool
	most       int       // keys of this node's that another one may have; 0: any number
	section    time.Time // until then a caller of an earlier session may be at work
	dead       bool      // its session has ended, and there is no other one
	left       bool      // it takes no partition any more
	turns      map[string]turn
	downgraded uint64 // token of the last downgraded hold that a turn was ceded for
	waiters    map[string][]*lease.Waiter
}

type turn struct {
	t     *lease.Turn
	fence uint64
}

// New returns nodes with sessions and streams between them, and a Shared record at epoch 101.
func New(names ...string) *World { return NewWith(defaults, names...) }

// NewWith is New with other times.
func NewWith(x Times, names ...string) *World {
	w := &World{Times: x, now: time.Date(2000, 1, 1, 0, 1, 41, 0, time.UTC), server: "one", dead: make(map[string]bool)}
	w.record.Format(w.moment(), 0)
	w.record.Epoch = 101
	for _, name := range names {
		n := &Node{w: w, Name: name, ends: make(map[string]*end), turns: make(map[string]turn), waiters: make(map[string][]*lease.Waiter)}
		n.cfg = lease.Config{
			Began: w.now, Lease: x.lease(), Margin: x.Margin, SessionTTL: x.TTL, RenewEvery: renewEvery, RetryEvery: retryEvery,
			Least: retryEvery, Handoff: handoff.Limits{MaxTurns: 2, Linger: x.Linger}, Clustered: true, NoAnswer: errNoAnswer,
			Full: func(string) error { return errFull }, Size: func(string, uint32, uint32) error { return errSize },
			View: view{n}, Requests: &n.requests, Offers: &n.offers,
		}
		n.offers.Store(100)
		n.session = lease.NewSession(name, w.now.Add(x.lease()))
		n.P.Init(&n.cfg, 0)
		w.Nodes = append(w.Nodes, n)
	}
	for _, a := range w.Nodes {
		for _, b := range w.Nodes {
			if a != b {
				w.connect(a, b)
			}
		}
	}
	for _, a := range w.Nodes {
		for _, b := range w.Nodes {
			if a != b {
				w.ping(a, b)
				w.deliver(a, b, false)
				w.deliver(b, a, false)
			}
		}
	}
	w.log = nil
	return w
}

type reason string

func (r reason) Error() string { return string(r) }

const (
	errNoAnswer = reason("no answer")
	errNoStream = reason("no stream to the owner")
	errGrace    = reason("grace")
	errClosed   = reason("closed")
	errUnlocked = reason("unlocked")
	errLost     = reason("lost")
	errLocked   = reason("locked")
	errFull     = reason("too many keys")
	errSize     = reason("another number of permits")
)

// settles returns how long a deposed server may still answer, when so much of Grace is left.
func (w *World) settles(left time.Duration) time.Duration {
	x := w.Times
	if left == 0 {
		return 0
	}
	return min(x.Grace-x.TTL-x.Margin, x.Margin) + x.Margin - (x.Grace - left)
}

func (w *World) moment() fallback.Moment {
	return fallback.Moment{Now: w.now.Add(w.ahead).UnixMilli(), Server: w.server, Grace: w.Times.Grace.Milliseconds()}
}

// isDead reports whether the arbiter counts a session dead (rule 2).
func (w *World) isDead(session string) bool {
	if w.table == nil {
		return w.dead[session]
	}
	m := w.moment()
	m.Server = w.keeper
	return session != "" && w.table.Dead(m, session).Dead
}

func (w *World) say(format string, args ...any) {
	if !w.Quiet {
		w.log = append(w.log, shown.Replace(fmt.Sprintf(format, args...)))
	}
}

func (w *World) node(name string) *Node {
	i := slices.IndexFunc(w.Nodes, func(n *Node) bool { return n.Name == name })
	if i < 0 {
		panic("leasetest: there is no node " + name)
	}
	return w.Nodes[i]
}

// view is the world as a node sees it.
type view struct{ n *Node }

func (v view) Session() *lease.Session {
	if v.n.dead {
		return nil
	}
	return v.n.session
}

func (v view) Route(uint32) lease.Route {
	return lease.Route{Mine: v.n.w.owner == v.n.Name, Link: v.LinkNode(v.n.w.owner)}
}

func (v view) LinkTo(session string) lease.Link {
	for _, e := range v.n.ends {
		if !e.down && !e.begins && e.to.session.ID == session {
			return e
		}
	}
	return nil
}

func (v view) LinkNode(name string) lease.Link {
	if e := v.n.ends[name]; e != nil && !e.down && !e.begins {
		return e
	}
	return nil
}

func (v view) Adoption() lease.Adoption {
	return lease.Adoption{Lead: retryEvery, Last: retryEvery + callTimeout, Back: time.Second}
}

// end is a node's end of a stream: the frames that it has sent on their way, in order, and the ones
// it has heard.
type end struct {
	from, to *Node
	down     bool
	begins   bool // nothing but the statement knows of it yet
	sending  []peer.Frame
	pings    []time.Time // when each was sent
	heard    uint32
	heardAt  time.Time
	until    time.Time // announced by the last pong
	pongs    uint64
	used     int // keys that the other node has or waits for
	asked    int // how often for the announced deadline
}

func (e *end) Node() string    { return e.to.Name }
func (e *end) Session() string { return e.to.session.ID }
func (e *end) Down() bool      { return e.down }
func (e *end) Full() bool      { return e.from.most > 0 && e.used >= e.from.most }
func (e *end) Refuse()         {}
func (e *end) Use(n int)       { e.used += n }

func (e *end) Offer(deadline time.Time) (ping, left uint32, heard time.Time) {
	if e.heard == 0 {
		return 0, 0, e.heardAt
	}
	d := max(0, deadline.Sub(e.heardAt))
	if most := e.from.w.capped; most > 0 {
		d = min(d, most)
	}
	return e.heard, uint32(d.Milliseconds()), e.heardAt
}

func (e *end) Heard() time.Time { return e.heardAt }

func (e *end) Announced(first time.Time, pongs uint64) time.Time {
	e.asked++
	if e.pongs > pongs && e.until.After(first) {
		return e.until
	}
	return first
}

func (w *World) connect(a, b *Node) { a.ends[b.Name] = &end{from: a, to: b} }

// ping asks b for how long it answers for its grants.
func (w *World) ping(a, b *Node) {
	e := a.ends[b.Name]
	e.pings = append(e.pings, w.now)
	e.sending = append(e.sending, peer.Frame{Kind: peer.Ping, Ping: uint32(len(e.pings))})
}

// event lets something happen at a node, and carries out its effects. Effects of several keys are
// put in the keys' order: the core goes through maps.
func (n *Node) event(f func(now time.Time, fx *lease.Effects)) {
	var fx lease.Effects
	f(n.w.now, &fx)
	if o := n.P.Pending(); o != nil {
		kept := *o
		kept.Ends, kept.Pokes, kept.Frames = slices.Clone(o.Ends), slices.Clone(o.Pokes), slices.Clone(o.Frames)
		n.P.Done()
		slices.SortStableFunc(kept.Frames, func(a, b lease.Sent) int {
			return cmp.Or(strings.Compare(a.To.Node(), b.To.Node()), bytes.Compare(a.Frame.Key, b.Frame.Key))
		})
		n.ordered(&kept)
	}
	if fx.End != nil {
		fx.End(errUnlocked)
	}
	if fx.Wake != nil {
		n.woken(fx.Wake)
	}
	for _, x := range fx.Wakes {
		n.woken(x)
	}
	fx.Releases = append(fx.Releases, fx.Heard...)
	slices.SortStableFunc(fx.Releases, func(a, b fallback.Release) int { return strings.Compare(a.Key, b.Key) })
	slices.SortStableFunc(fx.Losses, func(a, b lease.Loss) int { return strings.Compare(a.Key, b.Key) })
	for _, r := range fx.Releases {
		n.w.say("%s will release %s of %s", n.Name, r.Key, identity(r.Identity))
		n.releases = append(n.releases, r)
	}
	for _, l := range fx.Losses {
		n.w.say("%s LOSES %s, token %s", n.Name, l.Key, token(l.Fence))
		delete(n.turns, l.Key)
	}
	if fx.Balance {
		n.w.say("%s is to look at the record", n.Name)
	}
	if fx.Astray {
		n.w.say("%s is to tell the node that its ring names", n.Name)
	}
	if fx.Adopt {
		n.w.say("%s is to adopt its holds", n.Name)
	}
}

// ordered carries out ordered effects.
func (n *Node) ordered(o *lease.Ordered) {
	for _, l := range o.Losses {
		l.End(errLost)
	}
	if o.Acquire {
		n.w.say("%s is to acquire the partition", n.Name)
	}
	for _, x := range o.Starts {
		n.w.say("%s is to ask the arbiter for %s", n.Name, x.Name)
		n.running = append(n.running, x)
	}
	for _, x := range o.Ends {
		n.running = slices.DeleteFunc(n.running, func(y *lease.Contender) bool { return x == y })
		if c := n.find("contend", x.Name); c == nil || c.contender != x {
			n.withdraw(x)
		}
	}
	for _, x := range o.Pokes {
		n.w.say("%s is to ask the arbiter again for %s", n.Name, x.Name)
	}
	n.doubts = append(n.doubts, o.Doubts...)
	for _, r := range append(slices.Clone(o.Rumors), o.Again...) {
		n.w.say("%s is to look up %q of %s", n.Name, r.Key, identity(r.ID))
	}
	n.rumors = append(n.rumors, o.Rumors...)
	n.again = append(n.again, o.Again...)
	for _, r := range o.Disclaimed {
		n.w.say("%s is to remove the row of %s of %s if that session is dead", n.Name, r.Key, identity(r.Identity))
	}
	for i := range o.Frames {
		n.put(&o.Frames[i])
	}
}

// put puts a frame on its stream.
func (n *Node) put(x *lease.Sent) {
	f, e := x.Frame, x.To.(*end)
	f.Key, f.Session = slices.Clone(f.Key), slices.Clone(f.Session)
	if !n.w.Quiet {
		n.w.say("%s -> %s: %s", n.Name, e.to.Name, frame(&f))
	}
	if !e.down {
		e.sending = append(e.sending, f)
	}
}

func (n *Node) woken(x *lease.Waiter) {
	for key, list := range n.waiters {
		i := slices.Index(list, x)
		if i < 0 {
			continue
		}
		n.waiters[key] = slices.Delete(list, i, i+1)
		if x.Value.Refused {
			n.refused(key, x.Value.Reason)
			return
		}
		n.has(key, x.Value.Turn, x.Fence())
	}
}

func (n *Node) has(key string, t *lease.Turn, fence uint64) {
	n.turns[key] = turn{t, fence}
	if n.w.newest != nil {
		if fence <= n.w.newest[key] && n.w.broken == "" {
			n.w.broken = "I2: a token that is not above all before"
		}
		n.w.newest[key] = max(n.w.newest[key], fence)
	}
	if !n.w.Quiet {
		n.w.say("%s HAS %s, token %s", n.Name, key, token(fence))
	}
}

// deliver lets b get the frames that a has sent, or the first of them. It returns the number of
// frames.
func (w *World) deliver(a, b *Node, one bool) int {
	e := a.ends[b.Name]
	if e == nil || e.down {
		return 0
	}
	count := 0
	for ; len(e.sending) > 0 && (count == 0 || !one); count++ {
		f := e.sending[0]
		e.sending = e.sending[1:]
		b.get(b.ends[a.Name], &f)
	}
	return count
}

func (n *Node) get(l *end, f *peer.Frame) {
	id := fallback.Identity{Session: string(f.Session), Request: f.Request}
	switch f.Kind {
	case peer.Ping:
		l.heard, l.heardAt = f.Ping, n.w.now
		until := n.session.Deadline()
		if _, serving := n.P.Serving(); !serving.IsZero() && serving.Before(until) {
			until = serving
		}
		l.sending = append(l.sending, peer.Frame{Kind: peer.Pong, Ping: f.Ping, Left: uint32(max(0, until.Sub(n.w.now)).Milliseconds())})
		return
	case peer.Pong:
		if until := l.pings[f.Ping-1].Add(time.Duration(f.Left) * time.Millisecond); until.After(l.until) {
			l.until, l.pongs = until, l.pongs+1
		}
		return
	}
	n.event(func(now time.Time, fx *lease.Effects) {
		switch f.Kind {
		case peer.Request:
			n.P.Requested(l, id, string(f.Key), f.Flags == lease.FlagTry, now, fx)
		case peer.Grant:
			n.P.Granted(l, f, l.pings[f.Ping-1].Add(time.Duration(f.Left)*time.Millisecond), l.pongs, now, fx)
		case peer.Recall, peer.Ask:
			n.P.Recalled(l, f, now, fx)
		case peer.Release, peer.Cancel:
			n.P.Released(l, f, id, now, fx)
		case peer.Deny:
			n.P.Denied(l, f, id, now, fx)
		case peer.Moved:
			n.P.Moved(l, f, now, fx)
		case peer.Frozen:
			n.P.Frozen(l, f.Epoch)
		case peer.Resume:
			n.P.Resumed(l, id, string(f.Key), now, fx)
		default:
			panic(fmt.Sprintf("a frame of a kind that this world does not know: %v", f.Kind))
		}
	})
}

// frame returns the text of a frame.
func frame(f *peer.Frame) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v", f.Kind)
	if len(f.Key) > 0 {
		fmt.Fprintf(&s, " %s of %s#%d", f.Key, f.Session, f.Request)
	}
	switch f.Kind {
	case peer.Grant:
		fmt.Fprintf(&s, " at epoch %d, %d tokens from %s, for %v", f.Epoch, f.Count, token(f.Token), time.Duration(f.Left)*time.Millisecond)
	case peer.Frozen:
		fmt.Fprintf(&s, " epoch %d", f.Epoch)
	}
	return s.String()
}

func identity(id fallback.Identity) string { return fmt.Sprintf("%s#%d", id.Session, id.Request) }

func token(t uint64) string {
	return fmt.Sprintf("%d/%d", fallback.Token(t).Epoch(), fallback.Token(t).Seq())
}
