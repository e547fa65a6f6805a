package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unfound"
	"github.com/holdfast-go/holdfast/peer"
)

// noStream ends the error of a node that is not reached, while the reason is not known.
const noStream = "there is no stream to it"

// refusals is for how long a reason may take: a node that does not reach the arbiter refuses this
// command when its own question about it has failed.
const refusals = 2 * time.Second

// askAgain asks nodes again that are not reached for a reason that is not known yet.
func askAgain(ctx context.Context, c *coord.Coordinator, all []nodeView) {
	open := func(n *nodeView) bool { return strings.HasSuffix(n.Error, noStream) }
	for until := time.Now().Add(refusals); time.Now().Before(until) && askThese(ctx, c, all, open); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// mute tells why a node does not answer that has a session.
func (d *doctor) mute(ctx context.Context, n *nodeView, x *listing) {
	what, it := "node "+x.name(n.ID, n.Name), "it"
	if at := x.where(n.ID); at != "" {
		it = "it (" + at + ")"
	}
	switch {
	case errors.Is(n.err, peer.ErrSharedKeys):
		d.fail(what, "give all nodes the same Cluster.PeerKeys, and this command by --peer-keys; if all nodes say so, it is this command that has another",
			"it has another key in Cluster.PeerKeys than this command: %s", n.Error)
		return
	case unfound.Is(n.Error):
		d.fail(what, "it does not reach the arbiter, or uses another one, such as a copy of the data: look at its log, at the arbiter's address there, and at the network from there to it. "+
			"Or it is asked by many commands and pages already",
			"it has a session, and does not find this command at its arbiter: %s", n.Error)
		return
	}
	if _, listed := x.processes[n.ID]; !listed {
		d.warn(what, "nothing, if you ended it; else look whether it runs and gets CPU, and at its log", "it did not answer, and has no session any more: it has ended, or was found dead")
		return
	}
	text := fmt.Sprintf("%s has a session and does not answer: %s", it, n.Error)
	if others := x.unlinked[n.ID]; len(others) > 0 {
		slices.Sort(others)
		text += fmt.Sprintf("; %s %s no stream to it either", few(others), plural1(len(others), "has", "have"))
	}
	if others := x.linked[n.ID]; len(others) > 0 {
		slices.Sort(others)
		text += fmt.Sprintf("; %s %s a stream to it", few(others), plural1(len(others), "has", "have"))
	}
	d.fail(what, n.remedy(ctx, len(x.linked[n.ID]) > 0), "%s", text)
}

// remedy says what to do about a node that does not answer, by what its port does. Others may have
// a stream to it: streams of a process that has ended end at once.
func (n *nodeView) remedy(ctx context.Context, linked bool) string {
	dead := fmt.Sprintf("it is found dead (%s), and its keys go to others", n.foundDead())
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", n.Peer)
	if err == nil {
		_ = conn.Close()
		return fmt.Sprintf("its port is open: it may stand still (SIGSTOP, no CPU, a debugger); if that lasts, %s. "+
			"Or it is of an older version, or this host uses another PeerTLS or PeerKeys than it: --peer-cert, --peer-keys", dead)
	}
	cause := ""
	if !strings.Contains(n.Error, err.Error()) { // else it is told
		cause = fmt.Sprintf(" (%v)", err)
	}
	may, port := "its machine may be gone, or cut off", fmt.Sprintf("its port %s is not reachable from this host%s: open it,", n.Peer, cause)
	if errors.Is(err, syscall.ECONNREFUSED) {
		may, port = "it may have been killed, or have ended", fmt.Sprintf("no process listens at its port %s, or a firewall rejects%s:", n.Peer, cause)
	}
	port += " set Cluster.Peer and Cluster.PeerAdvertise there, or run this command in the nodes' network"
	if linked {
		return "it runs, or did a moment ago: " + port
	}
	return may + ": then " + dead + ". If it runs, " + port
}

// takeovers tells of nodes that have another Cluster.Takeover than others: those do not guard each
// other.
func (d *doctor) takeovers(all []nodeView) {
	have := make(map[time.Duration][]string)
	for _, n := range all {
		have[n.Takeover] = append(have[n.Takeover], n.Name)
	}
	if len(have) < 2 {
		return
	}
	var groups []string
	var alone []string
	for _, of := range slices.SortedFunc(maps.Keys(have), func(a, b time.Duration) int {
		return cmp.Or(cmp.Compare(len(have[b]), len(have[a])), cmp.Compare(a, b))
	}) {
		names := have[of]
		slices.Sort(names)
		if of == 0 || len(names) == 1 {
			alone = append(alone, names...)
		}
		value := lasting(of)
		if of == 0 {
			value = "none"
		}
		groups = append(groups, value+" at "+few(names))
	}
	text := "nodes have different Cluster.Takeover, and do not guard each other then: " + strings.Join(groups, "; ")
	if len(alone) > 0 {
		text += fmt.Sprintf(". No node guards %s: after a crash its keys are free after SessionTTL only", few(alone))
	}
	d.warn("takeover", "finish the deployment, or give all nodes the same Cluster.Takeover", "%s", text)
}

// few names some of all.
func few(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
