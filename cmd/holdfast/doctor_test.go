package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
)

// A server's clock that an operator steps forward ends living sessions, but in a namespace of
// ObserverClock.
func TestDoctor_TheServersClock(t *testing.T) {
	for _, x := range []struct {
		off      time.Duration
		observed bool
		level    string
		do       string
	}{
		{-time.Hour, false, "warn", "Do not step the server's forward while processes run"},
		{time.Hour, false, "warn", "stop the server, set its clock, and start it"},
		{-time.Hour, true, "warn", "No lock depends on it"},
		{time.Second, false, "ok", ""},
	} {
		d := &doctor{}
		d.clock(x.off, 0, x.observed)
		if f := d.all[0]; f.Level != x.level || !strings.Contains(f.Do, x.do) || x.observed && strings.Contains(f.Do, "step") ||
			!x.observed && strings.Contains(f.Do, "No lock") {
			t.Errorf("%+v: %+v", x, f)
		}
	}
}

// Only a user without the permission needs it. Any other failure is the server's, or the network's.
func TestDoctor_INFOFails(t *testing.T) {
	n := newNamespace(t)
	for _, x := range []struct {
		options redis.Options
		do      string
	}{
		{redis.Options{Addr: n.server.Addr, Username: "blind", Password: "p"}, "permit INFO"},
		{redis.Options{Network: "unix", Addr: t.TempDir() + "/none"}, "network"},
	} {
		if err := n.client.Do(t.Context(), "acl", "setuser", "blind", "on", ">p", "+@all", "-info").Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&x.options)
		defer c.Close()
		d := &doctor{}
		d.unknown("server", c.Info(t.Context(), "memory").Err())
		if f := d.all[0]; f.Level != "warn" || !strings.Contains(f.Do, x.do) || strings.Contains(f.Do, "permit") != (x.do == "permit INFO") {
			t.Errorf("%+v", f)
		}
	}
}

// Doctor knows a namespace of ObserverClock by its format mark.
func TestDoctor_KnowsObserverClock(t *testing.T) {
	n := newNamespace(t)
	for _, with := range []bool{false, true} {
		ns, err := redisarbiter.New(n.client, &redisarbiter.Options{ColdStart: true, ObserverClock: with}).Attach(t.Context(),
			fallback.Settings{Namespace: "holdfast", Partitions: 1, Grace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_ = ns.Close()
		if mark := n.client.HGet(t.Context(), "{holdfast:s}", "f").Val(); strings.Contains(mark, observersClock) != with {
			t.Errorf("ObserverClock %v: %q", with, mark)
		}
		n.client.FlushAll(t.Context())
	}
}

// Doctor says of a server that evicts expiring keys that results are among them, and of others
// nothing of the kind.
func TestDoctor_AServerThatEvictsResults(t *testing.T) {
	for policy, limit := range map[string]string{"volatile-lru": "100", "noeviction": "100", "volatile-ttl": "0"} {
		for used, level := range map[string]string{"10": "ok", "85": "warn", "99": "fail"} {
			d := &doctor{}
			d.memory("memory", map[string]string{"used_memory": used, "maxmemory": limit, "maxmemory_policy": policy})
			if limit == "0" {
				level = "ok"
			}
			if f := d.all[0]; f.Level != level || strings.Contains(f.Text, "evicts results") != (policy == "volatile-lru") {
				t.Errorf("%s of %s, %s: %+v", used, limit, policy, f)
			}
		}
	}
}
