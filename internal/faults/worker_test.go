//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
)

// job is the parameters of a worker process.
type job struct {
	Name     string
	Redis    string // address; with Sentinel, the name of the primary
	Sentinel string // address, or empty
	Judge    string
	Cold     bool          // this is the first that the server hears of the namespace
	TTL      time.Duration // T
	Grace    time.Duration // Q
	Tasks    []task

	AllReplicas int // see redisarbiter.Options

	Cluster bool   // the workers share out the partitions
	Peer    string // see coord.Cluster; empty: the default
	Told    string // PeerAdvertise; likewise

	Takeover  time.Duration // see coord.Cluster; 0: the default
	Unwatched bool          // likewise
}

// task is the work of one goroutine until the worker has to end: lock one of the keys, work with
// it, unlock.
type task struct {
	Keys []string
	Hold span // how long to hold a lock
	Rest span // how long to wait before the next one

	// Patience is how long to wait for a lock before giving up. Zero: as long as it takes.
	Patience span

	// Quiet makes the holder rely on the lock's context. It does not look at the lock, nor write,
	// while it waits.
	Quiet bool
}

type span struct{ From, To time.Duration }

func (s span) pick() time.Duration { return s.From + rand.N(s.To-s.From+1) }

const (
	namespace  = "faults"
	partitions = 8 // more would only make the sweeps after a failover longer
)

func (j job) renewEvery() time.Duration { return j.TTL / 4 }
func (j job) margin() time.Duration     { return j.TTL / 10 }

// outage is for how long the arbiter may be away without any lock being lost: T - M - R.
func (j job) outage() time.Duration { return j.TTL - j.margin() - j.renewEvery() }

func (j job) settings() fallback.Settings {
	return fallback.Settings{Namespace: namespace, Partitions: partitions, Grace: j.Grace}
}

// part is the Redis key of a partition.
func part(p int) string { return fmt.Sprintf("{%s:p%d}", namespace, p) }

func (j job) client() redis.UniversalClient {
	if j.Sentinel != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: j.Redis, SentinelAddrs: []string{j.Sentinel}})
	}
	return redis.NewClient(&redis.Options{Addr: j.Redis})
}

// epilogue is a worker's output on stdout at the end.
type epilogue struct {
	Sessions uint64
	Lost     map[string]uint64 // by cause
	Granted  map[string]uint64 // by path
	Failed   map[string]uint64 // calls of the arbiter
	Stalled  time.Duration     // the longest time that the process did not run
}

// worker is a process that works. It ends when its standard input does.
type worker struct {
	job job
	c   *coord.Coordinator

	mu   sync.Mutex           // protects held
	held map[coord.Lock]grasp // the locks that this process has and has not been told to be lost
}

// grasp is a lock as a holder sees it that only looks at the context.
type grasp struct {
	lock    coord.Lock
	inForce context.Context
}

// workAs is main of a worker process.
func workAs(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	client := j.client()
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	orders := make(chan task)
	go func() { // until standard input ends; the process does not wait for it if something else ends the process
		defer stop()
		defer close(orders)
		for in := json.NewDecoder(os.Stdin); ; {
			var t task
			if in.Decode(&t) != nil {
				return
			}
			orders <- t
		}
	}()
	c, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: j.Cold, AllReplicas: j.AllReplicas}), &coord.Options{
		Namespace:   namespace,
		Partitions:  partitions,
		SessionTTL:  j.TTL,
		RenewEvery:  j.renewEvery(),
		Margin:      j.margin(),
		Grace:       j.Grace,
		CallTimeout: j.TTL / 5, // a slow machine is not a fault
		Cluster:     j.cluster(),
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	go mine.Run(func(d time.Duration) { slog.Warn("this process was stopped", "for", d) })
	w := &worker{job: j, c: c, held: make(map[coord.Lock]grasp)}
	var tasks sync.WaitGroup
	var mu sync.Mutex // protects errs
	var errs []error
	begin := func(f func() error) {
		tasks.Go(func() {
			err := f()
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	for _, t := range j.Tasks {
		begin(func() error { return w.do(ctx, t) })
	}
	if j.Cluster {
		begin(func() error { return w.introduce(ctx) })
	}
	for t := range orders {
		begin(func() error { return w.do(ctx, t) })
	}
	tasks.Wait()
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs = append(errs, c.Close(closing), w.report(os.Stdout))
	return errors.Join(errs...)
}

// cluster are the options of a worker that is a node of a cluster.
func (j job) cluster() *coord.Cluster {
	if !j.Cluster {
		return nil
	}
	return &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Peer: j.Peer, PeerAdvertise: j.Told, Keepalive: 200 * time.Millisecond,
		Debounce: 300 * time.Millisecond, Takeover: j.Takeover, Unwatched: j.Unwatched}
}

// introduce tells the judge of the session that the process has, and of the next ones: the records
// name them as owners. It also tells when other nodes guard it.
func (w *worker) introduce(ctx context.Context) error {
	c, err := net.Dial("tcp", w.job.Judge)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &resource{conn: c, answers: bufio.NewReader(c)}
	if _, err := fmt.Fprintln(c, w.job.Name); err != nil {
		return err
	}
	for last, is := "", false; ctx.Err() == nil && r.err == nil; sleep(ctx, 20*time.Millisecond) {
		now := w.c.Stats()
		if s := now.Session; s != last {
			last = s
			r.say(statement{Verb: here, Text: s})
		}
		if !is && now.Guardians > 0 {
			is = r.say(statement{Verb: guarded})
		}
	}
	return r.err
}

func (w *worker) report(to io.Writer) error {
	s := w.c.Stats()
	e := epilogue{Sessions: s.Sessions, Lost: make(map[string]uint64), Granted: make(map[string]uint64),
		Failed: make(map[string]uint64), Stalled: mine.Longest()}
	for k, n := range s.Lost {
		e.Lost[k.String()] = n
	}
	for k, n := range s.Granted {
		e.Granted[k.String()] = n
	}
	for k, n := range s.Failed {
		e.Failed[k.String()] = n
	}
	return json.NewEncoder(to).Encode(e)
}

// do works on a task until ctx ends.
func (w *worker) do(ctx context.Context, t task) error {
	c, err := net.Dial("tcp", w.job.Judge)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &resource{conn: c, answers: bufio.NewReader(c)}
	if _, err := fmt.Fprintln(c, w.job.Name); err != nil {
		return err
	}
	for ctx.Err() == nil {
		key := t.Keys[rand.IntN(len(t.Keys))]
		begun := time.Now()
		l, err := w.lock(ctx, key, t.Patience)
		switch {
		case err == nil:
			w.visit(ctx, r, l, t, time.Since(begun))
		case ctx.Err() == nil && !gaveUp(err, t.Patience):
			r.say(statement{Verb: broken, Key: key, Text: "Lock: " + err.Error()})
		}
		if r.err != nil {
			return r.err
		}
		sleep(ctx, t.Rest.pick())
	}
	return nil
}

func (w *worker) lock(ctx context.Context, key string, patience span) (coord.Lock, error) {
	if patience == (span{}) {
		return w.c.Lock(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, patience.pick())
	defer cancel()
	return w.c.Lock(ctx, key)
}

// gaveUp tells whether an error of Lock is one that it may return to a caller without more
// patience.
func gaveUp(err error, patience span) bool {
	return patience != (span{}) && errors.Is(err, context.DeadlineExceeded)
}

// step is how often a holder writes.
const step = 20 * time.Millisecond

// visit holds the lock for a while, and says so.
func (w *worker) visit(ctx context.Context, r *resource, l coord.Lock, t task, waited time.Duration) {
	inForce := l.Context()
	inForce.Done() // so Unlock looks at the clock
	if text := w.grasp(l, inForce); text != "" {
		r.tell(broken, l, text)
	}
	defer w.let(l)
	ok := r.say(statement{Verb: enter, Key: l.Key(), Token: uint64(l.Fence()), Waited: waited})
	for end := time.Now().Add(t.Hold.pick()); ok && time.Now().Before(end) && ctx.Err() == nil && inForce.Err() == nil; {
		pause := time.Until(end)
		if !t.Quiet {
			pause = min(pause, step)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-inForce.Done():
		}
		if inForce.Err() == nil { // checks the clock, too
			ok = r.tell(write, l, "")
		}
	}
	if inForce.Err() == nil {
		r.tell(leave, l, "")
	}
	err := l.Unlock()
	unlocked := time.Now()
	switch {
	case err == nil:
		r.tell(nilled, l, "")
	case !errors.Is(err, coord.ErrLost):
		r.tell(broken, l, fmt.Sprintf("Unlock returned %v", err))
	default:
		r.tell(late, l, "")
		cause := context.Cause(inForce)
		if cause == nil { // it ends when the mutex is free again, in another goroutine
			sleep(inForce, time.Second)
			cause = context.Cause(inForce)
		}
		r.say(statement{Verb: lost, Key: l.Key(), Token: uint64(l.Fence()), At: unlocked,
			Told: errors.Is(cause, coord.ErrLost), Text: fmt.Sprint(cause)})
	}
}

// grasp notes a granted lock. It returns an error text if another lock of this process, of a
// session that has died, had not been declared lost before (rule 3).
func (w *worker) grasp(l coord.Lock, inForce context.Context) (wrong string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.held {
		if x.inForce.Err() != nil {
			continue
		}
		// In this order. If the other one was of the same session, that one has died when the clock
		// says so, and this lock with it.
		loss, ok := errors.AsType[*coord.LossError](context.Cause(x.lock.Context()))
		if ok && loss.Cause == coord.SessionExpired && l.Context().Err() == nil {
			wrong = fmt.Sprintf("granted before this was told: %v", loss)
		}
	}
	w.held[l] = grasp{l, inForce}
	return wrong
}

func (w *worker) let(l coord.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, l)
}

// resource is the judge, as one goroutine of a worker talks to it.
type resource struct {
	conn    net.Conn
	answers *bufio.Reader
	err     error
}

func (r *resource) tell(v verb, l coord.Lock, text string) bool {
	return r.say(statement{Verb: v, Key: l.Key(), Token: uint64(l.Fence()), Text: text})
}

// say reports whether the judge accepted the statement. The judge is never at fault, so an error
// ends the worker.
func (r *resource) say(s statement) bool {
	if r.err != nil {
		return false
	}
	if r.err = json.NewEncoder(r.conn).Encode(s); r.err != nil {
		return false
	}
	answer, err := r.answers.ReadString('\n')
	r.err = err
	return answer == accepted+"\n"
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
