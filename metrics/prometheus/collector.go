// Package prometheus gives Prometheus a coordinator's metrics:
//
//	prometheus.MustRegister(holdfastprometheus.NewCollector(locks, nil))
//
// docs/metrics.md lists the metrics, and alerts.yml and dashboard.json beside this file use them.
package prometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast/coord"
)

// Options are the options of [NewCollector].
type Options struct {
	// Labels are added to each metric, such as the namespace where a process has several. Default:
	// none. Never make a key a label: there are too many.
	Labels prometheus.Labels
}

// NewCollector returns a collector of a coordinator's metrics. It costs locks nothing: each scrape
// takes a snapshot ([coord.Coordinator.Stats]), and each partition's mutex for a moment. opts may
// be nil.
func NewCollector(locks *coord.Coordinator, opts *Options) prometheus.Collector {
	var labels prometheus.Labels
	if opts != nil {
		labels = opts.Labels
	}
	c := &collector{locks: locks}
	c.describe(labels)
	return c
}

type collector struct {
	locks *coord.Coordinator
	all   []*prometheus.Desc

	wait, hold, arbiter                                *prometheus.Desc
	count, granted, lost, calls, failed                *prometheus.Desc
	partitions, sessions, grace, up, buried, deadlocks *prometheus.Desc
	longest, held, gaveUp, unfit                       *prometheus.Desc
	guardians, promised, takeover, nodes               *prometheus.Desc
}

// describe makes the descriptions. Most names are those that OpenTelemetry's exporter makes of the
// names of metrics/otel; docs/metrics.md has the others.
func (c *collector) describe(labels prometheus.Labels) {
	add := func(to **prometheus.Desc, name, help string, variable ...string) {
		*to = prometheus.NewDesc("holdfast_"+name, help, variable, labels)
		c.all = append(c.all, *to)
	}
	add(&c.wait, "lock_wait_duration_seconds", "How long granted locks were waited for, those that waited.")
	add(&c.longest, "lock_longest_wait_seconds", "How long the caller has waited that waits for longest, now.")
	add(&c.gaveUp, "lock_wait_failed_total", "Callers that waited and went away without the lock.", "reason")
	add(&c.held, "lock_longest_wanted_hold_seconds", "How long the lock is held that is held for longest, of those that others were seen to want since.")
	add(&c.hold, "lock_hold_duration_seconds", "How long locks were held. Of warm keys and the node's own it is a sample.")
	add(&c.arbiter, "arbiter_call_duration_seconds", "How long calls of the arbiter took.", "operation", "error")
	add(&c.count, "lock_count", "Keys that are locked or kept, and callers that wait, now.", "state")
	add(&c.granted, "lock_granted_total", "Locks granted.", "path")
	add(&c.lost, "lock_lost_total", "Locks lost while they were held.", "cause")
	add(&c.calls, "arbiter_call_total", "Calls of the arbiter.", "operation")
	add(&c.failed, "arbiter_call_failed_total", "Calls of the arbiter that failed.", "operation", "reason")
	add(&c.unfit, "arbiter_unfit", "1 while the arbiter has settings with which no process could start, such as one that evicts locks.")
	add(&c.partitions, "partition_count", "Partitions that this node owns.")
	add(&c.sessions, "session_total", "Sessions begun. After each but the first all locks were lost.")
	add(&c.up, "session_count", "1 while the process has a session, and can lock.")
	add(&c.grace, "grace_remaining_seconds", "For how long the arbiter grants nothing new, 0 as a rule.")
	add(&c.nodes, "node_count", "Other nodes of the cluster, by what this one has to do with them.", "state")
	add(&c.guardians, "guardian_count", "Nodes that guard this one.")
	add(&c.promised, "guardian_promise_seconds", "For how long their promises make the session valid.")
	add(&c.takeover, "takeover_seconds", "Cluster.Takeover, while the process has a session that others can guard; else 0.")
	add(&c.deadlocks, "lock_deadlock_total", "Callers that were sent away because callers waited for each other in a circle.")
	add(&c.buried, "session_buried_total", "Sessions of other nodes that this one has had buried.")
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.all {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.locks.Stats()
	histogram := func(d *prometheus.Desc, h coord.Histogram, labels ...string) {
		to <- prometheus.MustNewConstHistogram(d, h.Count(), h.Sum().Seconds(), buckets(h), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	histogram(c.wait, s.Waits)
	histogram(c.hold, s.Holds)
	for o, h := range s.Outcomes {
		histogram(c.arbiter, h, o.Op.String(), o.Error)
	}
	gauge(c.count, float64(s.Locked), "held")
	gauge(c.count, float64(s.Kept), "kept")
	gauge(c.count, float64(s.Waiting), "waiting")
	gauge(c.longest, s.LongestWait.Seconds())
	gauge(c.held, s.LongestHold.Seconds())
	for _, reason := range []string{"locked", "unavailable", "canceled"} {
		counter(c.gaveUp, s.GaveUp[reason], reason)
	}
	for _, p := range []coord.Path{coord.PathTurn, coord.PathOwn, coord.PathForwarded, coord.PathArbiter} {
		counter(c.granted, s.Granted[p], p.String())
	}
	for cause := coord.SessionExpired; cause <= coord.Broken; cause++ { // those that did not happen as well: rates need a first value
		counter(c.lost, s.Lost[cause], cause.String())
	}
	for op, n := range s.Calls {
		counter(c.calls, n, op.String())
		for reason := range coord.ReasonReadOnly + 1 {
			counter(c.failed, s.Failures[coord.Failure{Op: op, Reason: reason}], op.String(), reason.String())
		}
	}
	gauge(c.partitions, float64(s.Owned))
	counter(c.sessions, s.Sessions)
	up := 0.0
	if s.Session != "" {
		up = 1
	}
	gauge(c.up, up)
	unfit := 0.0
	if s.Unfit {
		unfit = 1
	}
	gauge(c.unfit, unfit)
	gauge(c.grace, s.Grace.Seconds())
	nodes := map[string]int{"linked": 0, "unlinked": 0, "refused": 0, "unlisted": 0, "missing": s.Missing}
	for _, n := range c.locks.Nodes() {
		if !n.Self {
			nodes[stateOf(&n)]++
		}
	}
	for state, n := range nodes {
		gauge(c.nodes, float64(n), state)
	}
	gauge(c.guardians, float64(s.Guardians))
	gauge(c.promised, s.Promised.Seconds())
	gauge(c.takeover, s.Takeover.Seconds())
	counter(c.buried, s.Buried)
	counter(c.deadlocks, s.Deadlocks)
}

// stateOf returns the label of a node that is a member of the gossip.
func stateOf(n *coord.NodeInfo) string {
	switch {
	case n.Linked:
		return "linked"
	case n.Refused != "":
		return "refused"
	case n.State == "unlisted", n.State == "dead": // it can lock nothing
		return "unlisted"
	}
	return "unlinked"
}

// bounds are the upper bounds of the buckets, from a microsecond to half an hour: powers of 4 in
// nanoseconds, where those of [coord.Histogram] end, too.
var bounds = func() (all []time.Duration) {
	for n := 10; n <= 40; n += 2 {
		all = append(all, 1<<n)
	}
	return all
}()

// buckets returns the cumulative counts.
func buckets(h coord.Histogram) map[float64]uint64 {
	all := make(map[float64]uint64, len(bounds))
	for _, b := range bounds {
		all[b.Seconds()] = 0
	}
	for upper, n := range h.All() {
		for _, b := range bounds {
			if upper < b {
				all[b.Seconds()] += n
			}
		}
	}
	return all
}
