package redisquorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deaf servers promise all, and do not answer when they are to accept.
type deaf struct {
	members
	asked  func()
	answer chan struct{} // closed: they do
	got    chan []cell   // the cells that they were to accept
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

// A server that is slow gets the value of its ballot, whatever the caller has done since. The race
// detector tells, too.
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

// lossy servers do as the scripts do. Messages and answers take time, and some are lost.
type lossy struct {
	sure bool // none is

	mu    sync.Mutex // protects servers
	cells [3]map[string]cell
}

var errLost = errors.New("lost")

func (*lossy) count() int { return 3 }

func (l *lossy) tell(context.Context, int, string) (reply, error) { return reply{epoch: 1}, nil }

// send has a server execute f for each record.
func (l *lossy) send(ctx context.Context, server int, names []string, f func(k int, c cell) cell) (r reply, err error) {
	for i := range 2 {
		most := 4 * time.Millisecond
		if rand.IntN(4) == 0 {
			most *= 16
		}
		select {
		case <-time.After(rand.N(most)):
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
		if !l.sure && rand.IntN(20) == 0 {
			return reply{}, errLost
		}
		if i == 1 {
			break
		}
		l.mu.Lock()
		r.epoch = 1
		for k, name := range names {
			c := f(k, l.cells[server][name])
			l.cells[server][name] = c
			r.cells = append(r.cells, c)
		}
		l.mu.Unlock()
	}
	return r, nil
}

func (l *lossy) read(ctx context.Context, server int, names []string) (reply, error) {
	return l.send(ctx, server, names, func(_ int, c cell) cell { return c })
}

func (l *lossy) prepare(ctx context.Context, server int, ballot string, names []string) (reply, error) {
	return l.send(ctx, server, names, func(_ int, c cell) cell {
		c.promised = max(c.promised, ballot)
		return c
	})
}

func (l *lossy) accept(ctx context.Context, server int, ballot string, names []string, cells []cell) (reply, error) {
	return l.send(ctx, server, names, func(k int, c cell) cell {
		if c.promised > ballot {
			return c
		}
		return cell{ballot, ballot, cells[k].version, cells[k].value}
	})
}

// A swap that says that it has not written has not: its caller runs its transition again. One that
// says that it has written has, once. Of others it is unknown.
func TestRegister_SwapTellsWhatIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(lossy)
		for i := range l.cells {
			l.cells[i] = make(map[string]cell)
		}
		var all calls
		const none, written, unknown = "not written", "written", "unknown"
		var mu sync.Mutex
		said := make(map[string]string) // by the text that the swap was to append
		count := make(map[string]int)
		names := []string{"k", "l"}
		one := func(r *register, who string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			cells, err := r.load(ctx, names)
			if err != nil {
				return
			}
			var was, values []string
			for i := range names {
				was, values = append(was, cells[i].version), append(values, cells[i].value+" "+names[i]+who)
			}
			done, err := r.swap(ctx, names, was, values)
			mu.Lock()
			defer mu.Unlock()
			for i := range names {
				what := unknown
				if err == nil {
					what = map[bool]string{true: written, false: none}[done[i]]
				}
				said[names[i]+who] = what
				count[what]++
			}
		}
		var work sync.WaitGroup
		for p := range 5 {
			r := newRegister(l, &all)
			for c := range 2 {
				work.Go(func() {
					for n := range 60 {
						one(r, fmt.Sprint(p, "-", c, "-", n))
					}
				})
			}
		}
		work.Wait()
		all.wait()
		l.sure = true
		cells, err := newRegister(l, &all).load(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		all.wait()
		found := make(map[string]int)
		for i := range names {
			for x := range strings.FieldsSeq(cells[i].value) {
				found[x]++
			}
		}
		for x, what := range said {
			if n := found[x]; n > 1 || what == none && n != 0 || what == written && n != 1 {
				t.Errorf("swap %s says: %s; its value is there %d times", x, what, n)
			}
		}
		t.Log(count)
		if count[written] < 100 || count[none] < 50 || count[unknown] < 50 {
			t.Errorf("%v: the test shows too little", count)
		}
	})
}
