package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/tokens"
)

// An order has the settings of a worker process. It travels in the environment, as JSON.
type order struct {
	Worker     int      `json:"worker"`
	Rung       string   `json:"rung"`
	Redis      string   `json:"redis"`
	Provider   string   `json:"provider"` // its URL
	Namespace  string   `json:"namespace"`
	Accounts   []string `json:"accounts"`
	Goroutines int      `json:"goroutines"`
	Grace      bool     `json:"grace"`
}

const orderEnv = "HOLDFAST_TOKENS_ORDER"

// A message is a worker's line of JSON to its parent.
type message struct {
	Ready     bool    `json:"ready,omitempty"`
	LoggedOut string  `json:"logged_out,omitempty"` // the account that has to be logged in again
	Fence     uint64  `json:"fence,omitempty"`      // which doubt that is about; 0: none
	Result    *result `json:"result,omitempty"`
}

// A result has a worker's counts.
type result struct {
	Calls   int64  `json:"calls"`   // of the API
	Refused int64  `json:"refused"` // calls with a token that is not valid
	Failed  int64  `json:"failed"`  // other errors
	Failure string `json:"failure"` // one of them
}

// workerMain is the whole life of a worker process. It returns the exit status. A line on stdin
// starts the work, and the end of stdin ends it, so no worker outlives its parent for long.
func workerMain(text string) int {
	// A terminal sends Ctrl-C to all processes. Ending the workers is the parent's business, in
	// order.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started := make(chan struct{})
	go func() { // ends with stdin, or with the process
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(started)
		}
		_, _ = io.Copy(io.Discard, in)
		stop()
		time.Sleep(2 * closeTime)
		os.Exit(1)
	}()
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = work(ctx, o, started, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "tokens worker %d: %v\n", o.Worker, err)
		return 1
	}
	return 0
}

// work uses tokens from the start until ctx ends.
func work(ctx context.Context, o order, started <-chan struct{}, out io.Writer) error {
	found, err := findRungs(o.Rung)
	if err != nil {
		return err
	}
	client := newRedisClient(o.Redis)
	defer client.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: o.Goroutines}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: named{transport, o.Worker}}
	k, err := found[0].open(o, client, web)
	if err != nil {
		return err
	}
	defer k.Close()
	u := &user{order: o, keeper: k, web: web, out: json.NewEncoder(out)}
	if err := u.tell(message{Ready: true}); err != nil {
		return err
	}
	select {
	case <-started:
	case <-ctx.Done():
		select {
		case <-started: // both: it has a result to tell
		default:
			return nil
		}
	}
	var work sync.WaitGroup
	for range o.Goroutines {
		work.Go(func() { u.use(ctx) })
	}
	work.Wait()
	r := result{Calls: u.calls.Load(), Refused: u.refused.Load(), Failed: u.failed.Load()}
	if f := u.failure.Load(); f != nil {
		r.Failure = *f
	}
	return u.tell(message{Result: &r})
}

// A user is the state that the goroutines of one process share.
type user struct {
	order
	keeper keeper
	web    *http.Client

	calls, refused, failed atomic.Int64
	failure                atomic.Pointer[string]

	mu  sync.Mutex // protects out
	out *json.Encoder
}

func (u *user) tell(m message) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.out.Encode(m)
}

// use gets tokens again and again, and uses one in twenty.
func (u *user) use(ctx context.Context) {
	for n := rand.IntN(20); ctx.Err() == nil; n++ {
		account := u.Accounts[rand.IntN(len(u.Accounts))]
		t, err := u.keeper.Token(ctx, account)
		switch {
		case ctx.Err() != nil:
			return
		case loggedOut(err):
			m := message{LoggedOut: account}
			if d, ok := errors.AsType[*tokens.InDoubtError](err); ok {
				m.Fence = d.Fence
				if d.Replay {
					break // it will be tried once more: no report is needed
				}
			}
			_ = u.tell(m) // if the parent cannot be told, it is gone
			pause(ctx, 200*time.Millisecond)
		case err != nil:
			u.fail(err)
			pause(ctx, 100*time.Millisecond)
		case n%20 == 0:
			u.call(ctx, t.AccessToken)
		}
		pause(ctx, time.Duration(10+rand.IntN(20))*time.Millisecond)
	}
}

// call uses an access token.
func (u *user) call(ctx context.Context, token string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Provider+apiPath, nil)
	if err != nil {
		u.fail(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := u.web.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			u.fail(err)
		}
		return
	}
	a.Body.Close()
	u.calls.Add(1)
	if a.StatusCode != http.StatusOK {
		u.refused.Add(1)
	}
}

func (u *user) fail(err error) {
	u.failed.Add(1)
	text := err.Error()
	u.failure.Store(&text)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
