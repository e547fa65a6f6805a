package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// A fleet is the worker processes of one rung, as their parent sees them.
type fleet struct {
	processes []*process
	client    *http.Client // asks for their status
	stop      func() error // ends them all and waits for that
}

// A process is a worker.
type process struct {
	cmd   *exec.Cmd
	url   string
	hello chan hello    // has one value, or is closed without
	ended chan struct{} // closed when there is no process any more
	err   error         // why it ended; to be read after that
}

const startTime = 20 * time.Second // to start the processes, and for them to find each other

// startFleet starts the processes, and waits until they serve and, in a cluster, have shared out
// the keys. lost is called with the reason if one ends before stop is called.
func startFleet(ctx context.Context, common order, stderr io.Writer, lost context.CancelCauseFunc) (_ *fleet, err error) {
	// Not ctx's child: the end of the run does not end the processes before the requests in flight
	// have been cancelled.
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	f := &fleet{client: &http.Client{Transport: &http.Transport{}, Timeout: startTime}}
	f.stop = func() error {
		end()
		var errs []error
		for i, p := range f.processes {
			<-p.ended
			if p.err != nil {
				errs = append(errs, fmt.Errorf("worker %d: %w", i, p.err))
			}
		}
		f.client.CloseIdleConnections()
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()

	for i := range common.Processes {
		o := common
		o.Number = i
		p, err := startProcess(living, o, stderr)
		if err != nil {
			return nil, err
		}
		f.processes = append(f.processes, p)
		go func() {
			<-p.ended
			if living.Err() == nil {
				lost(fmt.Errorf("worker %d has ended", i))
			}
		}()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("the processes are not ready after %v", startTime))
	defer cancel()
	for i, p := range f.processes {
		select {
		case h, ok := <-p.hello:
			if !ok {
				return nil, fmt.Errorf("worker %d does not serve", i)
			}
			p.url = h.URL
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return f, nil
}

// startProcess starts a worker. When ctx ends, the worker's stdin does, which makes it end by
// itself; if it does not, it is killed.
func startProcess(ctx context.Context, o order, stderr io.Writer) (*process, error) {
	w, err := reexec.Start(ctx, orderEnv, o, stderr, 2*closeTime+time.Second)
	if err != nil {
		return nil, err
	}
	cmd, stdout := w.Cmd, w.Out
	p := &process{cmd: cmd, hello: make(chan hello, 1), ended: make(chan struct{})}
	go func() {
		var h hello
		if json.NewDecoder(stdout).Decode(&h) == nil {
			p.hello <- h
		}
		close(p.hello)
		_, _ = io.Copy(io.Discard, stdout) // Wait may be called at its end
		// Wait calls it an error that the process was told to end, also if it did so without one.
		if err := cmd.Wait(); !cmd.ProcessState.Success() {
			p.err = err
		}
		close(p.ended)
	}()
	return p, nil
}

// status asks all processes.
func (f *fleet) status(ctx context.Context) ([]status, error) {
	all := make([]status, len(f.processes))
	for i, p := range f.processes {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/status", nil)
		if err != nil {
			return nil, err
		}
		res, err := f.client.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
		err = json.NewDecoder(res.Body).Decode(&all[i])
		res.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("worker %d: status: %w", i, err)
		}
	}
	return all, nil
}

// commands is the number of commands that the processes have sent to Redis, all together.
func (f *fleet) commands(ctx context.Context) (int64, error) {
	all, err := f.status(ctx)
	var sum int64
	for _, s := range all {
		sum += s.Commands
	}
	return sum, err
}

func (f *fleet) urls() []string {
	var urls []string
	for _, p := range f.processes {
		urls = append(urls, p.url)
	}
	return urls
}
