package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/logs"
	"github.com/holdfast-go/holdfast/ring"
)

// config starts from memberlist's for local networks. Up to 10 nodes miss one that is killed within
// about 6 s: up to 2 s until a probe has failed, 3 s of suspicion, and the news. With more nodes
// the suspicion lasts 3 s times log10 of their number. With Debounce the killed node leaves the
// placement after 8 s, before the arbiter may say that it is dead (T). It is only a hint, and no
// node is evicted for it. So there is no need to probe faster, and to miss processes that are only
// slow.
func config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.TCPTimeout = 2 * time.Second // a join of a host that is gone
	c.SuspicionMult = 3
	c.SuspicionMaxTimeoutMult = 3 // 9 s if no other node confirms it
	c.GossipInterval = 100 * time.Millisecond
	c.PushPullInterval = 15 * time.Second
	c.EnableCompression = false // messages are small
	return c
}

// roster holds the nodes that memberlist reports. memberlist calls it with a lock of its own held,
// so it only takes notes and wakes the ring's goroutine: a call back into memberlist would wait for
// itself.
type roster struct {
	partitions int
	wake       chan struct{} // capacity 1

	known func(name string) bool // Options.Known

	mu       sync.Mutex
	nodes    map[string]ring.Node // guarded by mu
	left     map[string]bool      // guarded by mu: nodes that left, and said so, since takeLeft
	unlisted map[string]bool      // guarded by mu: members that known has not confirmed
	admitted string               // guarded by mu: the last of them, which may not be in nodes yet
}

func newRoster(s *settings) *roster {
	r := &roster{partitions: s.Partitions, known: s.Known, wake: make(chan struct{}, 1), nodes: make(map[string]ring.Node)}
	r.left, r.unlisted = make(map[string]bool), make(map[string]bool)
	return r
}

// maxUnlisted is the largest number of members that Options.Known does not confirm. They may be
// new; a process with a copy of the arbiter's data can name any number of them.
const maxUnlisted = 64

// admit reports whether a node may be a member. It asks known of new nodes only.
func (r *roster) admit(name string) bool {
	if r.known == nil {
		return true
	}
	r.mu.Lock()
	_, member := r.nodes[name]
	r.mu.Unlock()
	if member || r.known(name) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unlisted) >= maxUnlisted {
		return r.unlisted[name]
	}
	r.unlisted[name], r.admitted = true, name
	return true
}

func (r *roster) NotifyJoin(n *memberlist.Node)   { r.set(n) }
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.set(n) }

func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	if n.State == memberlist.StateLeft || r.nodes[n.Name].State == ring.Leaving {
		r.left[n.Name] = true
	}
	delete(r.nodes, n.Name)
	delete(r.unlisted, n.Name)
	r.mu.Unlock()
	r.poke()
}

func (r *roster) set(n *memberlist.Node) {
	gossip := "" // memberlist may have been told no valid address
	if addr, ok := netip.AddrFromSlice(n.Addr); ok {
		gossip = netip.AddrPortFrom(addr.Unmap(), n.Port).String()
	}
	node := describe(n.Name, gossip, n.Meta, r.partitions)
	r.mu.Lock()
	r.nodes[node.Name] = node
	if node.Name == r.admitted { // recount may have forgotten it
		r.unlisted[node.Name], r.admitted = true, ""
	}
	r.mu.Unlock()
	r.poke()
}

func (r *roster) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // it is going to look, and will see this too
	}
}

// takeLeft returns the nodes that left, and said so, since it was last called.
func (r *roster) takeLeft() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left
	r.left = make(map[string]bool)
	return left
}

// sorted returns a new slice of all nodes, by name.
func (r *roster) sorted() []ring.Node {
	r.mu.Lock()
	nodes := make([]ring.Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		nodes = append(nodes, n)
	}
	r.mu.Unlock()
	slices.SortFunc(nodes, func(a, b ring.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// has reports whether a present node gossips at addr.
func (r *roster) has(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		if n.Gossip == addr {
			return true
		}
	}
	return false
}

// recount corrects the counts of admit, by nodes of a moment ago.
func (r *roster) recount(live []ring.Node) {
	unlisted, seen := make(map[string]bool), make(map[string]bool, len(live))
	for _, n := range live {
		seen[n.Name] = true
		if n.Unlisted {
			unlisted[n.Name] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.unlisted {
		if _, member := r.nodes[name]; member && !seen[name] {
			unlisted[name] = true // it has come since
		}
	}
	r.unlisted = unlisted
}

// admission is the memberlist delegate that decides which nodes are members. memberlist takes an
// empty message for a node that has no name, no address and no version. It could neither reach that
// node nor declare it dead, and no other node could join: none speaks that version.
type admission struct {
	protocol uint8 // memberlist's, that this node speaks
	self     string
	roster   *roster
}

func (a admission) NotifyAlive(n *memberlist.Node) error {
	_, ok := netip.AddrFromSlice(n.Addr)
	switch {
	case n.Name == "":
		return errors.New("it has no name")
	case len(n.Name) > maxName || len(n.Meta) > memberlist.MetaMaxSize:
		return fmt.Errorf("its name has %d bytes, and its metadata %d", len(n.Name), len(n.Meta))
	case !ok:
		return errors.New("it has no address")
	case a.protocol < n.PMin || a.protocol > n.PMax || n.PCur < n.PMin || n.PCur > n.PMax ||
		n.PCur < memberlist.ProtocolVersionMin || n.PCur > memberlist.ProtocolVersionMax:
		return fmt.Errorf("it speaks version %d, and understands %d to %d", n.PCur, n.PMin, n.PMax)
	case n.DMin != 0 || n.DCur != 0: // nodes say nothing of their own to each other in this way
		return fmt.Errorf("it speaks version %d of another protocol", n.DCur)
	case n.Name != a.self && !a.roster.admit(n.Name):
		return fmt.Errorf("the arbiter has not listed %d members, and does not list it", maxUnlisted)
	}
	return nil
}

// identity is this node's data for the others. It is the memberlist delegate that is asked for the
// metadata.
type identity struct {
	mu    sync.Mutex
	meta  metadata // guarded by mu
	told  metadata // the last one that memberlist has got; guarded by mu
	final bool     // it stays as it is; guarded by mu
}

func (s *identity) NodeMeta(int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = s.meta
	return s.meta.encode()
}

func (s *identity) untold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told != s.meta
}

// change changes the metadata, unless it is final.
func (s *identity) change(f func(*metadata)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.final {
		f(&s.meta)
	}
	return !s.final
}

func (s *identity) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.final = true
}

// The rest of memberlist.Delegate: no messages and no state of our own.
func (*identity) NotifyMsg([]byte)                {}
func (*identity) GetBroadcasts(int, int) [][]byte { return nil }
func (*identity) LocalState(bool) []byte          { return nil }
func (*identity) MergeRemoteState([]byte, bool)   {}

// logWriter passes memberlist's lines on. Some of its goroutines outlive Shutdown for a moment, and
// the logger of a caller that has closed the ring may be gone: nothing gets there after stop.
type logWriter struct {
	mu      sync.Mutex   // held while logging, so that stop waits for it
	logger  *slog.Logger // nil after stop; guarded by mu
	limited *slog.Logger // for complaints: a node that cannot be reached makes many
	early   *atomic.Bool // this node has no keys of others yet: what it cannot read is no oddity
}

func newLogWriter(to *slog.Logger) *logWriter {
	return &logWriter{logger: to, limited: logs.Limit(to), early: new(atomic.Bool)}
}

func (w *logWriter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logger = nil
}

// refused tells of a packet that the screen refuses, apart from memberlist's complaints: any
// stranger may send it.
func (w *logWriter) refused(err error, from net.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.logger == nil:
	case w.early.Load():
		w.logger.Debug("holdfast: gossip says", "text", fmt.Sprintf("refused a packet from %v: %v", from, err))
	default:
		w.limited.Info("holdfast: a gossip packet is refused", "from", from, "error", err)
	}
}

func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logger == nil {
		return len(line), nil
	}
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("[WARN]")) || bytes.HasPrefix(line, []byte("[ERR]")) {
		level = slog.LevelInfo // it tries again, and those that stay away are missed
	}
	if w.early.Load() {
		level = slog.LevelDebug
	}
	if ctx := context.Background(); w.logger.Enabled(ctx, level) {
		_, text, ok := bytes.Cut(line, []byte("] "))
		if !ok {
			text = line
		}
		said := string(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("memberlist: ")))
		if level == slog.LevelDebug {
			w.logger.Debug("holdfast: gossip says", "text", said)
		} else {
			w.limited.Info("holdfast: gossip complains", "text", said)
		}
	}
	return len(line), nil
}

var errPlain = errors.New("gossip: the gossip is not encrypted: Options.Keys was empty")

// A keyring makes memberlist's safe to use at run time.
type keyring struct {
	mu   sync.Mutex          // one change at a time
	keys *memberlist.Keyring // nil: not encrypted
}

func (k *keyring) change(f func(*memberlist.Keyring) error) error {
	if k.keys == nil {
		return errPlain
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return f(k.keys)
}

// remove takes a key away. memberlist closes the gap in the array that packets are being decrypted
// with, which is a data race unless there is no gap: so the keys behind it go first and come back.
// A packet that arrives meanwhile may be lost, as any packet may.
func remove(k *memberlist.Keyring, key []byte) error {
	keys := slices.Clone(k.GetKeys())
	i := slices.IndexFunc(keys, func(x []byte) bool { return bytes.Equal(x, key) })
	switch {
	case i < 0:
		return nil
	case i == 0:
		return errors.New("gossip: the key that encrypts cannot be removed: use another one first")
	}
	for j := len(keys) - 1; j >= i; j-- {
		if err := k.RemoveKey(keys[j]); err != nil {
			return err
		}
	}
	for _, x := range keys[i+1:] {
		if err := k.AddKey(x); err != nil {
			return err
		}
	}
	return nil
}
