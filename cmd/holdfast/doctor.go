package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/fallback"
)

// A finding is doctor's judgement of one thing.
type finding struct {
	Level string `json:"level"` // ok, warn or fail
	What  string `json:"what"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// doctor collects findings.
type doctor struct {
	*settings
	longWait time.Duration
	all      []finding
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
	d := &doctor{settings: s}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the arbiter, the nodes and the network, and say what to do",
		Long: "Check the arbiter, its settings, permissions, replication and clock, the nodes, their clocks and the ports between them. It takes no lock.\n" +
			"The exit status is 1 if something fails, 0 with warnings.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*s.timeout)
			defer cancel()
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
	cmd.Flags().DurationVar(&d.longWait, "long-wait", 5*time.Second, "for how long a caller may wait for a key")
	return cmd
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
	defer func() { _ = a.close() }()
	if !d.reaches(ctx, a) {
		return
	}
	exists := false
	parts := d.together(
		func(d *doctor) {
			var found fallback.Settings
			if found, exists = d.namespaceOf(ctx, a); exists {
				d.permits(ctx, a, found)
			}
		},
		func(d *doctor) { d.server(ctx, a) },
		func(d *doctor) { d.processes(ctx) },
	)
	if !exists {
		parts = parts[:2] // nothing can be said of its processes
	}
	for _, x := range parts {
		d.all = append(d.all, x.all...)
	}
}

// processes looks at the processes of the namespace, as one that observes.
func (d *doctor) processes(ctx context.Context) {
	c, done, err := d.observe(ctx)
	if err != nil {
		do := "do what the error says"
		switch {
		case strings.Contains(err.Error(), "NOPERM"):
			do = "let this user write to the namespace's keys: README has the ACL"
		case errors.Is(err, context.DeadlineExceeded):
			do = "where the arbiter is slow, give this command more time: --timeout 1m"
		}
		d.fail("observer", do, "%v", err)
		return
	}
	defer done()
	var x survey
	parts := d.together(
		func(*doctor) { x.partitions, x.unread = c.Partitions(ctx) },
		func(*doctor) { x.askNodes(ctx, c) },
		func(d *doctor) { d.locks(ctx, c) },
	)
	d.partitions(&x)
	d.members(ctx, &x)
	d.all = append(d.all, parts[2].all...)
}

// together does parts side by side, as each answer of a slow server takes its time. It returns
// their findings in the same order.
func (d *doctor) together(parts ...func(d *doctor)) []*doctor {
	all := make([]*doctor, len(parts))
	var work sync.WaitGroup
	for i, f := range parts {
		all[i] = &doctor{settings: d.settings, longWait: d.longWait}
		work.Go(func() { f(all[i]) })
	}
	work.Wait()
	return all
}

// ask asks the server for as little as possible.
func (d *doctor) ask(ctx context.Context, a *arbiter) error {
	if a.redis != nil {
		return a.redis.Ping(ctx).Err()
	}
	if _, err := a.Describe(ctx, d.namespace); !errors.Is(err, fallback.ErrNoNamespace) {
		return err
	}
	return nil
}

// asks is the number of doctor's questions for the server's speed. The first answer is that of a
// new connection.
const asks = 3

// reaches asks the server a few times.
func (d *doctor) reaches(ctx context.Context, a *arbiter) bool {
	var took []time.Duration
	for range asks {
		call, cancel := context.WithTimeout(ctx, d.timeout)
		begun := time.Now()
		err := d.ask(call, a)
		cancel()
		if err != nil {
			text := err.Error()
			do := "check --url, that the server runs, the network and the firewall between this host and it"
			switch {
			case a.redis == nil:
				do = "check --url (host, port, user, password, database), that the server runs, the network and the firewall between this host and it"
			case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
				do = "put the application's user and password into --url: redis://user:password@host:port; if these are the application's, they were changed at the server, " +
					"and no process can log in any more"
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
	if slow := took[asks/2]; slow > 50*time.Millisecond {
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
		d.fail("settings", "do what the error says; if it is about permissions, README has the ACL of Redis, and docs/arbiters.md leads to that of others", "%v", err)
		return
	}
	defer func() { _ = ns.Close() }()
	for _, x := range d.together(func(d *doctor) { d.advice(call, ns) }, func(d *doctor) { d.messages(call, ns) }) {
		d.all = append(d.all, x.all...)
	}
}

// advice reports the arbiter's advice on the server's settings.
func (d *doctor) advice(ctx context.Context, ns fallback.Namespace) {
	if x, ok := ns.(fallback.Adviser); ok {
		advice, err := x.Advise(ctx)
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
}

// messages subscribes.
func (d *doctor) messages(ctx context.Context, ns fallback.Namespace) {
	if x, ok := ns.(fallback.Mute); ok && x.Mute() {
		d.ok("permissions", "this arbiter sends no messages: callers that wait for a key of it ask again each RetryEvery (0.5 s)")
		return
	}
	stop, err := ns.Listen(ctx, "doctor", func(fallback.Message) {})
	if err != nil {
		do := "do what the error says: in --url mute=true is postgres.Options.Mute, and the server's own address leads past a pooler"
		if strings.Contains(err.Error(), "NOPERM") {
			do = "permit SUBSCRIBE to the channels of the namespace: README has the ACL"
		}
		d.fail("messages", do, "subscribing failed: %v", err)
		return
	}
	stop()
	d.ok("permissions", "scripts and messages are permitted")
}

// observersClock is in the format mark of a namespace of redisarbiter.Options.ObserverClock.
const observersClock = " clock=observers"

// clock says how far the server's clock is off, as an answer said that took so long, and how to set
// it. With observed it ends no session and no Grace.
func (d *doctor) clock(off, took time.Duration, observed bool) {
	do := "find out which of the two clocks is wrong. Do not step the server's forward while processes run: living sessions count as dead then, and two processes " +
		"hold the same lock. Slew it (NTP does that if it is told to), or stop the server, set its clock, and start it"
	if observed {
		do = "run NTP on both machines. No lock depends on it, but tokens of a server that starts anew do"
	}
	text := fmt.Sprintf("the server's clock differs by %v from this host's", off.Round(time.Millisecond))
	if off.Abs() > 2*time.Second+took {
		d.warn("clock", do, "%s", text)
	} else {
		d.ok("clock", "%s", text)
	}
}

// server checks the clock and the INFO of a Redis server.
func (d *doctor) server(ctx context.Context, a *arbiter) {
	c, ok := a.redis.(*redis.Client)
	if !ok {
		d.masters(ctx, a) // Advise looks at their other settings, and each Attach compares the clocks of other arbiters
		return
	}
	sent := time.Now()
	now, err := c.Time(ctx).Result()
	took := time.Since(sent)
	if err == nil {
		mark, _ := c.HGet(ctx, "{"+d.namespace+":s}", "f").Result()
		d.clock(now.Sub(sent.Add(took/2)), took, strings.Contains(mark, observersClock))
	}
	info, err := c.Info(ctx).Result()
	if err != nil {
		d.unknown("server", err)
		return
	}
	fields := infoFields(info)
	d.memory("memory", fields)
	if fields["role"] == "slave" {
		d.fail("role", "give the primary's address, or redis+sentinel://", "this server is a replica")
	}
	d.ok("server", "redis %s, role %s, %s replicas, up %s s", fields["redis_version"], fields["role"], fields["connected_slaves"], fields["uptime_in_seconds"])
}
