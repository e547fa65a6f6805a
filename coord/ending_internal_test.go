package coord

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
)

// The error of a session that has ended has the reasons that are known, with their lengths, and
// others only if none is.
func TestBecause(t *testing.T) {
	refused := errors.New("connection refused")
	for name, x := range map[string]struct {
		late    time.Duration // of watch
		stepped int64         // seconds of the wall clock
		failure error
		renewed time.Duration // a renewal was answered that was sent so long ago, and watch has woken
		want    string
	}{
		"stood still":    {late: 12600 * time.Millisecond, want: "this process stood still, for 12.6s or more"},
		"a busy machine": {late: 20 * time.Millisecond, want: "the arbiter did not answer, or this process stood still, or its clock stepped forward"},
		"stepped":        {stepped: 3600, want: "its clock stepped forward by 1h0m0s, or its machine was suspended"},
		"failed":         {failure: refused, want: "the arbiter has not answered for 9s, at last: connection refused"},
		"two of them":    {late: 3 * time.Second, failure: refused, want: "this process stood still, for 3s or more; the arbiter has not answered for 9s, at last: connection refused"},
		"long ago":       {late: 12 * time.Second, failure: refused, renewed: -time.Millisecond, want: "the arbiter did not answer, or this process stood still, or its clock stepped forward"},
		"on its way":     {late: 12 * time.Second, failure: refused, renewed: 13 * time.Second, want: "this process stood still, for 12s or more"},
	} {
		now := time.Now()
		c := &Coordinator{opts: Options{RenewEvery: 2500 * time.Millisecond}, began: now.Add(-time.Hour)}
		s := &session{Session: lease.NewSession("s", now)}
		if x.stepped > 0 {
			s.Extend(earlierByWall(now.Add(9*time.Second), x.stepped))
		}
		s.ending.sleeps(c.at(now.Add(-x.late)))
		if x.failure != nil {
			s.ending.failure.Store(&x.failure)
		}
		if x.renewed != 0 {
			s.ending.wakes(c.at(now))
			s.ending.renewed(c.at(now.Add(-x.renewed)))
		}
		err := c.because(errExpired, s, now.Add(-9*time.Second))
		if got := strings.TrimPrefix(err.Error(), errExpired.Error()+": "); got != x.want || !errors.Is(err, errExpired) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// The number of locks that were lost with a session has those that a holder lost by asking, before
// the session was taken away, and none that were lost for other reasons, or before.
func TestReports_LossesOfASession(t *testing.T) {
	var r reports
	r.init()
	for range 2 {
		r.add([]*LossError{{Cause: SessionExpired}})
		r.add([]*LossError{{Cause: LeaseExpired}, {Cause: SessionExpired}})
		if n := r.ofSession(); n != 2 {
			t.Errorf("%d locks, want 2", n)
		}
	}
	if all := r.take(); all[SessionExpired].count != 4 || all[LeaseExpired].count != 2 {
		t.Errorf("%v", all)
	}
}
