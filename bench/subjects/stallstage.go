package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// stallStage is where a scenario is played: a redis-server and processes of its own. After an error
// nothing else is done there.
type stallStage struct {
	ctx    context.Context
	b      harness.Bench // with that server
	sizes  stallSizes
	server *redistest.Server
	book   *stallBook
	task   stallTask
	begin  time.Time
	redis  *redis.Client
	cpu    time.Duration // of the server, of its processes before this one
	since  time.Duration // of this one, when the load began
	err    error         // the first

	number int             // of processes that were started
	slots  []*stallProcess // the server of each

	mu      sync.Mutex     // protects the fields below
	left    []error        // of processes that were to end
	used    []stats.Effort // by those that did
	failure string
	leaving sync.WaitGroup
}

// stallProcess is one of the processes that were started.
type stallProcess struct {
	*reexec.Worker
	number int64
}

// play measures the variant once, which has a server at conn if it is not on Redis.
func (r *stallRun) play(ctx context.Context, b *Run, conn string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp(b.Dir, "stalls-")
	if err != nil {
		return err
	}
	s := b.Sizes.stalls
	s.Hold = cmp.Or(r.scenario.hold, s.Hold)
	x := &stallStage{ctx: ctx, b: *b.Bench, sizes: s, task: stallTask{
		stallSizes: s, Book: filepath.Join(dir, "book"), Variant: r.variant.Name, Server: conn,
	}}
	// A server of its own, whatever -redis says: it will be killed. Its data is to survive that.
	if x.server, err = redistest.New(dir, "--appendonly", "yes"); err != nil {
		return err
	}
	defer x.server.Kill()
	x.b.Addr = x.server.Addr
	x.redis = redis.NewClient(&redis.Options{Addr: x.b.Addr})
	defer x.redis.Close()
	book, unmap, err := openBook(x.task.Book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	x.book = book
	x.slots = make([]*stallProcess, s.Processes)
	for i := range x.slots {
		x.slots[i] = x.start()
	}
	x.settled()
	x.do(func() (err error) {
		for i, p := range x.slots {
			book.serves[i].Store(p.number)
		}
		x.since, err = harness.ServerCPU(ctx, x.redis)
		x.begin = time.Now()
		book.begin.Store(x.begin.UnixNano())
		return err
	})
	x.pass(s.Calm)
	r.scenario.strike(x)
	took, done := time.Since(x.begin), book.done.Load()
	if book.over.Store(true); x.err != nil {
		cancel()
	}
	x.end()
	x.ended()
	if x.err == nil {
		r.add(x, took, done)
	}
	return x.err
}

// do calls f and keeps its error, unless there is one already.
func (x *stallStage) do(f func() error) {
	if x.err == nil {
		x.err = f()
	}
}

// ended notes the CPU time of the server; after it, another process of it begins, or none.
func (x *stallStage) ended() {
	x.do(func() error {
		now, err := harness.ServerCPU(x.ctx, x.redis)
		x.cpu, x.since = x.cpu+now-x.since, 0
		return err
	})
}

// start starts a process and waits until it is ready to lock. It returns nil if it is not.
func (x *stallStage) start() (p *stallProcess) {
	x.number++
	x.do(func() error {
		w, err := x.b.Start(x.ctx, "stalls", harness.Order{Process: x.number, SessionTTL: x.sizes.SessionTTL})
		if err != nil {
			return err
		}
		if _, err := stallTasks.Do(w, x.task); err != nil {
			return errors.Join(err, w.Stop())
		}
		p = &stallProcess{w, int64(x.number)}
		return nil
	})
	return p
}

// settled waits until all partitions are owned, if the variant has such.
func (x *stallStage) settled() {
	if x.task.Variant != stallOurs {
		return
	}
	x.do(func() error {
		_, err := allOwned(x.ctx, func() (views []view, err error) {
			for _, p := range x.slots {
				a, err := stallTasks.Do(p.Worker, x.task)
				if err != nil {
					return nil, err
				}
				views = append(views, a.view)
			}
			return views, nil
		})
		return err
	})
}

// pass lets time pass.
func (x *stallStage) pass(d time.Duration) {
	x.do(func() error {
		select {
		case <-time.After(d):
		case <-x.ctx.Done():
		}
		return x.ctx.Err()
	})
}

// leave ends a process in good order, in the background.
func (x *stallStage) leave(p *stallProcess) {
	x.leaving.Go(func() {
		t := x.task
		t.Leave = true
		a, err := stallTasks.Do(p.Worker, t)
		err = errors.Join(err, p.Stop())
		x.mu.Lock()
		defer x.mu.Unlock()
		x.left = append(x.left, err)
		if a != nil {
			x.used = append(x.used, a.Used)
			x.failure = cmp.Or(x.failure, a.Failure)
		}
	})
}

// end ends all processes that are left.
func (x *stallStage) end() {
	for _, p := range x.slots {
		if p != nil {
			x.leave(p)
		}
	}
	x.leaving.Wait()
	x.err = errors.Join(append(x.left, x.err)...)
}

// replace has a new process serve a slot.
func (x *stallStage) replace(i int) {
	if p := x.start(); p != nil {
		x.slots[i] = p
		x.book.serves[i].Store(p.number)
	}
}

func (x *stallStage) rolling() {
	for i, old := range x.slots {
		x.replace(i)
		if x.err == nil {
			x.leave(old)
		}
		x.pass(x.sizes.Every)
	}
}

// killed has a process killed while it holds a lock: of one that holds none a rival would lose
// nothing.
func (x *stallStage) killed() {
	x.loses(func(p *stallProcess) error {
		x.book.dies.Store(p.number)
		limit := time.AfterFunc(x.sizes.Limit, func() { _ = p.Cmd.Process.Kill() })
		defer limit.Stop()
		_ = p.Cmd.Wait() // it says that it was killed
		if !x.book.struck.Load() {
			return fmt.Errorf("process %d did not get a lock to die with", p.number)
		}
		return nil
	})
	x.replace(0)
	x.pass(x.sizes.After)
}

// gone has a process stand still until the end, when it is killed.
func (x *stallStage) gone() {
	victim := x.slots[0]
	x.loses(func(p *stallProcess) error { return p.Cmd.Process.Signal(syscall.SIGSTOP) })
	x.replace(0)
	x.pass(x.sizes.After)
	if x.slots[0] != victim {
		_ = victim.Cmd.Process.Kill()
		_ = victim.Stop()
	}
}

// loses has a process end without a word.
func (x *stallStage) loses(end func(*stallProcess) error) {
	x.do(func() error {
		if err := end(x.slots[0]); err != nil {
			return err
		}
		x.book.serves[0].Store(x.slots[1].number) // the senders of requests see at once that it has gone
		x.slots[0] = nil
		return nil
	})
}

func (x *stallStage) outage() {
	x.ended()
	x.do(func() error {
		x.server.Kill()
		return nil
	})
	x.pass(x.sizes.Outage)
	x.do(x.server.Restart)
	x.pass(x.sizes.After)
}

// add adds the results of a stage, where so many requests were done by the end.
func (r *stallRun) add(x *stallStage, took time.Duration, done int64) {
	waits := x.book.histogram()
	round := stats.NewRound(took, x.cpu, x.used, waits)
	round.Parts = nil // no method chooses how many requests arrive where
	round.Rate = stats.Ratio(float64(done), took.Seconds())
	r.Add(round)
	r.Waits.Merge(waits)
	r.arrived, r.failed = r.arrived+x.book.arrived.Load(), r.failed+x.book.failed.Load()
	r.slow, r.stale = r.slow+x.book.slow.Load(), r.stale+x.book.stale.Load()
	r.failure = cmp.Or(r.failure, x.failure)
}
