// Package gossip tells a node which other nodes of its namespace there are, by memberlist (SWIM):
// it is a [ring.Membership]. Nodes that are known from seeds or the arbiter, and are no members,
// are asked to join again, for as long as they are known. So a network partition heals.
//
// Programs name it in one place, coord.Cluster.Membership:
//
//	Cluster: &coord.Cluster{Membership: gossip.Start}
package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/gossiphost"
	"github.com/holdfast-go/holdfast/ring"
)

// A Ring is this node's place in the membership: it gossips with the other nodes, and reports which
// nodes there are and which one should own each partition. Its methods are safe for concurrent use,
// and block only where they say so.
//
// Gossip, with its callbacks and timers, is memberlist's. One goroutine here makes Views of the
// reports that it hears, another one looks for nodes that are missing.
type Ring struct {
	opts   settings
	find   lookup
	list   gossiphost.Gossip // memberlist's
	gossip string            // the address told to others
	bound  string            // the bound address
	log    *logWriter
	keys   keyring
	early  atomic.Bool // Options.Provisional, until SetKeys
	roster *roster
	self   identity

	views    *ring.Views
	failing  failures
	searched atomic.Bool     // this node has joined another one, or its first search for others is over
	awaited  atomic.Bool     // Settle was called before anything was placed
	sooner   chan struct{}   // capacity 1: search now
	former   map[string]bool // nodes with processes that have started again; only for the goroutine that makes Views
	partial  bool            // the last search did not know all addresses; only for the goroutine that searches

	announcing sync.Mutex // one UpdateNode at a time, or an older state could get the higher number

	ctx    context.Context // ends both goroutines, and their waits
	cancel context.CancelFunc
	wg     sync.WaitGroup
	ending sync.Mutex    // Leave or Close; the second one waits
	done   chan struct{} // closed when all is over
}

// hooks are for tests. The zero value changes nothing.
type hooks struct {
	tune func(*memberlist.Config)
	cut  func(to string) bool
	find lookup
	host gossiphost.Host
}

// Start begins to gossip, as a node that is Joining. It does not wait for others: they are looked
// for in the background, also when there are none yet. It fails if the options make no sense or the
// address cannot be bound.
//
// It returns a *[Ring]. Its type is that of the field Membership of coord.Cluster.
func Start(opts ring.Options) (ring.Membership, error) {
	r, err := start(opts, hooks{})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// StartOn is [Start] in a simulated network, for this project's own tests: no other can have a
// gossiphost.Host.
func StartOn(host gossiphost.Host, opts ring.Options) (ring.Membership, error) {
	r, err := start(opts, hooks{host: host})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func start(opts ring.Options, h hooks) (*Ring, error) {
	r, err := newRing(opts)
	if err != nil {
		return nil, err
	}
	if h.find != nil {
		r.find = h.find
	}
	if h.host != nil {
		r.list, r.gossip, err = h.host.Gossip(opts.Name, func() []byte { return r.self.NodeMeta(0) }, r.roster)
	} else {
		err = r.startMemberlist(h)
	}
	if err != nil {
		return nil, err
	}
	r.wg.Go(r.run)
	r.wg.Go(r.searchOthers)
	return r, nil
}

func (r *Ring) startMemberlist(h hooks) error {
	logger := log.New(r.log, "", 0)
	if !r.opts.Logger.Enabled(r.ctx, slog.LevelError) {
		logger.SetOutput(io.Discard) // it knows that one, and formats nothing
	}
	if len(r.opts.Keys) > 0 {
		var err error
		if r.keys.keys, err = memberlist.NewKeyring(r.opts.Keys, r.opts.Keys[0]); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	t, err := listen(r.opts.bind, screen{r.opts.Label, r.keys.keys}, r.log, logger, h.cut)
	if err != nil {
		return err
	}
	c := config()
	c.Name, c.Label, c.Logger, c.Transport = r.opts.Name, r.opts.Label, logger, t
	c.Delegate, c.Events, c.Alive = &r.self, r.roster, admission{c.ProtocolVersion, c.Name, r.roster}
	c.BindAddr, c.BindPort = r.opts.bind.Addr().String(), t.GetAutoBindPort()
	c.AdvertiseAddr, c.AdvertisePort = r.opts.advertise.Addr().String(), int(r.opts.advertise.Port())
	if c.AdvertisePort == 0 {
		c.AdvertisePort = c.BindPort
	}
	c.Keyring = r.keys.keys
	if h.tune != nil {
		h.tune(c)
	}
	list, err := memberlist.Create(c)
	if err != nil {
		_ = t.Shutdown()
		return fmt.Errorf("gossip: %w", err)
	}
	r.list, r.gossip = list, list.LocalNode().Address()
	r.bound = netip.AddrPortFrom(r.opts.bind.Addr(), uint16(c.BindPort)).String()
	return nil
}

// newRing makes a Ring without gossip.
func newRing(opts ring.Options) (*Ring, error) {
	s, err := validate(opts)
	if err != nil {
		return nil, err
	}
	views, err := ring.NewViews(s.Partitions)
	if err != nil {
		return nil, err
	}
	r := &Ring{
		opts: s, views: views, find: lookupHost, log: newLogWriter(s.Logger), roster: newRoster(&s),
		done: make(chan struct{}), sooner: make(chan struct{}, 1), former: make(map[string]bool),
	}
	r.self.meta = metadata{
		algorithm: ring.Algorithm, partitions: uint32(s.Partitions), session: s.Session, peer: s.Peer,
	}
	r.early.Store(s.Provisional)
	r.log.early = &r.early
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// View returns the newest View; never nil. Until this node has looked for others it places no node.
// After the end it is the last one.
func (r *Ring) View() *ring.View { return r.views.Now() }

// Members returns the nodes that are there, sorted by name, this one among them, placed or not, as
// gossip says without debounce. [ring.View.Replaced] tells when there are others. The caller must
// not change it.
func (r *Ring) Members() []ring.Node { return r.View().Live() }

// Name returns this node's name.
func (r *Ring) Name() string { return r.opts.Name }

// Gossip returns the IP:port to register at the arbiter, for the Discover of others.
func (r *Ring) Gossip() string { return r.gossip }

// Bound returns the IP:port that the ring listens on. Gossip differs from it behind NAT, and if all
// interfaces are bound. It is empty in a simulation.
func (r *Ring) Bound() string { return r.bound }

// Done returns a channel that is closed when the ring has ended.
func (r *Ring) Done() <-chan struct{} { return r.done }

// SetState changes this node's state. It does not wait for other nodes to hear of it; this node's
// View has it a moment later too. The error is [ErrClosed], or says that there is no such state.
func (r *Ring) SetState(state ring.State) error {
	if state > ring.Leaving {
		return fmt.Errorf("gossip: %v is no state", state)
	}
	return r.change(func(m *metadata) { m.state = state })
}

// SetSession changes this node's session ID. Like SetState it does not wait for other nodes to hear
// of it. The error is [ErrClosed], or names the fault of the ID; see [Options].
func (r *Ring) SetSession(session string) error {
	if err := checkText("Session", session, maxSession); err != nil {
		return err
	}
	return r.change(func(m *metadata) { m.session = session })
}

// Settle makes the ring place the nodes now for the first time, without Debounce: another node has
// placed this one, since it asks it for a key. It does not wait. A ring that has looked for no
// other nodes yet looks first. After the first placement Settle does nothing.
func (r *Ring) Settle() {
	if r.View().Settled().IsZero() && !r.awaited.Swap(true) {
		r.roster.poke()
	}
}

// Recheck makes the ring ask Options.Known again about each node. It does not wait.
func (r *Ring) Recheck() { r.roster.poke() }

func (r *Ring) change(f func(*metadata)) error {
	if !r.self.change(f) {
		return ring.ErrClosed
	}
	r.roster.poke()
	return nil
}

// SetKeys replaces all keys: the first one encrypts, all decrypt. Packets that arrive meanwhile may
// be lost. It fails if a key has another length than 16, 24 or 32 bytes, or if the ring was started
// without keys.
func (r *Ring) SetKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return errors.New("gossip: no keys")
	}
	err := r.keys.change(func(k *memberlist.Keyring) error {
		for _, key := range keys {
			if err := k.AddKey(slices.Clone(key)); err != nil {
				return fmt.Errorf("gossip: %w", err)
			}
		}
		if err := k.UseKey(keys[0]); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
		for _, old := range slices.Clone(k.GetKeys()) {
			if !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, old) }) {
				if err := remove(k, old); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && r.early.Swap(false) {
		r.Search()
	}
	return err
}

// Keys returns the keys that this node understands; the first one encrypts. Nil: the gossip is not
// encrypted.
func (r *Ring) Keys() [][]byte {
	if r.keys.keys == nil {
		return nil
	}
	return r.keys.keys.GetKeys()
}

// This node repeats its data this much later, three times as much later, and so on.
//
// memberlist may lose a message: its queue numbers messages anew when it is empty, also while it
// replaces the only one in it. So a later message of the same length can get the same number, and
// its place (queue.go in v0.7.0). The others would then know nothing of the change until the next
// exchange of everything, up to half a minute later.
const firstRepeat, lastRepeat = 200 * time.Millisecond, 6 * time.Second

// run makes Views until the ring ends.
func (r *Ring) run() {
	d := newDebounce(r.opts.Debounce, r.opts.MaxDebounce, time.Now())
	d.self = r.opts.Name
	var repeat time.Time
	pause := lastRepeat
	for {
		now := time.Now()
		if r.self.untold() {
			pause = firstRepeat
			repeat = now.Add(pause)
		}
		// memberlist has queued it by the time it begins to wait, so that there is no need to wait.
		_ = r.announce(time.Nanosecond)
		if pause < lastRepeat && !now.Before(repeat) {
			pause *= 3
			repeat = now.Add(pause)
			r.repeat()
		}
		r.step(d, now)
		var timer <-chan time.Time
		at, ok := d.due()
		if pause < lastRepeat && (!ok || repeat.Before(at)) {
			at, ok = repeat, true
		}
		if ok {
			timer = time.After(time.Until(at))
		}
		select {
		case <-r.roster.wake:
		case <-timer:
		case <-r.ctx.Done():
			return
		}
	}
}

// step publishes a View if there is anything new.
func (r *Ring) step(d *debounce, now time.Time) {
	// In this order: each node that the one that was joined knows of is in the roster by the time
	// the join is over.
	if r.searched.Load() {
		d.release(now)
	}
	live := r.roster.sorted()
	if known := r.opts.Known; known != nil {
		for i := range live {
			live[i].Unlisted = live[i].Name != r.opts.Name && !known(live[i].Name)
		}
		r.roster.recount(live)
	}
	d.observe(now, slices.DeleteFunc(ring.Placeable(live), func(name string) bool { return r.former[name] }))
	if r.awaited.Load() {
		d.join(now)
	}
	old := r.View()
	p, at := old.Placement(), old.Settled()
	members, changed := d.settle(now)
	gone := r.gone(live, r.roster.takeLeft())
	maps.DeleteFunc(r.former, func(name string, _ bool) bool { _, ok := find(live, name); return !ok })
	for _, name := range d.value {
		if r.startedAgain(d, live, name) {
			r.former[name] = true
		}
	}
	if fewer, ok := d.drop(now, func(name string) bool { return gone(name) || r.former[name] }); ok {
		members, changed = fewer, true
	}
	// If it is as placed, a member that is gone was to be placed anew.
	if changed && (at.IsZero() || !slices.Equal(members, p.Members())) {
		settled, err := ring.Place(members, r.opts.Partitions)
		if err != nil {
			r.opts.Logger.Warn("holdfast: the placement stays as it was", "error", err)
		} else {
			p, at = settled, now
		}
	}
	r.views.Publish(live, p, at)
}

// gone returns a function that reports whether a node owns nothing any more, and will not before it
// is placed anew: it says that it leaves, has left, or Options.Gone says so.
func (r *Ring) gone(live []ring.Node, left map[string]bool) func(name string) bool {
	return func(name string) bool {
		if left[name] || r.opts.Gone != nil && name != r.opts.Name && r.opts.Gone(name) {
			return true
		}
		n, ok := find(live, name)
		return ok && n.State == ring.Leaving
	}
}

// find returns the node with a name. live is sorted by name.
func find(live []ring.Node, name string) (n ring.Node, ok bool) {
	i, ok := slices.BinarySearchFunc(live, name, func(n ring.Node, name string) int { return strings.Compare(n.Name, name) })
	if ok {
		n = live[i]
	}
	return n, ok
}

// startedAgain reports whether the process of a placed node has started again since, at the same
// address and under its name: gossip has not missed the former one yet.
func (r *Ring) startedAgain(d *debounce, live []ring.Node, name string) bool {
	former, ok := find(live, name)
	if !ok || name == r.opts.Name || former.Peer == "" {
		return false
	}
	n, ok := find(live, d.again(name))
	return ok && n.Peer == former.Peer
}

// repeat gossips it again.
func (r *Ring) repeat() {
	r.announcing.Lock()
	defer r.announcing.Unlock()
	_ = r.list.UpdateNode(time.Nanosecond)
}

// announce gossips this node's data, if they have changed, and waits at most so long until they
// have been sent to others. memberlist does not hear that a message has been sent if that comes
// before it waits for it: so an error does not tell that it has not.
func (r *Ring) announce(wait time.Duration) error {
	if !r.self.untold() {
		return nil
	}
	r.announcing.Lock()
	defer r.announcing.Unlock()
	return r.list.UpdateNode(wait)
}

// A node that leaves waits for so long for each of its two messages. They are sent within a few
// gossip intervals; a machine that is busy takes longer.
const (
	leaving = time.Second
	left    = 5 * time.Second
)

// within limits a wait, also by the deadline of ctx. It returns more than 0, which would mean
// without limit.
func within(ctx context.Context, wait time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at))
	}
	return max(wait, time.Nanosecond)
}

// Leave tells the others that this node leaves, so that they need not miss it first, and then ends
// the ring, in any case. It blocks until the message is on its way, for 6 s at most and not beyond
// the deadline of ctx. It also waits until all goroutines of the ring have ended; those of
// memberlist end by themselves, within a probe. Give partitions away before, with
// SetState(Leaving). The error says that the others may have to find out by themselves. After Leave
// or Close it does nothing, and waits for a Leave that is on its way.
func (r *Ring) Leave(ctx context.Context) error {
	return r.end(func() error {
		r.self.change(func(m *metadata) { m.state = ring.Leaving })
		r.self.finish()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("gossip: left without telling others: %w", err)
		}
		_ = r.announce(within(ctx, leaving)) // the next message says more, so an error there is the one that counts
		if err := r.list.Leave(within(ctx, left)); err != nil {
			return fmt.Errorf("gossip: left, and others may not know: %w", errors.Join(err, ctx.Err()))
		}
		return nil
	})
}

// Close ends the ring without telling other nodes: to them this node has crashed. Otherwise it is
// like Leave.
func (r *Ring) Close() error { return r.end(func() error { return nil }) }

func (r *Ring) end(tell func() error) error {
	r.ending.Lock()
	defer r.ending.Unlock()
	select {
	case <-r.done:
		return nil
	default:
	}
	err := tell()
	r.self.finish()
	r.cancel()
	// It ends the search too, which may be dialling.
	err = errors.Join(err, r.list.Shutdown())
	r.wg.Wait()
	r.log.stop()
	close(r.done)
	return err
}
