package redisquorum

import (
	"context"
	"testing"
)

// deaf servers promise all, and do not answer when they are to accept.
type deaf struct {
	members
	asked  func()
	answer chan struct{} // closed: they do
	got    chan []cell   // what they were to accept
}

func (*deaf) count() int { return 3 }

func (*deaf) prepare(_ context.Context, _ int, ballot string, names []string) (reply, error) {
	return reply{epoch: 1, cells: []cell{{promised: ballot}}}, nil
}

func (d *deaf) accept(_ context.Context, _ int, ballot string, _ []string, cells []cell) (reply, error) {
	d.asked()
	<-d.answer
	d.got <- cells
	return reply{epoch: 1, cells: []cell{{promised: ballot}}}, nil
}

// A server that is slow gets the value of its ballot, whatever the caller has done since. The race detector tells, too.
func TestRegister_ASlowServerGetsTheValueOfItsBallot(t *testing.T) {
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		d := &deaf{asked: cancel, answer: make(chan struct{}), got: make(chan []cell, 3)}
		var all calls
		r := newRegister(d, &all)
		_, _, err := r.propose(ctx, -1, []string{"k"}, func(int, cell) (cell, bool) { return cell{version: "v", value: "text"}, true })
		if err == nil {
			t.Error("no error, though no server has accepted")
		}
		close(d.answer)
		all.wait()
		close(d.got)
		n := 0
		for cells := range d.got {
			if n++; len(cells) != 1 || cells[0].value != "text" {
				t.Errorf("a server was to accept %+v", cells)
			}
		}
		if n != 3 {
			t.Errorf("%d servers were asked to accept", n)
		}
	}
}
