package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// A finding is what doctor says of one thing.
type finding struct {
	Level string `json:"level"` // ok, warn or fail
	What  string `json:"what"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// doctor collects findings.
type doctor struct {
	*settings
	all []finding
}

func (d *doctor) ok(what, format string, args ...any) {
	d.all = append(d.all, finding{"ok", what, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(what, do, format string, args ...any) {
	d.all = append(d.all, finding{"warn", what, fmt.Sprintf(format, args...), do})
}

func (d *doctor) fail(what, do, format string, args ...any) {
	d.all = append(d.all, finding{"fail", what, fmt.Sprintf(format, args...), do})
}

func doctorCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the arbiter, the nodes and the network, and say what to do",
		Long: "Check the arbiter, its settings, permissions, replication and clock, the nodes, their clocks and the ports between them. It takes no lock.\n" +
			"The exit status is 1 if something fails, 0 with warnings.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*s.timeout)
			defer cancel()
			d := &doctor{settings: s}
			d.examine(ctx)
			if err := d.show(); err != nil {
				return err
			}
			if slices.ContainsFunc(d.all, func(f finding) bool { return f.Level == "fail" }) {
				return &statusError{1, nil}
			}
			return nil
		},
	}
}

func (d *doctor) show() error {
	if d.out.json {
		return d.out.encode(d.all)
	}
	for _, f := range d.all {
		d.out.line("%-5s %s: %s", strings.ToUpper(f.Level), f.What, f.Text)
		if f.Do != "" {
			d.out.line("      -> %s", f.Do)
		}
	}
	return nil
}

func (d *doctor) examine(ctx context.Context) {
	a, err := d.arbiter()
	if err != nil {
		d.fail("arbiter", "give it by --url", "%v", err)
		return
	}
	defer a.client.Close()
	if !d.reaches(ctx, a) {
		return
	}
	found, ok := d.namespaceOf(ctx, a)
	d.server(ctx, a)
	if !ok {
		return
	}
	d.permits(ctx, a, found)
	c, done, err := d.observe(ctx)
	if err != nil {
		d.fail("observer", "let this user write to the namespace's keys: README has the ACL", "%v", err)
		return
	}
	defer done()
	d.partitions(ctx, c)
	d.members(ctx, c)
	d.locks(ctx, c)
}

// reaches asks the server a few times.
func (d *doctor) reaches(ctx context.Context, a *arbiter) bool {
	var took []time.Duration
	for range 5 {
		call, cancel := context.WithTimeout(ctx, d.timeout)
		begun := time.Now()
		err := a.client.Ping(call).Err()
		cancel()
		if err != nil {
			text := err.Error()
			do := "check --url, that the server runs, the network and the firewall between this host and it"
			switch {
			case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
				do = "put the application's user and password into --url: redis://user:password@host:port"
			case strings.Contains(text, "NOPERM"):
				do = "permit PING to the user: README has the ACL"
			case strings.Contains(text, "first record does not look like a TLS handshake"):
				do = "the server does not speak TLS on that port: use redis://"
			case strings.Contains(text, "EOF"):
				do = "the server closed the connection: if it speaks TLS there, use rediss://"
			case strings.Contains(text, "LOADING"):
				do = "the server reads its data: wait"
			}
			d.fail("arbiter", do, "%s does not answer: %v", d.place(), err)
			return false
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	if slow := took[2]; slow > 50*time.Millisecond {
		d.warn("arbiter", "look after the server (slowlog, CPU, swap) and the network; a renewal that takes a CallTimeout (1 s) is tried again, and locks are lost after SessionTTL - Margin (9 s) without one",
			"%s answers in %v", d.place(), lasting(slow))
	} else {
		d.ok("arbiter", "%s answers in %v", d.place(), lasting(slow))
	}
	return true
}

func (d *doctor) namespaceOf(ctx context.Context, a *arbiter) (fallback.Settings, bool) {
	call, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	found, err := a.Describe(call, d.namespace)
	switch {
	case errors.Is(err, fallback.ErrNoNamespace):
		d.fail("namespace", "give coord.Options.Namespace of the application by --namespace; if it is right, this is another server than the application's",
			"there is no namespace %q", d.namespace)
		return found, false
	case err != nil:
		d.fail("namespace", "use a holdfast of the version that the application has, or mend what the error says", "%v", err)
		return found, false
	}
	d.ok("namespace", "%q has %d partitions and a Grace of %v", d.namespace, found.Partitions, found.Grace)
	return found, true
}

// permits attaches, subscribes and writes as a process would.
func (d *doctor) permits(ctx context.Context, a *arbiter, found fallback.Settings) {
	call, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	ns, err := a.Attach(call, found)
	if err != nil {
		d.fail("settings", "do what the error says", "%v", err)
		return
	}
	defer func() { _ = ns.Close() }()
	if x, ok := ns.(fallback.Adviser); ok {
		advice, err := x.Advise(call)
		if err != nil {
			d.fail("settings", "do what the error says", "%v", err)
		}
		for _, text := range advice {
			d.warn("settings", "do what it says at its end; --replicas tells this command that the application has set it", "%s", text)
		}
		if err == nil && len(advice) == 0 {
			d.ok("settings", "the server's settings lose no locks")
		}
	}
	if !ns.Guarded() {
		d.warn("failover", "permit INFO to the user: README has the ACL", "the server does not tell its identity: a failover would not be noticed")
	}
	stop, err := ns.Listen(call, "doctor", func(fallback.Message) {})
	if err != nil {
		d.fail("messages", "permit SUBSCRIBE to the channels of the namespace: README has the ACL", "subscribing failed: %v", err)
		return
	}
	stop()
	d.ok("permissions", "scripts and messages are permitted")
}

// server looks at what INFO tells.
func (d *doctor) server(ctx context.Context, a *arbiter) {
	c, ok := a.client.(*redis.Client)
	if !ok {
		return // of a cluster each master is looked at by Advise
	}
	sent := time.Now()
	now, err := c.Time(ctx).Result()
	took := time.Since(sent)
	if err == nil {
		off := now.Sub(sent.Add(took / 2))
		if off.Abs() > 2*time.Second+took {
			d.warn("clock", "run NTP on both machines. No lock depends on it, but tokens of a server that starts anew do",
				"the server's clock differs by %v from this host's", off.Round(time.Millisecond))
		} else {
			d.ok("clock", "the server's clock differs by %v from this host's", off.Round(time.Millisecond))
		}
	}
	info, err := c.Info(ctx).Result()
	if err != nil {
		d.warn("server", "permit INFO to the user: README has the ACL", "INFO: %v", err)
		return
	}
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	var used, most int64
	_, _ = fmt.Sscan(fields["used_memory"], &used)
	_, _ = fmt.Sscan(fields["maxmemory"], &most)
	switch {
	case most > 0 && used >= most*95/100:
		d.fail("memory", "free memory or raise maxmemory now: at the limit no new lock is granted; those that are held stay",
			"%d of %d bytes are used, maxmemory-policy %s", used, most, fields["maxmemory_policy"])
	case most > 0 && used >= most*80/100:
		d.warn("memory", "free memory or raise maxmemory", "%d of %d bytes are used, maxmemory-policy %s", used, most, fields["maxmemory_policy"])
	default:
		d.ok("memory", "%d bytes are used of maxmemory %d (0: no limit)", used, most)
	}
	if fields["role"] == "slave" {
		d.fail("role", "give the primary's address, or redis+sentinel://", "this server is a replica")
	}
	d.ok("server", "redis %s, role %s, %s replicas, up %s s", fields["redis_version"], fields["role"], fields["connected_slaves"], fields["uptime_in_seconds"])
}

func (d *doctor) partitions(ctx context.Context, c *coord.Coordinator) {
	all, err := c.Partitions(ctx)
	if err != nil {
		d.fail("partitions", "see what is said of the arbiter", "%v", err)
		return
	}
	grace, orphans, shared, broken := time.Duration(0), 0, 0, ""
	for _, p := range all {
		grace = max(grace, p.Grace)
		switch {
		case p.Error != "":
			broken = p.Error
		case p.Owner == nil:
			shared++
		case p.Owner.Name == "" && p.Owner.ID == "":
			orphans++
		}
	}
	if broken != "" {
		d.fail("partitions", "one of several servers may be away", "not all can be read: %s", broken)
	}
	if grace > 0 {
		d.warn("Grace", "wait: after a failover or a restart the arbiter grants nothing new until locks of before have lapsed; owners do",
			"%v are left in which the arbiter grants nothing new", lasting(grace))
	}
	if orphans > 0 {
		d.warn("partitions", "wait for Cluster.Takeover (3 s) or SessionTTL (10 s); if it lasts, look at the log of the nodes that are left",
			"%d partitions belong to sessions that have ended: their process was killed", orphans)
	}
	if nodes := len(c.Nodes()); nodes > 0 && shared > 0 && grace == 0 {
		d.warn("partitions", "wait a few seconds; if it lasts, the nodes do not agree who is there: see what is said of them below",
			"%d of %d partitions have no owner: their keys are locked at the arbiter", shared, len(all))
	} else if nodes > 0 && orphans == 0 {
		d.ok("partitions", "all of %d have a living owner", len(all))
	}
}

func (d *doctor) members(ctx context.Context, c *coord.Coordinator) {
	all := nodes(ctx, c)
	processes, err := c.Processes(ctx)
	if err != nil {
		d.fail("processes", "see what is said of the arbiter", "%v", err)
		return
	}
	rest := others(processes)
	if len(all) == 0 && len(rest) == 0 {
		d.warn("processes", "start the application; if it runs, it uses another server or namespace", "no process has a session")
		return
	}
	if len(all) > 0 && len(rest) > 0 {
		d.warn("processes", "set Cluster in all processes, or in none: a process without makes owners give partitions back",
			"%d processes are nodes of a cluster, and %d are not, such as %s (%s)", len(all), len(rest), who(&rest[0]), where(&rest[0]))
	}
	versions := make(map[string]bool)
	for _, n := range all {
		d.member(ctx, &n, len(all))
		if n.Report != nil {
			versions[n.Report.Version] = true
		}
	}
	if len(all) == 0 {
		d.ok("processes", "%d without a cluster", len(rest))
	}
	if len(versions) > 1 {
		var list []string
		for v := range versions {
			list = append(list, v)
		}
		slices.Sort(list)
		d.warn("versions", "finish the deployment", "nodes have different versions: %s", strings.Join(list, ", "))
	}
}

// member looks at one node.
func (d *doctor) member(ctx context.Context, n *nodeView, of int) {
	what := "node " + n.Name
	r := n.Report
	if r == nil {
		open := "its port is open: it may stand still (SIGSTOP, no CPU, a debugger), be of an older version, or this host uses another PeerTLS than it: --peer-cert"
		if conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", n.Peer); err != nil {
			open = fmt.Sprintf("its port %s is not reachable from this host (%v): open it, set Cluster.PeerAdvertise there, or run this command in the nodes' network", n.Peer, err)
		} else {
			_ = conn.Close()
		}
		d.fail(what, open, "it has a session and does not answer: %s", n.Error)
		return
	}
	bad := false
	if off := time.Since(r.Clock); off.Abs() > 5*time.Second {
		d.warn(what, "run NTP there: times in logs and tables are off; no lock depends on it", "its clock differs by %v from this host's", off.Round(time.Second))
		bad = true
	}
	seen, linked := 0, 0
	for _, m := range r.Nodes {
		seen++
		if m.Linked || m.Self {
			linked++
		} else if m.State != "unlisted" {
			d.warn(what, fmt.Sprintf("open the peer port %s for %s, or set Cluster.PeerAdvertise at %s", m.Peer, where(&r.Process), m.Name),
				"it has no stream to %s", m.Name)
			bad = true
		}
		if m.State == "unlisted" {
			d.fail(what, "a process gossips here that uses another arbiter, such as a copy of the data: point it to this one, or call RotateSecret",
				"it hears %s, which has no session", m.Name)
			bad = true
		}
	}
	if seen < of {
		d.warn(what, "open the gossip port by UDP and TCP between the nodes (docs/network.md)", "it sees %d of %d nodes", seen, of)
		bad = true
	}
	for _, text := range r.Troubles {
		d.warn(what, "do what it says at its end", "%s", text)
		bad = true
	}
	if r.State == "leaving" {
		d.warn(what, "nothing, if that is meant; else start it anew", "it gives its partitions away: Drain was called, or it closes")
		bad = true
	} else if !r.Settled && !bad {
		d.warn(what, "wait a few seconds", "it has not settled: %s", r.Missing)
		bad = true
	}
	if r.Sessions > 1 {
		d.warn(what, "look at its log for \"session lost\": pauses of the process (CPU limits), the network, the arbiter",
			"it has lost its session, and all its locks, %d times in %v", r.Sessions-1, lasting(r.Up))
		bad = true
	}
	if failed := r.Failed["renew"]; failed > 0 {
		d.warn(what, "look after the arbiter and the network to it", "%d of %d renewals failed since its start", failed, r.Calls["renew"])
	}
	if !bad {
		d.ok(what, "%s, %d partitions, %d streams, %d locked keys, up %v", where(&r.Process), r.Owned, linked-1, r.Locked, lasting(r.Up))
	}
}

// locks looks for what is stuck.
func (d *doctor) locks(ctx context.Context, c *coord.Coordinator) {
	if len(c.Nodes()) == 0 {
		return
	}
	list, err := c.Top(ctx, 1, coord.LongestWait)
	if err != nil {
		d.fail("locks", "see what is said of the nodes", "%v", err)
		return
	}
	var k coord.KeySummary
	if len(list.Keys) > 0 {
		k = list.Keys[0]
	}
	if wait := time.Since(k.Waiting); !k.Waiting.IsZero() && wait > 10*time.Second {
		text := fmt.Sprintf("%d callers wait for key %q, the first for %v; it is held by %s (%s)", k.Waiters, k.Key, lasting(wait), who(k.Holder), where(k.Holder))
		if !k.Since.IsZero() {
			text += " for " + since(k.Since)
		}
		d.warn("locks", "look what that process does (a stack dump); holdfast inspect tells more, holdfast break frees the key", "%s", text)
		return
	}
	d.ok("locks", "no caller waits for 10 s")
}
