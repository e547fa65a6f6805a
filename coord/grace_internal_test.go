package coord

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// longer is a namespace whose Grace is 42 s, as another process needs that.
type longer struct{ fallback.Namespace }

func (longer) Grace() time.Duration { return 42 * time.Second }

// The time in which the server before may answer begins when an answer was read. It is reckoned
// with the shortest Grace that another process may have begun.
func TestGrace_TheServerBeforeMayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Coordinator{opts: Options{SessionTTL: 10 * time.Second, Margin: time.Second, Grace: 12 * time.Second}}
		c.sessions.init()
		sent := c.now()
		time.Sleep(900 * time.Millisecond)
		c.graceSeen(7, sent, 12*time.Second)
		if left := c.sessions.settledBy().Sub(c.now()); left != 2*time.Second {
			t.Errorf("it was asked %v ago, and may answer for %v", c.since(sent), left)
		}
		ns := fallback.Namespace(longer{})
		c.remote.namespace.Store(&ns)
		for left, want := range map[time.Duration]time.Duration{
			11900 * time.Millisecond: 1900 * time.Millisecond, // begun by a process that has not been told
			41900 * time.Millisecond: 31900 * time.Millisecond,
			9 * time.Second:          -time.Second,
			0:                        0,
		} {
			if got := c.settles(left); got != want {
				t.Errorf("of Grace %v are left: the server before may answer for %v, not %v", left, got, want)
			}
		}
	})
}

// The last expiry of a session: of calls that were on their way together the later expiry counts,
// in whichever order they are answered. Else the last answer counts, as a clock may have stepped
// back.
func TestExpiry(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var x expiry
	for _, a := range []struct {
		is         int64
		sent, came int
		want       int64
	}{
		{100, 1, 4, 100},
		{99, 2, 5, 100},  // sent before that came
		{101, 3, 6, 101}, // sent before, and executed after
		{50, 7, 8, 50},   // the clock stepped back, or it is another server's
	} {
		x.told(a.is, at(a.sent), at(a.came))
		if got := x.last(); got != a.want {
			t.Errorf("%+v: %d", a, got)
		}
	}
}
