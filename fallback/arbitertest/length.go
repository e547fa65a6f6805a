package arbitertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var lengthTests = []test{
	{"a session waits until the others use the Grace that it needs", longer},
	{"Grace is shorter again when no session needs more", shorter},
}

// process attaches one with a Grace of its own.
func (s *space) process(grace time.Duration) fallback.Namespace {
	own := s.settings
	own.Grace, own.Lease = grace, grace-time.Millisecond
	n := must(s.arbiter.Attach(s.ctx, own))(s)
	s.t.Cleanup(func() { _ = n.Close() })
	return n
}

// opens opens a session, and reports whether it does not have to wait.
func (s *space) opens(n fallback.Namespace, session string) bool {
	s.t.Helper()
	r, err := n.Open(s.ctx, session, fallback.Registration{TTL: time.Hour})
	if errors.Is(err, fallback.ErrWait) {
		return false
	}
	if err != nil || !r.Alive {
		s.t.Fatalf("Open of %s: got %+v, %v", session, r, err)
	}
	return true
}

func (s *space) renews(n fallback.Namespace, session string) {
	s.t.Helper()
	if r := must(n.Renew(s.ctx, session, fallback.Registration{TTL: time.Hour}))(s); !r.Alive {
		s.t.Fatalf("%s is dead", session)
	}
}

func longer(s *space) {
	q := s.settings.Grace
	old, young := s.process(q), s.process(2*q)
	want(s, "the old one is opened", s.opens(old, "old"), true)
	want(s, "Grace of a process that needs more", young.Grace(), 2*q)
	for range 3 {
		want(s, "the young one is opened, before the other uses its Grace", s.opens(young, "young"), false)
	}
	want(s, "Grace before it is told", old.Grace(), q)
	s.renews(old, "old")
	want(s, "Grace when it is told", old.Grace(), 2*q)
	want(s, "the young one is opened, before the other states its Grace", s.opens(young, "young"), false)
	s.renews(old, "old")
	want(s, "the young one is opened", s.opens(young, "young"), true)
	third := s.process(q / 2)
	want(s, "Grace of one that starts later", third.Grace(), 2*q)
	want(s, "the third is opened", s.opens(third, "third"), true)

	same := s.settings // of a process that cannot change
	if n, err := s.arbiter.Attach(s.ctx, same); !errors.Is(err, fallback.ErrMismatch) || n != nil {
		s.t.Errorf("Attach with the first Grace and without a Lease: got %v, %v, want ErrMismatch", n, err)
	}
}

func shorter(s *space) {
	q := s.settings.Grace
	long, short := s.process(q), s.process(q/2)
	want(s, "the one that needs more is opened", s.opens(long, "long"), true)
	want(s, "the one that needs less is opened", s.opens(short, "short"), true)
	want(s, "Grace of one that needs less", short.Grace(), q)
	s.renews(short, "short")
	want(s, "Grace while more is needed", short.Grace(), q)
	if err := long.CloseSession(s.ctx, "long"); err != nil {
		s.t.Fatal(err)
	}
	s.renews(short, "short")
	want(s, "Grace before the shorter one is stated", short.Grace(), q)
	s.renews(short, "short")
	want(s, "Grace when nothing needs more", short.Grace(), q/2)
	want(s, "one that needs more is opened by its first call", s.opens(long, "again"), false)
}

func longerInGrace(s *space, server Server) {
	q := s.settings.Grace
	old := s.process(q)
	want(s, "the old one is opened", s.opens(old, "old"), true)
	server.save()
	server.Crash()
	if server.Save == nil { // the table of sessions is new then, and of the session that comes first: one that was there
		s.renews(old, "old")
	}
	young := s.process(2 * q)
	for range 3 {
		want(s, "one that needs more is opened in Grace", s.opens(young, "young"), false)
	}
	s.renews(old, "old")
	want(s, "Grace is told in Grace", old.Grace(), q)
	want(s, "one that needs no more is opened in Grace", s.opens(s.process(q), "other"), true)
}
