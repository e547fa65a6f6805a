package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
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
	order
	ctx    context.Context // of the candidates
	stop   context.CancelFunc
	events chan event
	leader event
	runs   map[*exec.Cmd]chan struct{} // closed when the process has said all
	heeded time.Time                   // when the last leader that was told to stop had noticed
	took   []time.Duration
}

// An event is a change of a candidate's state.
type event struct {
	by   *exec.Cmd
	what string // waits, leads or told
	at   time.Time
}

func newRace(ctx context.Context, side int, addr string) *race {
	r := &race{order: order{side, addr}, events: make(chan event, 1000), runs: make(map[*exec.Cmd]chan struct{})}
	r.ctx, r.stop = context.WithCancel(ctx)
	return r
}

// add starts a candidate, and returns its event of the wanted kind.
func (r *race) add(what string) (event, error) {
	w, err := reexec.Start(r.ctx, candidateEnv, r.order, os.Stderr, 10*time.Second)
	if err != nil {
		return event{}, err
	}
	said := make(chan struct{})
	r.runs[w.Cmd] = said
	go func() {
		defer close(said)
		for s := bufio.NewScanner(w.Out); s.Scan(); {
			e, at := event{by: w.Cmd}, int64(0)
			if _, err := fmt.Sscan(s.Text(), &e.what, &at); err == nil {
				e.at = time.Unix(0, at)
				r.events <- e
			}
		}
	}()
	return r.await(what, func(e event) bool { return e.by == w.Cmd })
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

// begin starts a leader, and two candidates that wait: one of client-go has made its first attempt.
func (r *race) begin() (err error) {
	if r.leader, err = r.add("leads"); err != nil {
		return err
	}
	for range 2 {
		if _, err := r.add("waits"); err != nil {
			return err
		}
	}
	return nil
}

// turn replaces the leader's process. Before that it waits for a random share of client-go's
// period: a deployment sends SIGTERM at any time between two attempts of a candidate that polls.
// It says of a long hand-over where it has waited.
func (r *race) turn(ctx context.Context, pause time.Duration) (err error) {
	select {
	case <-time.After(rand.N(pause)):
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
	took := r.leader.at.Sub(told)
	r.took = append(r.took, took)
	<-r.runs[old]
	delete(r.runs, old)
	if err := old.Wait(); err != nil {
		return err
	}
	if _, err := r.add("waits"); err != nil {
		return err
	}
	if took > 100*time.Millisecond && r.heeded.After(told) {
		log.Printf("%s: %v, of which %v until the leader's context had ended", sides[r.Side].name, took, r.heeded.Sub(told))
	}
	return nil
}

// end ends all candidates.
func (r *race) end() (err error) {
	r.stop()
	for cmd, said := range r.runs {
		<-said
		if e := cmd.Wait(); e != nil && !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}
