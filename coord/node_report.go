package coord

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A NodeReport is a process's report on itself: see [Coordinator.Report].
type NodeReport struct {
	Process
	Version string        `json:"version"`         // of Holdfast and Go
	Up      time.Duration `json:"up"`              // since New
	Clock   time.Time     `json:"clock"`           // of the process, when it answered
	State   string        `json:"state,omitempty"` // as NodeInfo.State; empty without a cluster
	Settled bool          `json:"settled"`         // the cluster has come to rest, as far as the node can see: see Settled
	Missing string        `json:"missing,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"` // of the arbiter, that is left
	Unfit   string        `json:"unfit,omitempty"` // why the arbiter is not fit for locks any more: see Stats.Unfit

	Partitions int `json:"partitions"` // of the namespace
	Owned      int `json:"owned"`      // partitions; of a node that is drained also those that it gives away, or has asked for before
	Locked     int `json:"locked"`     // keys, by callers of the process
	Kept       int `json:"kept"`       // keys without a caller
	Waiting    int `json:"waiting"`    // callers
	Sessions   int `json:"sessions"`   // begun since New

	Lost     map[string]uint64 `json:"lost,omitempty"`     // locks, by cause
	Calls    map[string]uint64 `json:"calls,omitempty"`    // of the arbiter, by operation
	Failed   map[string]uint64 `json:"failed,omitempty"`   // of these
	Failures []CallFailure     `json:"failures,omitempty"` // the last one of each operation, the newest first
	Renewal  time.Duration     `json:"renewal"`            // how long the slowest of the last four renewals of the session took
	Waits    Durations         `json:"waits"`
	Holds    Durations         `json:"holds"`
	Arbiter  Durations         `json:"arbiter"` // calls

	Gossip    string     `json:"gossip,omitempty"`    // the key of its gossip: [OwnGossipKeys], or an ID of the namespace's secret; empty: a release before, or no cluster
	Guardians int        `json:"guardians,omitempty"` // nodes that guard this one
	Nodes     []NodeInfo `json:"nodes,omitempty"`     // as Nodes, 100 at most
	MoreNodes int        `json:"moreNodes,omitempty"` // that Nodes leaves out
	Troubles  []string   `json:"troubles,omitempty"`  // members that the node does not reach, 20 at most
	Events    []Event    `json:"events,omitempty"`    // 32 of the last records of its log of level Info and above, the newest first: records with one message leave room for others
}

// Durations summarizes a Histogram.
type Durations struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

func summarize(h Histogram) Durations {
	return Durations{h.Count(), h.Quantile(0.5), h.Quantile(0.99), h.Quantile(1)}
}

// Bounds of a report.
const (
	mostNodes    = 100
	mostTroubles = 20
)

// Report asks a process for a report on itself. node is the NodeInfo.ID or Name of a node of the
// cluster; "" is this process. Errors: a node that is not there, that is of an older version, or
// that does not answer within Options.CallTimeout.
func (c *Coordinator) Report(ctx context.Context, node string) (NodeReport, error) {
	a, err := c.askNode(ctx, node, question{About: "node"})
	switch {
	case err != nil:
		return NodeReport{}, fmt.Errorf("coord: Report: node %s: %w", quoted(node), err)
	case a.Node == nil:
		return NodeReport{}, fmt.Errorf("coord: Report: node %s: %w", quoted(node), errAnswer)
	}
	return *a.Node, nil
}

// askNode asks a node by its ID or name, "" for this process.
func (c *Coordinator) askNode(ctx context.Context, node string, q question) (reply, error) {
	if node == "" || node == c.opts.Name && !c.opts.Observe || c.cluster != nil && node == c.cluster.self.name {
		return c.answer(ctx, q), nil
	}
	l, err := c.cluster.linkNamed(node)
	if err != nil {
		return reply{}, err
	}
	return c.askLink(ctx, l, q)
}

// report returns this process's report on itself.
func (c *Coordinator) report() NodeReport {
	s := c.Stats()
	r := NodeReport{
		Process: c.process(), Version: version(), Up: c.since(c.began), Clock: c.now(), Owned: s.Owned, Locked: s.Locked, Kept: s.Kept,
		Waiting: s.Waiting, Sessions: int(s.Sessions), Guardians: s.Guardians, Lost: named(s.Lost), Calls: named(s.Calls), Failed: named(s.Failed),
		Renewal: c.tells.stats.renewals.slowest(),
		Waits:   summarize(s.Waits), Holds: summarize(s.Holds),
		Arbiter: summarize(s.Arbiter), Partitions: len(c.parts), Grace: s.Grace, Events: c.tells.events.last(),
	}
	r.Failures, r.Unfit = c.failures(r.Clock), c.remote.advised.notFit()
	x := c.cluster
	if x == nil {
		return r
	}
	if x.self.draining.Load() {
		r.Owned = c.owned() // also partitions under way
	}
	r.Nodes = c.Nodes()
	for _, n := range r.Nodes {
		if n.Self {
			r.State = n.State
		}
	}
	r.keepNodes(mostNodes)
	if x.self.observing != nil {
		return r
	}
	r.Gossip = x.gossipKey()
	if _, r.Settled = x.atRest(); !r.Settled && !x.self.draining.Load() {
		r.Missing = x.unsettled(0).reasons()
	}
	for _, e := range x.unreachable() {
		if len(r.Troubles) < mostTroubles {
			r.Troubles = append(r.Troubles, e.Error())
		}
	}
	return r
}

// keepNodes leaves nodes out.
func (r *NodeReport) keepNodes(most int) {
	if out := len(r.Nodes) - most; out > 0 {
		r.Nodes, r.MoreNodes = r.Nodes[:most], r.MoreNodes+out
	}
}

// shorter returns a part of the report, nil if there is none.
func (r *NodeReport) shorter() *NodeReport {
	s := *r
	switch {
	case len(s.Events) > 0:
		s.Events = s.Events[:len(s.Events)/2]
	case len(s.Nodes) > 0:
		s.keepNodes(len(s.Nodes) / 2)
	case len(s.Troubles) > 0:
		s.Troubles = nil
	case len(s.Failures) > 0:
		s.Failures = nil
	default:
		return nil
	}
	return &s
}

// named replaces keys by their names.
func named[K interface {
	comparable
	fmt.Stringer
}](m map[K]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(m))
	for k, n := range m {
		all[k.String()] = n
	}
	return all
}

// version returns the versions of Holdfast and of Go.
func version() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == "github.com/holdfast-go/holdfast" && m.Version != "" {
				v = m.Version
			}
		}
	}
	return v + " " + runtime.Version()
}

// A PartitionInfo is the arbiter's record of a partition: see [Coordinator.Partitions].
type PartitionInfo struct {
	Number  uint32        `json:"number"`
	Epoch   uint32        `json:"epoch"`
	Owner   *Process      `json:"owner,omitempty"` // nil: its keys are locked at the arbiter
	Revoked bool          `json:"revoked,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"` // left, in which the arbiter grants nothing new of it
	Error   string        `json:"error,omitempty"` // why the above is not known
}

// Partitions lists all partitions as the arbiter has them, in order: one call for each 256, of up
// to Options.CallTimeout. Errors: [ErrUnavailable] if none can be read, or if the arbiter does not
// list the sessions, and so the owners.
func (c *Coordinator) Partitions(ctx context.Context) ([]PartitionInfo, error) {
	cards, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	processes := make(map[string]Process)
	for session, k := range cards {
		processes[session] = k.process(session)
	}
	all := make([]PartitionInfo, len(c.parts))
	var failed error
	bad := 0
	for first := 0; first < len(all); first += readsPerCall {
		reads := make([]fallback.Read, min(readsPerCall, len(all)-first))
		for i := range reads {
			reads[i].Partition = uint32(first + i)
		}
		states, err := c.readMany(ctx, reads)
		for i := range reads {
			p := &all[first+i]
			p.Number = uint32(first + i)
			if err != nil {
				p.Error = err.Error()
			} else if states[i].Err != nil {
				p.Error, failed = states[i].Err.Error(), states[i].Err
			}
			if p.Error != "" {
				failed = cmp.Or(failed, err)
				bad++
				continue
			}
			r := states[i].Record
			p.Epoch, p.Grace, p.Revoked = r.Epoch, r.Grace, r.Revoked
			if r.Owner != "" {
				o, ok := processes[r.Owner]
				if !ok {
					o = Process{Session: r.Owner}
				}
				p.Owner = &o
			}
		}
	}
	if bad == len(all) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, failed)
	}
	return all, nil
}

// readMany is one call of Verify.
func (c *Coordinator) readMany(ctx context.Context, reads []fallback.Read) ([]fallback.State, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	ns, err := c.partitionSpace(ctx)
	if err != nil {
		return nil, err
	}
	sent := c.now()
	states := ns.Verify(ctx, reads)
	bad := 0
	var failed error
	for i := range states {
		if states[i].Err != nil {
			bad, failed = bad+1, states[i].Err
		}
	}
	c.calledMany(OpVerify, len(reads), bad, sent, failed)
	return states, nil
}

// process returns the process that a card describes.
func (c *card) process(session string) Process {
	return Process{Name: c.Name, ID: c.Node, Session: session, Host: c.Host, PID: c.PID}
}

// Processes lists the processes that have a session at the arbiter, sorted by name, nodes of a
// cluster or not. It is one call of up to Options.CallTimeout. Errors: [ErrUnavailable].
func (c *Coordinator) Processes(ctx context.Context) ([]Process, error) {
	cards, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, session := range slices.Sorted(maps.Keys(cards)) {
		k := cards[session]
		all = append(all, k.process(session))
	}
	slices.SortStableFunc(all, func(a, b Process) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
