//go:build unix

package faults

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestAShortStopOfRedisLosesNoLock(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	s := newScene(t, job{Redis: server.Addr, TTL: 3 * time.Second, Grace: 4 * time.Second})
	s.start("w1", forever("h1"), brief("a", "b"), brief("a", "b"))
	s.start("w2", forever("h2"), brief("a", "b"), brief("a", "b"))
	s.start("w3", quietly(forever("h3")), brief("a", "b"), brief("a", "b"))
	s.settle("h1", "h2", "h3", "a", "b")
	s.work(100)

	const away = 1200 * time.Millisecond
	if away >= s.base.outage()-500*time.Millisecond {
		t.Fatalf("T - M - R is %v", s.base.outage())
	}
	stopServer(t, server, syscall.SIGSTOP)
	time.Sleep(away)
	back := stopServer(t, server, syscall.SIGCONT)
	again := s.judge.await(t, s.base.renewEvery()+scheduling, "each process works again",
		each(s.names, byWorker, func(v visit) bool { return v.Entered.After(back) }))
	t.Logf("T - M - R is %v; away for %v; each process works again after %v", s.base.outage(), away,
		again.Sub(back).Round(time.Millisecond))
	s.unscathed(s.check(), "h1", "h2", "h3")
}

func TestALongStopOfRedisIsToldBeforeAnotherProcessGetsTheKey(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	s := newScene(t, job{Redis: server.Addr, TTL: 2 * time.Second, Grace: 2500 * time.Millisecond})
	held := []string{"h1", "h2"}
	s.start("w1", forever("h1"), brief("a", "b"))
	s.start("w2", quietly(forever("h2")), brief("a", "b"))
	s.settle("h1", "h2", "a", "b")
	s.start("w3", brief("h1"), brief("h2"), brief("a", "b"))
	s.settle("a", "b")
	s.work(100)

	stopped := stopServer(t, server, syscall.SIGSTOP)
	told := s.judge.await(t, s.base.TTL-s.base.margin()+scheduling, "the holders are told",
		each(held, byKey, func(v visit) bool { return v.State == forfeited }))
	time.Sleep(time.Until(stopped.Add(s.base.TTL + time.Second)))
	back := stopServer(t, server, syscall.SIGCONT)
	got := s.judge.await(t, s.base.TTL+500*time.Millisecond+scheduling, "another process gets the keys",
		each(held, byKey, func(v visit) bool { return v.Worker == "w3" }))
	t.Logf("T - M is %v; told after %v; another process gets the keys %v after the server's return",
		s.base.TTL-s.base.margin(), told.Sub(stopped).Round(time.Millisecond), got.Sub(back).Round(time.Millisecond))
	s.check()
	lostAt := make(map[string]time.Time)
	for _, v := range s.judge.seen() {
		switch {
		case v.State == forfeited && v.Worker != "w3":
			lostAt[v.Key] = v.LostAt
		case v.Worker == "w3" && (v.Key == "h1" || v.Key == "h2") && !v.Entered.After(lostAt[v.Key]):
			t.Errorf("%v got %s before its holder was told, at %v", v, v.Key, lostAt[v.Key])
		}
	}
}

func TestBrokenConnectionsLoseNoLock(t *testing.T) {
	takes.Seconds(t)
	long(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	s := newScene(t, job{Redis: proxy.Addr, TTL: 3 * time.Second, Grace: 4 * time.Second})
	keys := []string{"a", "b", "c"}
	s.start("w1", forever("h1"), brief(keys...), impatient(brief(keys...)))
	s.start("w2", forever("h2"), brief(keys...), impatient(brief(keys...)))
	s.start("w3", quietly(forever("h3")), brief(keys...), impatient(brief(keys...)))
	s.settle("h1", "h2", "h3", "a", "b", "c")
	s.work(100)

	begun := time.Now()
	before, cuts := len(s.judge.seen()), 0
	for end := begun.Add(4 * time.Second); time.Now().Before(end); cuts++ {
		proxy.Break()
		time.Sleep(50*time.Millisecond + rand.N(250*time.Millisecond))
	}
	over := time.Now()
	during := len(s.judge.seen()) - before
	again := s.judge.await(t, s.base.renewEvery()+scheduling, "each process works again",
		each(s.names, byWorker, func(v visit) bool { return v.Entered.After(over) }))
	all := s.judge.await(t, s.base.renewEvery()+scheduling, "each key is used again",
		each(keys, byKey, func(v visit) bool { return v.Entered.After(over) }))
	resumed := s.work(100)
	t.Logf("%d cuts in %v with %d locks in between; then each process worked after %v, each key was used after %v, and another 100 locks took %v",
		cuts, over.Sub(begun).Round(time.Millisecond), during, again.Sub(over).Round(time.Millisecond),
		all.Sub(over).Round(time.Millisecond), resumed.Round(time.Millisecond))
	s.unscathed(s.check(), "h1", "h2", "h3")
}

func stopServer(t *testing.T, s *redistest.Server, sig os.Signal) time.Time {
	t.Helper()
	if err := s.Signal(sig); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}
