package coord

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// An observer has no session, so nodes cannot learn its key from one. It publishes the key's
// fingerprint among the arbiter's results, for a short time, under a name that no result of Share
// can have. An arbiter without results lists it as a session, which is no node's. So a node
// believes it for the same reason as another node: it may write to the arbiter. A reader of a copy
// of the data, or a listener on the network, may not.
//
// A node takes nothing from an observer but questions: no requests, no statements, no pings.
const (
	observerPrefix = "observer " // begins an observer's name. Names of nodes have no blanks
	fingerprintFor = 30 * time.Second
	maxObservers   = 16                   // of a node, at a time
	observerFor    = 5 * time.Minute      // then a node ends the stream, and the observer has to prove itself again
	observerGap    = 5 * time.Millisecond // between two looks at the arbiter that strangers can cause
)

// ErrObserver is the reason of Lock, TryLock, Do, Share, Drain and Settled in a process that only
// observes.
var ErrObserver = errors.New("coord: an observer takes no locks: Options.Observe is set")

var (
	errNotPublished = errors.New("the arbiter has no key of an observer of that name: it uses another server, or stood still")
	errOtherKey     = errors.New("it has another key than the observer of that name")
	errObservers    = fmt.Errorf("there are %d observers already", maxObservers)
	errAgain        = errors.New("coord: an observer's time is over: it has to prove itself again")
)

func isObserver(node string) bool { return strings.HasPrefix(node, observerPrefix) }

// observerKey is longer than any key of Share, and so none of them.
func observerKey(node string) string { return strings.Repeat("\x00", MaxKey) + node }

// observerSession is how an arbiter without results lists an observer. Sessions of nodes have no
// slashes.
func observerSession(node string) string { return strings.ReplaceAll(node, " ", "/") }

// newObserver is New with Options.Observe.
func newObserver(given context.Context, c *Coordinator) (*Coordinator, error) {
	ctx := given
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.starting())
		defer cancel()
	}
	ns, err := c.attachObserver(ctx)
	if err != nil {
		c.life.stop(ErrClosed)
		return nil, fmt.Errorf("coord: New: %w", err)
	}
	c.remote.ns = ns
	c.divide(c.opts.Partitions)
	cfg := c.leaseConfig()
	for i := range c.parts {
		c.parts[i].init(c, cfg, uint32(i))
		c.parts[i].close()
	}
	if err := c.startObserving(ctx, given); err != nil {
		c.life.stop(ErrClosed)
		return nil, fmt.Errorf("coord: New: %w", errors.Join(err, ns.Close()))
	}
	c.life.work.Go(c.cluster.follow)
	c.life.work.Go(c.cluster.members.keep)
	c.life.work.Go(c.cluster.keepObserving)
	c.cluster.awaitStreams(given)
	return c, nil
}

// attachObserver attaches to the namespace with the settings that are in force there.
func (c *Coordinator) attachObserver(ctx context.Context) (fallback.Namespace, error) {
	settings := c.opts.settings()
	settings.Lease = 0 // the observer needs no Grace of its own
	if d, ok := c.remote.arbiter.(fallback.Describer); ok {
		sent := c.now()
		found, err := d.Describe(ctx, c.opts.Namespace)
		c.called(OpAttach, sent, err)
		switch {
		case errors.Is(err, fallback.ErrNoNamespace), errors.Is(err, fallback.ErrMismatch), errors.Is(err, fallback.ErrRefused):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w%s: %w", ErrUnavailable, c.atServers(), err)
		}
		settings = watching(found)
	}
	sent := c.now()
	ns, err := c.remote.arbiter.Attach(ctx, settings)
	c.called(OpAttach, sent, err)
	if err != nil {
		return nil, err
	}
	c.opts.Partitions, c.opts.Grace = settings.Partitions, settings.Grace
	c.remote.namespace.Store(&ns)
	return ns, nil
}

// watching returns an observer's settings in a namespace with those that were found. Where it is
// listed as a session it takes a longer Grace over, as those of nodes do: else no session that
// needs one would be opened while it runs. It needs no Lease, and the longest is refused nowhere.
func watching(found fallback.Settings) fallback.Settings {
	found.Lease, found.Observes = found.Grace-time.Millisecond, true
	return found
}

// observing is the state of an observer.
type observing struct {
	x      *cluster
	views  *ring.Views
	key    string
	card   string
	up     chan struct{} // capacity 1: a stream is up
	turn   chan struct{} // capacity 1: held by the one caller that publishes
	silent *mute

	mu     mutex[leafRank]      // protects the fields below
	listed time.Time            // until then it is, at an arbiter without results
	grace  time.Duration        // of the namespace, as it was told last
	old    []fallback.Namespace // with another Grace, to be closed
}

// startObserving starts streams, without a port, and publishes the key that they prove. ctx ends
// before given where that has no deadline.
func (c *Coordinator) startObserving(ctx, given context.Context) (err error) {
	o := c.opts.Cluster
	x := &cluster{c: c, begin: beginning{ready: make(chan struct{})}, streams: streamBook{up: make(map[*link]bool)}}
	x.self.name = observerPrefix + c.opts.Name[:min(len(c.opts.Name), maxProcessName-len(observerPrefix))] + "/" + rand.Text()
	x.members = newMembers(x)
	x.hearsay.init()
	x.heard.announces.Store(int64(unlimited))
	x.wakes.tick, x.wakes.dead, x.wakes.adopts = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	x.self.leaving.Store(true)
	seen := &observing{x: x, key: observerKey(x.self.name), grace: c.opts.Grace, up: make(chan struct{}, 1), turn: make(chan struct{}, 1), silent: &mute{done: make(chan struct{})}}
	if seen.views, err = ring.NewViews(c.opts.Partitions); err != nil {
		return err
	}
	x.ring, x.self.observing = seen, seen
	c.cluster = x
	close(x.begin.ready)
	if _, err := x.members.ask(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	keepalive, _ := x.keepalives()
	streams := peer.Options{
		Node: x.self.name, Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, TLS: o.PeerTLS, Keepalive: keepalive,
		Verify: x.members.verify, Handler: x, Logger: c.opts.Logger, Listener: seen.silent,
	}
	k := card{Name: c.opts.Name, Node: x.self.name, Host: hostName(), PID: os.Getpid()}
	if o.PeerTLS == nil {
		if x.self.identity, err = o.newIdentity(); err != nil {
			return err
		}
		streams.TLS, k.Key = x.self.identity.TLS(), x.self.identity.Fingerprint()
	}
	seen.card = k.encode()
	if err := seen.publishFirst(ctx, given); err != nil {
		return err
	}
	if x.net, err = peer.Start(streams); err != nil {
		seen.withdraw(context.WithoutCancel(ctx))
		return o.named(err)
	}
	seen.show()
	return nil
}

// cardOfObserver returns the card that an observer has published, a zero one if there is none.
func (c *Coordinator) cardOfObserver(ctx context.Context, results fallback.ResultStore, node string) (card, error) {
	sent := c.now()
	r, err := results.LoadResult(ctx, 0, observerKey(node))
	c.called(OpLoadResult, sent, err)
	if r.Fence == 0 {
		return card{}, err
	}
	return decodeCard(string(r.Value)), err
}

// show makes the nodes that are listed known to the streams, and to Nodes.
func (o *observing) show() {
	m := o.x.members
	var live []ring.Node
	for name, k := range m.listed() {
		n := ring.Node{Name: name, Peer: k.Peer, Gossip: k.Gossip, State: ring.Active}
		if sessions := m.sessionsOf(name); len(sessions) > 0 {
			n.Session = sessions[len(sessions)-1]
		}
		live = append(live, n)
	}
	slices.SortFunc(live, func(a, b ring.Node) int { return strings.Compare(a.Name, b.Name) })
	o.views.Publish(live, o.View().Placement(), time.Time{})
	o.x.net.SetKeepalive(o.x.keepalives())
	for _, l := range o.x.all() {
		l.introduced()
	}
}

// longestKeepalive is the longest Keepalive of a node that an observer heeds: it would take a dead
// one for alive for 2.5 times as long.
const longestKeepalive = 10 * time.Minute

// keepalives returns the shortest and the longest Keepalive of the nodes that are listed: they
// differ while a deployment changes SessionTTL.
func (x *cluster) keepalives() (shortest, longest time.Duration) {
	for _, k := range x.members.listed() {
		if k.Keepalive < 10*time.Millisecond || k.Keepalive > longestKeepalive { // a node of an older release, or a value that none should have
			continue
		}
		if longest = max(longest, k.Keepalive); shortest == 0 || k.Keepalive < shortest {
			shortest = k.Keepalive
		}
	}
	if longest == 0 {
		own := x.c.opts.Cluster.Keepalive
		return own, own
	}
	return shortest, longest
}

// introduced notes the sessions of the other node, which tells an observer nothing.
func (l *link) introduced() {
	listed := l.x.members.sessionsOf(l.Node())
	for _, session := range listed {
		l.session.Store(&session)
		l.x.streams.links.Store(session, l)
	}
	l.unlist(func(session string) bool { return l.down.Load() || !slices.Contains(listed, session) })
}

// unlist takes the stream out of the list, under those sessions.
func (l *link) unlist(over func(session string) bool) {
	links := &l.x.streams.links
	links.Range(func(session, other any) bool {
		if other == l && over(session.(string)) {
			links.CompareAndDelete(session, l)
		}
		return true
	})
}

// keepObserving keeps the list of nodes and the published key fresh, until the coordinator stops.
func (x *cluster) keepObserving() {
	o, c := x.self.observing, x.c
	t := time.NewTicker(c.opts.RenewEvery)
	defer t.Stop()
	published, every := c.now(), o.keeps()/3
	if listsObservers(*c.remote.namespace.Load()) {
		every = 0 // as nodes renew: others may wait for it to use a longer Grace
	}
	for {
		select {
		case <-t.C:
		case <-c.life.ctx.Done():
			return
		}
		_, err := x.members.ask(c.life.ctx)
		o.show()
		// A table that may be lost is not made anew: see relist.
		if c.since(published) >= every && (err == nil || o.isListed()) {
			if sent := c.now(); o.publish(c.life.ctx, o.keeps()) == nil {
				published = sent
			}
		}
	}
}

// awaitStreams waits until there is a stream to each node, or an attempt to make one has failed:
// for one CallTimeout at most.
func (x *cluster) awaitStreams(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.c.opts.CallTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		failing := make(map[string]bool)
		for _, f := range x.net.Failing() {
			failing[f.Node] = true
		}
		open := 0
		for name, k := range x.members.listed() {
			if k.Peer != "" && !failing[name] && x.linkNode(name) == nil {
				open++
			}
		}
		if open == 0 {
			return
		}
		select {
		case <-x.self.observing.up:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// closeObserver is Close of an observer.
func (c *Coordinator) closeObserver() error {
	close(c.life.closing)
	c.callers.shares.close()
	c.life.stop(ErrClosed)
	c.awaitGoroutines()
	x := c.cluster
	_ = x.net.Close()
	x.self.observing.withdraw(context.Background())
	return c.closeSpaces()
}

// closeSpaces closes all that an observer has attached to: another one for each Grace.
func (c *Coordinator) closeSpaces() error {
	o := c.cluster.self.observing
	o.mu.Lock() // remark attaches to no other one after this
	defer o.mu.Unlock()
	errs := []error{(*c.remote.namespace.Load()).Close()}
	if c.remote.ns != *c.remote.namespace.Load() {
		errs = append(errs, c.remote.ns.Close())
	}
	for _, ns := range o.old {
		if ns != c.remote.ns {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}

// verifyObserver reports, as an error, that the other side of a connection is not the observer that
// it claims to be. Strangers can make it ask the arbiter, so the questions come one after another;
// where the answer is the list of sessions, all that wait share one, as they do for nodes.
func (x *cluster) verifyObserver(node string, state *tls.ConnectionState) error {
	ctx, cancel := context.WithTimeout(x.c.life.ctx, time.Second)
	defer cancel()
	refuse := func(err error) error { return fmt.Errorf("coord: %q: %w", node, err) }
	if x.observers() >= maxObservers {
		return refuse(errObservers)
	}
	ns := x.c.remote.namespace.Load()
	if ns == nil {
		return refuse(ErrUnavailable)
	}
	proves := func(k card) error {
		switch {
		case k.Node != node:
			return errNotPublished
		case x.self.identity != nil && k.Key != peer.Fingerprint(state):
			return errOtherKey
		}
		return nil
	}
	results, kept := (*ns).(fallback.ResultStore)
	if !kept {
		err := x.members.await(func(fresh bool) error {
			if !fresh { // it may have withdrawn since
				return errNotPublished
			}
			return proves(x.members.observers[node])
		})
		if err != nil {
			return refuse(err)
		}
		return nil
	}
	select {
	case x.asked.looks <- struct{}{}:
	case <-ctx.Done():
		return refuse(context.Cause(ctx))
	}
	k, err := x.c.cardOfObserver(ctx, results, node)
	select {
	case <-time.After(observerGap):
	case <-x.c.life.ctx.Done():
	}
	<-x.asked.looks
	if err == nil {
		err = proves(k)
	}
	if err != nil {
		return refuse(err)
	}
	return nil
}

// observers returns how many there are.
func (x *cluster) observers() int {
	x.streams.mu.Lock()
	defer x.streams.mu.Unlock()
	return len(x.streams.watched)
}

// watchedBy takes an observer's stream.
func (x *cluster) watchedBy(s *peer.Stream) {
	l := &link{x: x, s: s, observer: true}
	l.said.Store(&answer{})
	s.Data = l
	x.streams.mu.Lock()
	if x.streams.watched == nil {
		x.streams.watched = make(map[*link]time.Time)
	}
	many := len(x.streams.watched) >= maxObservers
	x.streams.watched[l] = x.c.now()
	x.streams.mu.Unlock()
	if many {
		s.Close(errObservers)
		return
	}
	x.c.tells.limited.Info("holdfast: an observer asks this node", "observer", strings.TrimPrefix(s.Node(), observerPrefix))
}

// observes takes a node's stream, in an observer.
func (x *cluster) observes(l *link) {
	l.introduced()
	x.streams.mu.Lock()
	x.streams.up[l] = true
	x.streams.mu.Unlock()
	select {
	case x.self.observing.up <- struct{}{}:
	default:
	}
}

// endsWatch is for the end of a stream of either side of an observer.
func (x *cluster) endsWatch(l *link) {
	l.unanswered()
	if x.self.observing != nil {
		l.unlist(func(string) bool { return true }) // whether they are listed yet or not
	}
	x.streams.mu.Lock()
	defer x.streams.mu.Unlock()
	delete(x.streams.up, l)
	delete(x.streams.watched, l)
}

// endWatches ends streams of observers that have lasted for long.
func (x *cluster) endWatches() {
	now := x.c.now()
	x.streams.mu.Lock()
	var over []*link
	for l, since := range x.streams.watched {
		if now.Sub(since) > observerFor {
			over = append(over, l)
		}
	}
	x.streams.mu.Unlock()
	for _, l := range over {
		l.s.Close(errAgain)
	}
}

// The rest is a ring.Membership of the nodes that the arbiter lists, without a placement.

func (o *observing) View() *ring.View            { return o.views.Now() }
func (o *observing) SetState(ring.State) error   { return nil }
func (o *observing) SetSession(string) error     { return nil }
func (o *observing) SetKeys([][]byte) error      { return nil }
func (o *observing) Recheck()                    {}
func (o *observing) Search()                     {}
func (o *observing) Settle()                     {}
func (o *observing) Failing() []ring.Failure     { return nil }
func (o *observing) Gossip() string              { return "" }
func (o *observing) Bound() string               { return "" }
func (o *observing) Leave(context.Context) error { return nil }

// mute is a listener that has no port.
type mute struct {
	once sync.Once
	done chan struct{} // closed by Close
}

func (m *mute) Accept() (net.Conn, error) {
	<-m.done
	return nil, net.ErrClosed
}

func (m *mute) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

func (m *mute) Addr() net.Addr { return &net.TCPAddr{} }
