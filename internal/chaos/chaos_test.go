//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	if mine, err := child(); mine {
		exit(err)
	}
	redis.SetLogger(silent{})
	leak.Main(m, goleak.IgnoreAnyFunction("github.com/holdfast-go/holdfast/internal/stall.(*Watch).Run"))
}

// scene starts nodes in namespaces, with the library's default times.
func scene(t *testing.T, change func(cfg *config)) *running {
	t.Helper()
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	if err := lan.Needs(); err != nil {
		t.Skip(err)
	}
	cfg := config{Topology: "single", Nodes: 3, Keys: 8, Rest: span{20 * time.Millisecond, 60 * time.Millisecond}, Quiet: true,
		Times: times{TTL: 10 * time.Second, Grace: 12 * time.Second, Keepalive: time.Second, Debounce: 2 * time.Second}}
	change(&cfg)
	r := &running{cfg: cfg, dir: t.TempDir()}
	if d := os.Getenv("HOLDFAST_CHAOS_KEEP"); d != "" {
		r.dir = d
	}
	go r.watch.Run(func(d time.Duration) { t.Logf("the machine stood still for %v", d) })
	t.Cleanup(func() {
		if err := r.tearDown(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			r.show(t)
		}
	})
	if err := r.setUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// show logs the ends of the nodes' logs.
func (r *running) show(t *testing.T) {
	for _, s := range r.seats {
		text, _ := os.ReadFile(r.dir + "/" + s.host.Name + ".log")
		t.Logf("%s:\n%s", s.host.Name, text[max(0, len(text)-4000):])
	}
}

// cutFor cuts for a while, and then waits until every node works on every key again.
func (r *running) cutFor(t *testing.T, c lan.Cut, d time.Duration) (from, to moment) {
	t.Helper()
	mend, err := r.net.Cut(c)
	if err != nil {
		t.Fatal(err)
	}
	from = now()
	sleep(t.Context(), d)
	to = now()
	if err := mend(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.recover(t.Context(), to, false); err != nil {
		t.Fatal(err)
	}
	return from, to
}

// settle waits until each node grants the keys of some partitions, and no partition has no owner,
// for longer than the ring's debounce.
func (r *running) settle(t *testing.T) {
	t.Helper()
	client := r.servers.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	last, since := "", now()
	err := await(ctx, "owners", func() error {
		all, text := make(map[string]int), ""
		for p := range partitions {
			m := strings.SplitN(client.HGet(ctx, part(p), "m").Val(), " ", 6)
			owner := m[len(m)-1]
			if len(m) < 6 || owner == "" {
				return fmt.Errorf("nobody owns partition %d", p)
			}
			all[owner]++
			text += owner + " "
		}
		if text != last {
			last, since = text, now()
		}
		if len(all) < len(r.seats) || now().sub(since) < r.cfg.Times.Debounce {
			return fmt.Errorf("owners: %v", all)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *running) judged(t *testing.T) *report {
	t.Helper()
	rep, err := r.finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range rep.Violations {
		t.Error(v)
	}
	return rep
}

// Two nodes lose each other, and both reach Redis: keys stay lockable from both within 5 s, and
// nothing is held twice.
func TestTwoNodesCutFromEachOther(t *testing.T) {
	takes.Seconds(t)
	r := scene(t, func(*config) {})
	r.settle(t)
	from, to := r.cutFor(t, lan.Both([]string{"n1"}, []string{"n2"}), 15*time.Second)
	r.bands = append(r.bands, &band{Fault: "cut", Begin: from, End: to})
	r.rounds = append(r.rounds, &round{Faults: []string{"cut"}, Begin: from, Healed: to, Recovered: now(), End: now()})
	rep := r.judged(t)
	allowed := 5*time.Second + rep.Machine
	for key, holds := range rep.history.byKey() {
		if !busy(key) {
			continue
		}
		by := make(map[string][]*hold)
		for _, h := range holds {
			by[h.Node] = append(by[h.Node], h)
		}
		for _, node := range r.nodeNames() {
			longest := slices.MaxFunc(gaps(by[node], from, to), func(a, b calm) int { return cmp.Compare(a.to-a.from, b.to-b.from) })
			if d := longest.to.sub(longest.from); d > allowed {
				t.Errorf("%s could not lock %s for %v, from %s after the cut", node, key, d, longest.from.since(from))
			} else if d > time.Second {
				t.Logf("%s could not lock %s for %v, from %s after the cut", node, key, d.Round(time.Millisecond), longest.from.since(from))
			}
		}
	}
}

// Nodes share two hosts. One is killed, another one of its host sees that, and the run counts it.
// The other host is cut off for a second.
func TestNodesThatShareHosts(t *testing.T) {
	takes.Seconds(t)
	r := scene(t, func(cfg *config) { cfg.Hosts = 2 }) // n1 and n3 on one of them
	r.settle(t)
	from := now()
	r.seat("n1").kill()
	if err := r.seat("n1").start(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.recover(t.Context(), now(), false); err != nil {
		t.Fatal(err)
	}
	_, to := r.cutFor(t, lan.Both([]string{"n2"}, r.allNames()), time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := await(ctx, "the arbiter to forget the dead session", func() error {
		left, err := r.servers.count(ctx)
		if err == nil && left.Sessions != len(r.seats) {
			err = fmt.Errorf("%+v", left)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.bands = append(r.bands, &band{Fault: "killed, and cut", Begin: from, End: to})
	r.rounds = append(r.rounds, &round{Faults: []string{"killed, and cut"}, Begin: from, Healed: to, Recovered: now(), End: now()})
	if rep := r.judged(t); rep.Buried[1] != 1 {
		t.Errorf("sessions that others ended: of %d silent processes, and of %d that they saw end", rep.Buried[0], rep.Buried[1])
	}
}

// A node is cut from Redis, and from nothing else: it grants nothing after its deadline, its
// holders are told by then, and its callers, why they wait.
func TestANodeCutFromRedis(t *testing.T) {
	takes.Seconds(t)
	r := scene(t, func(cfg *config) { cfg.Kept = true })
	r.settle(t)
	from, to := r.cutFor(t, lan.Both([]string{"n1"}, r.serverNames()), 16*time.Second)
	r.bands = append(r.bands, &band{Fault: "cut", Begin: from, End: to})
	r.rounds = append(r.rounds, &round{Faults: []string{"cut"}, Begin: from, Healed: to, Recovered: now(), End: now()})
	rep := r.judged(t)
	// The last renewal that was acknowledged was sent before the cut.
	deadline := from.add(r.cfg.Times.TTL - r.cfg.Times.margin())
	// From the library's look at the clock until the client has written it down. No other node can
	// have the key before the margin is over.
	slack := r.cfg.Times.margin()/2 + rep.Machine
	var own, next *hold
	for _, h := range rep.history.holds {
		if h.Node == "n1" && h.Granted > deadline.add(slack) && h.Granted < to {
			t.Errorf("%v was granted %v after the deadline", h, h.Granted.sub(deadline))
		}
		if h.Key != "lasting" {
			continue
		}
		if h.Node == "n1" && h.Granted < from {
			own = h
		} else if next == nil && h.Node != "n1" && own != nil {
			next = h
		}
	}
	switch {
	case own == nil || own.Lost == "" || own.Ended > deadline.add(slack):
		t.Errorf("the holder was not told by the deadline: %v", own)
	case next == nil || next.Granted < own.Ended && own.Valid > next.Granted:
		t.Errorf("the next holder: %v", next)
	default:
		t.Logf("told %v before the deadline: %s; the next one got the key %v after that", deadline.sub(own.Ended).Round(time.Millisecond),
			own.Lost, next.Granted.sub(own.Ended).Round(time.Microsecond))
	}
	told, silent := 0, 0
	for _, a := range rep.history.failed {
		if a.Node == "n1" && a.Asked > deadline.add(slack) && a.Failed < to {
			if strings.Contains(a.Text, "unavailable") {
				told++
			} else {
				silent++
				t.Logf("%s: %s", a.Key, a.Text)
			}
		}
	}
	if told == 0 || silent > 0 {
		t.Errorf("%d callers were told that the arbiter is unavailable, %d were not", told, silent)
	}
}
