package debug

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lately"
	"github.com/holdfast-go/holdfast/internal/logs"
	"github.com/holdfast-go/holdfast/internal/unfound"
)

// An Overview is the content of the page, and its JSON.
type Overview struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	From      string    `json:"from"` // the process that serves the page

	Nodes      []Node             `json:"nodes"`
	Partitions int                `json:"partitions"`         // of the namespace
	Unowned    int                `json:"unowned"`            // without an owner among the answering nodes: their keys are locked at the arbiter. 0 with More
	More       int                `json:"more,omitempty"`     // nodes that were not asked, as there are so many
	Grace      time.Duration      `json:"grace,omitempty"`    // left, in which the arbiter grants nothing new
	Held       []coord.KeySummary `json:"held,omitempty"`     // for longest
	Waited     []coord.KeySummary `json:"waited,omitempty"`   // for, longest
	Taken      []coord.KeySummary `json:"taken,omitempty"`    // most often
	Wanted     []coord.KeySummary `json:"wanted,omitempty"`   // by the most callers
	Events     []Event            `json:"events,omitempty"`   // of all nodes, the newest first
	Problems   []string           `json:"problems,omitempty"` // in plain words

	stuck []coord.KeySummary // locks that others want, held for longest
}

// A Node is a process, and its report.
type Node struct {
	coord.NodeInfo
	Report *coord.NodeReport `json:"report,omitempty"`
	Error  string            `json:"error,omitempty"` // why there is none
}

// An Event is a record of a node's log.
type Event struct {
	Node string `json:"node"`
	coord.Event
}

// A Key is the content of a key's page, and its JSON.
type Key struct {
	coord.KeyInfo
	Semaphore *Semaphore `json:"semaphore,omitempty"` // of the same key; nil: its permits are neither in use nor waited for
}

// A Semaphore is the page's part about a semaphore. Shared are its holders, which may keep permits
// for their next callers (Free).
type Semaphore struct {
	coord.KeyInfo
	InUse int `json:"inUse"` // permits that callers have
	Of    int `json:"of"`    // how many it has
}

// The page's limits for hot, long and slow.
const (
	longWait    = 5 * time.Second // by default
	longHold    = 12              // times as long is a lock held that others want, before the page says so
	hotWaiters  = 50              // callers
	slowRenewal = 250 * time.Millisecond
)

// How much the page shows.
const (
	mostKeys   = 10
	mostEvents = 40
	mostNodes  = 100 // that are asked
	mostStuck  = 100 // locks that others want
)

// ask asks the nodes.
func (h *handler) ask(ctx context.Context) *Overview {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	o := &Overview{Time: time.Now(), Namespace: h.locks.Namespace()}
	o.ask(ctx, h.locks, mostNodes)
	o.judge(h.opts.LongWait)
	return o
}

// ask asks the nodes, at most so many.
func (o *Overview) ask(ctx context.Context, locks *coord.Coordinator, most int) {
	listed := locks.Nodes()
	self, err := locks.Report(ctx, "")
	if err == nil {
		o.From, o.Partitions, o.Grace = self.Name, self.Partitions, self.Grace
	}
	alone := len(listed) == 0
	if alone { // without a cluster: this process
		listed = []coord.NodeInfo{{Name: self.Name, Session: self.Session, Self: true, State: "no node"}}
	}
	o.Nodes = make([]Node, min(len(listed), most))
	o.More = len(listed) - len(o.Nodes)
	var work sync.WaitGroup
	for i := range o.Nodes {
		n := &o.Nodes[i]
		n.NodeInfo = listed[i]
		work.Go(func() {
			id := n.ID
			if n.Self {
				id = ""
			}
			r, err := locks.Report(ctx, id)
			if err != nil {
				n.Error = err.Error()
				return
			}
			n.Report = &r
		})
	}
	tops := []struct {
		by   coord.By
		most int
		to   *[]coord.KeySummary
		list coord.KeyList
		err  error
	}{
		{by: coord.LongestHeld, most: mostKeys, to: &o.Held}, {by: coord.LongestWait, most: mostKeys, to: &o.Waited},
		{by: coord.MostTaken, most: mostKeys, to: &o.Taken}, {by: coord.MostWaitedFor, most: mostKeys, to: &o.Wanted},
		{by: coord.LongestWanted, most: mostStuck, to: &o.stuck},
	}
	top := func(i int) { tops[i].list, tops[i].err = locks.Top(ctx, tops[i].most, tops[i].by) }
	work.Go(func() { top(0); top(4) })
	work.Go(func() { top(1) })
	work.Go(func() { top(2); top(3) }) // these three and Report are ofTheOverview
	work.Wait()
	for _, x := range tops {
		*x.to = x.list.Keys
		if x.err != nil {
			o.lacks("", x.err.Error())
		}
		for _, u := range x.list.Unanswered {
			o.lacks(u.Name, u.Reason)
		}
	}
	o.Unowned = o.Partitions
	for _, n := range o.Nodes {
		if n.Report == nil {
			continue
		}
		o.Unowned -= n.Report.Owned
		o.Grace = max(o.Grace, n.Report.Grace)
		for _, e := range n.Report.Events {
			o.Events = append(o.Events, Event{n.Name, e})
		}
	}
	slices.SortStableFunc(o.Events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	o.Events = logs.Thin(o.Events, mostEvents, func(e Event) string { return e.Text })
	if alone || o.More > 0 { // none is a node, or those that were not asked may own them
		o.Unowned = 0
	}
}

// granting says which keys are granted in Grace.
func (o *Overview) granting() string {
	owned := 0
	for _, n := range o.Nodes {
		if n.Report != nil {
			owned += n.Report.Owned
		}
	}
	switch {
	case owned == 0 && o.More == 0:
		return "No process that answers owns keys: all locks that are not held already wait."
	case o.Unowned > 0:
		return "Owners go on granting; keys without one wait."
	}
	return "Owners go on granting."
}

// lacks says that the lists of keys are without those of a node, once for all lists.
func (o *Overview) lacks(node, reason string) {
	text := "The lists of keys may lack some: " + reason
	if node != "" {
		text = "The lists of keys may lack those of node " + node + ": " + reason
	}
	if !slices.Contains(o.Problems, text) {
		o.Problems = append(o.Problems, text)
	}
}

// judge puts the problems into words.
func (o *Overview) judge(long time.Duration) {
	say := func(parts ...string) { o.Problems = append(o.Problems, strings.Join(parts, "")) }
	if o.Grace > 0 {
		say("Grace: the arbiter has failed over or lost data, and grants nothing new for ", lasting(o.Grace), ". ", o.granting())
	}
	for _, n := range o.Nodes {
		r := n.Report
		if r == nil {
			say("Node ", n.Name, " does not answer: ", n.Error)
			continue
		}
		if r.Unfit != "" {
			say("Node ", n.Name, ": the arbiter is not fit for locks, and two processes may have the same one: ", r.Unfit)
		}
		if r.State == "leaving" {
			say("Node ", n.Name, " gives its partitions away.")
		}
		if r.Missing != "" {
			say("Node ", n.Name, " has not settled: ", r.Missing)
		}
		for _, text := range r.Troubles {
			say("Node ", n.Name, ": ", text)
		}
		for _, m := range r.Nodes {
			switch {
			case unfound.Is(m.Refused):
				one, other := unfound.By(n.Name, m.Name, m.Refused)
				say("Node ", one, " does not find node ", other, " at its arbiter, and refuses it. If that lasts, ", one,
					" does not reach the arbiter, or uses another one: ", m.Refused)
			case m.Refused != "":
				say("Node ", n.Name, " and node ", m.Name, " refuse each other: ", m.Refused)
			}
		}
		if r.Renewal > slowRenewal {
			say("Node ", n.Name, ": the arbiter is slow: a renewal of its session took ", lasting(r.Renewal), ".")
		}
		for _, f := range r.Failing() {
			say("Node ", n.Name, ": calls of the arbiter fail: ", f.Op, " (", f.Doing(), "), the last one ", lasting(r.Clock.Sub(f.Time)), " ago: ", f.Error)
		}
		if lost, known := lately.LostSession(r); r.Sessions > 1 && (!known || lost <= lately.Recent) {
			text := plural(r.Sessions-1, " time", " times")
			if known {
				text += ", the last time " + lasting(lost) + " ago"
			}
			say("Node ", n.Name, " has lost its session, and all its locks, ", text, ".")
		}
	}
	if o.Unowned > 0 {
		say(plural(o.Unowned, " partition has no owner that answers: its keys are", " partitions have no owner that answers: their keys are"), " locked at the arbiter, or wait.")
	}
	told := make(map[[2]string]bool)
	for _, k := range slices.Concat(o.Wanted, o.Taken) {
		if name := [2]string{k.Key, k.Mode}; k.Waiters >= hotWaiters && !k.Expected && !told[name] {
			told[name] = true
			say("Key ", strconv.Quote(k.Key), " is hot: ", strconv.Itoa(k.Waiters), " callers wait for it.")
		}
	}
	for _, k := range o.stuck {
		held, waits := !k.Since.IsZero() && o.Time.Sub(k.Since) > longHold*long, !k.Waiting.IsZero() && o.Time.Sub(k.Waiting) > long
		if k.Holder != nil && k.Wanted && held && !k.Expected && !waits {
			say("Key ", strconv.Quote(k.Key), " is wanted, and callers may have given up. ", heldBy(&k, o.Time))
		}
	}
	for _, k := range o.Waited {
		if wait := o.Time.Sub(k.Waiting); !k.Waiting.IsZero() && wait > long && !k.Expected {
			say("Callers wait for key ", strconv.Quote(k.Key), ": ", strconv.Itoa(k.Waiters), ", the first for ", lasting(wait), ". ", heldBy(&k, o.Time))
		}
	}
}
