package coord

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

// An UnreachableError names a member of the cluster that this node does not reach at the address
// that the member advertises. Attempts to reach it go on.
type UnreachableError struct {
	Node  string        // its name; empty if neither its gossip nor its session at the arbiter tells it
	Addr  string        // that it advertises
	Port  string        // the option that sets the advertised address: Gossip or Peer
	For   time.Duration // since the first attempt that failed
	Cause error         // of the last attempt
}

// Error names the remedy as well.
func (e *UnreachableError) Error() string {
	member := "a node that is registered at the arbiter"
	if e.Node != "" {
		member = "node " + e.Node
	}
	do := "open that port, or"
	if e.Cause != nil && strings.Contains(e.Cause.Error(), syscall.ECONNREFUSED.Error()) { // memberlist wraps nothing
		do = "no process listens there, or a firewall rejects: if the process runs,"
	}
	return fmt.Sprintf("%s is not reachable at %s, which it advertises, for %v: %v: %s set Cluster.%s and Cluster.%sAdvertise there",
		member, e.Addr, e.For.Round(time.Millisecond), e.Cause, do, e.Port, e.Port)
}

// Unwrap returns Cause.
func (e *UnreachableError) Unwrap() error { return e.Cause }

// unreachable returns the members that this node does not reach: by gossip, so that it does not
// know them, or by a stream.
func (x *cluster) unreachable() (all []*UnreachableError) {
	var names map[string]string // by the address that is registered
	for _, f := range x.ring.Failing() {
		if names == nil {
			names = x.members.byGossip()
		}
		if f.Discovered || errors.Is(f.Err, ring.ErrOtherKeys) { // a seed that does not answer may be of another time
			all = append(all, &UnreachableError{Node: names[f.Addr], Addr: f.Addr, Port: "Gossip", For: time.Since(f.Since), Cause: f.Err})
		}
	}
	for _, f := range x.net.Failing() {
		if !f.Connected { // otherwise package peer logs the disagreement
			all = append(all, &UnreachableError{Node: f.Node, Addr: f.Addr, Port: "Peer", For: time.Since(f.Since), Cause: f.Err})
		}
	}
	return all
}

// refused returns why there is no stream to nodes that are reached: one side refuses the other. The
// key is the node's ID.
func (x *cluster) refused() map[string]error {
	all := make(map[string]error)
	for _, f := range x.net.Failing() {
		if f.Connected {
			all[f.Node] = f.Err
		}
	}
	return all
}

// toleratedOut is for how long a member may be out of reach before the log says so: a node that has
// crashed is a member of the gossip for 6 to 9 s, and registered for SessionTTL.
func (o *Options) toleratedOut() time.Duration { return max(10*time.Second, o.SessionTTL) }

// tellUnreachable logs each member that has been out of reach for long, once. told is for the next
// call.
func (x *cluster) tellUnreachable(told map[string]bool) map[string]bool {
	still := make(map[string]bool)
	for _, e := range x.unreachable() {
		id := e.Port + " " + e.Node + " " + e.Addr
		if e.For < x.c.opts.toleratedOut() {
			continue
		}
		if !told[id] {
			x.c.opts.Logger.Warn("holdfast: a member is not reachable at the address that it advertises", "member", e.Node,
				"address", e.Addr, "options", "Cluster."+e.Port+"Advertise, Cluster."+e.Port, "for", e.For.Round(time.Second), "error", e.Cause)
		}
		still[id] = true
	}
	return still
}

// unsettled returns why the cluster has not come to rest.
func (x *cluster) unsettled(want int) *unsettledError {
	var why []string
	var errs []error
	v := x.ring.View()
	active := 0
	for _, n := range v.Nodes() {
		switch {
		case n.Gone:
			why = append(why, "node "+n.Name+" is gone, and has partitions until its session expires")
		case n.Incompatible:
			why = append(why, "node "+n.Name+" at "+n.Gossip+" is of another version, or has other Partitions")
		case n.Unlisted && n.Session == "":
			why = append(why, "node "+n.Name+" at "+n.Gossip+" has no session at the arbiter: it has just started, or cannot have one: its log says why")
		case n.Unlisted:
			why = append(why, "node "+n.Name+" at "+n.Gossip+" has no session at this node's arbiter: it has just started, "+
				"or uses another server or a copy of the data")
		case n.State == ring.Active:
			active++
		}
	}
	if x.c.sessions.current() == nil {
		why = append(why, "this node has no session at the arbiter")
	}
	if left := time.Duration(x.heard.graceLeft.Load()); left > 0 {
		why = append(why, fmt.Sprintf("the arbiter grants nothing for another %v at most (Grace), as it has just started, has failed over, "+
			"has lost its data, or was promoted at some time before this namespace was new; for development see ColdStart in the arbiter's Options", left.Round(time.Second)))
	}
	if active < want {
		why = append(why, fmt.Sprintf("%d of %d nodes found", active, want))
	}
	for _, e := range x.unreachable() {
		errs = append(errs, e)
	}
	for node, err := range x.refused() {
		errs = append(errs, fmt.Errorf("no stream with node %s: %w", node, err))
	}
	if len(why)+len(errs) == 0 {
		why = append(why, "partitions are still changing hands")
	}
	return &unsettledError{why, errs}
}

// unsettledError is several reasons in one line.
type unsettledError struct {
	why  []string
	errs []error
}

func (e *unsettledError) Error() string { return "the cluster has not settled: " + e.reasons() }

func (e *unsettledError) reasons() string {
	all := e.why
	for _, err := range e.errs {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (e *unsettledError) Unwrap() []error { return e.errs }

// late is the error of a wait for the cluster that ended, as such.
func (x *cluster) late(ended error, nodes int) error {
	return fmt.Errorf("coord: Settled: %w: %w", ended, x.unsettled(nodes))
}
