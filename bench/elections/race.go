package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// candidateEnv has the order of a process that is to be a candidate.
const candidateEnv = "HOLDFAST_ELECTIONS"

type order struct {
	Side int
	Addr string // of the server
}

// retryPeriod is client-go's recommended one.
const retryPeriod = 2 * time.Second

// limit is how long a candidate may take to come, or to lead.
const limit = 2 * time.Minute

// A race is the candidates of a side.
type race struct {
	side    int
	addr    string
	ctx     context.Context // of the candidates
	stop    context.CancelFunc
	reading sync.WaitGroup
	events  chan event
	leader  event
	runs    map[*exec.Cmd]chan struct{} // closed when the process has ended
	heeded  time.Time                   // when the last leader that was told to stop had noticed
	took    []time.Duration
}

// An event is what a candidate has come to.
type event struct {
	by   *exec.Cmd
	what string // waits, leads or told
	at   time.Time
}

func newRace(ctx context.Context, side int, addr string) *race {
	r := &race{side: side, addr: addr, events: make(chan event, 100), runs: make(map[*exec.Cmd]chan struct{})}
	r.ctx, r.stop = context.WithCancel(ctx)
	return r
}

// add starts a candidate.
func (r *race) add() (*exec.Cmd, error) {
	w, err := reexec.Start(r.ctx, candidateEnv, order{r.side, r.addr}, os.Stderr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	r.runs[w.Cmd] = ended
	r.reading.Go(func() {
		defer close(ended)
		r.read(w.Cmd, w.Out)
	})
	return w.Cmd, nil
}

func (r *race) read(cmd *exec.Cmd, out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		e, at := event{by: cmd}, int64(0)
		if _, err := fmt.Sscan(s.Text(), &e.what, &at); err == nil {
			e.at = time.Unix(0, at)
			r.events <- e
		}
	}
}

// await returns the next event of that kind. Those of other kinds are of no use by then.
func (r *race) await(what string, ok func(event) bool) (event, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case e := <-r.events:
			if e.what == "told" {
				r.heeded = e.at
			}
			if e.what == what && ok(e) {
				return e, nil
			}
		case <-late.C:
			return event{}, fmt.Errorf("not within %v: a candidate %s", limit, what)
		case <-r.ctx.Done():
			return event{}, context.Cause(r.ctx)
		}
	}
}

// begin starts a leader, and two candidates that wait.
func (r *race) begin() (err error) {
	if _, err := r.add(); err != nil {
		return err
	}
	if r.leader, err = r.await("leads", func(event) bool { return true }); err != nil {
		return err
	}
	for range 2 {
		if err := r.join(); err != nil {
			return err
		}
	}
	return nil
}

// join starts a candidate, and returns when it waits: one of client-go has made its first attempt.
func (r *race) join() error {
	cmd, err := r.add()
	if err != nil {
		return err
	}
	_, err = r.await("waits", func(e event) bool { return e.by == cmd })
	return err
}

// turn replaces the leader's process. Before that it waits for a random share of client-go's period, as the SIGTERM of a
// deployment comes at any time between two attempts of those that poll. It says of a long hand-over where it has waited.
func (r *race) turn(ctx context.Context, pause time.Duration) (err error) {
	phase := time.NewTimer(rand.N(pause))
	defer phase.Stop()
	select {
	case <-phase.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	told, old := time.Now(), r.leader.by
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if r.leader, err = r.await("leads", func(e event) bool { return e.by != old }); err != nil {
		return err
	}
	r.took = append(r.took, r.leader.at.Sub(told))
	<-r.runs[old]
	delete(r.runs, old)
	if err := old.Wait(); err != nil {
		return err
	}
	if err := r.join(); err != nil {
		return err
	}
	if took := r.took[len(r.took)-1]; took > 100*time.Millisecond && r.heeded.After(told) {
		log.Printf("%s: %v, of which %v until the leader's context had ended", sides[r.side].name, took, r.heeded.Sub(told))
	}
	return nil
}

// end ends all candidates.
func (r *race) end() (err error) {
	r.stop()
	read := make(chan struct{})
	go func() { r.reading.Wait(); close(read) }()
	for open := true; open; {
		select {
		case <-r.events:
		case <-read:
			open = false
		}
	}
	for cmd := range r.runs {
		if e := cmd.Wait(); e != nil && !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}
