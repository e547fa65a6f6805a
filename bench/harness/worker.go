package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// Order is the parameters of a new worker process. It travels in the environment, as JSON.
type Order struct {
	Process   int    `json:"process"` // from 1
	Redis     string `json:"redis"`
	Namespace string `json:"namespace"`

	// For tests; 0: the library's defaults.
	Debounce   time.Duration `json:"debounce"` // of clusters
	SessionTTL time.Duration `json:"session_ttl"`
}

const orderEnv = "HOLDFAST_BENCH_ORDER"

// CloseTime is the time in which a worker has to give its locks back and end.
const CloseTime = 5 * time.Second

// Host is a worker process as its tasks see it: its order, and the objects that stay from task to
// task.
type Host struct {
	Order
	line    *reexec.Line
	kept    map[string]any
	closers []func() error
}

// tasks are those of all subjects.
var tasks reexec.Tasks[*Host]

// NewTask adds a task to those that workers can do.
func NewTask[T, A any](name string, do func(context.Context, *Host, T) (A, error)) reexec.Task[T, A] {
	return reexec.Add(&tasks, name, do)
}

// At tells the parent that done of total parts of the task were done.
func (h *Host) At(done, total int) {
	if h.line != nil {
		h.line.At(done, total)
	}
}

// AtEnd has f called when the worker ends. The last function is called first.
func (h *Host) AtEnd(f func() error) { h.closers = append(h.closers, f) }

// AtEndWithin is AtEnd for a function that may take CloseTime.
func (h *Host) AtEndWithin(f func(context.Context) error) {
	h.AtEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), CloseTime)
		defer cancel()
		return f(ctx)
	})
}

// Kept returns the object of that name in this worker, and calls open to make it the first time.
func Kept[T any](h *Host, name string, open func() (T, error)) (T, error) {
	if x, ok := h.kept[name]; ok {
		return x.(T), nil
	}
	x, err := open()
	if err == nil {
		if h.kept == nil {
			h.kept = make(map[string]any)
		}
		h.kept[name] = x
	}
	return x, err
}

func (h *Host) close() error {
	var errs []error
	for _, f := range slices.Backward(h.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// IfWorker is the whole life of a worker process, if this process is one. It does not return then.
func IfWorker() {
	text := os.Getenv(orderEnv)
	if text == "" {
		return
	}
	// A terminal sends Ctrl-C to all processes. Ending the workers is the parent's business, in
	// order.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var h Host
	err := json.Unmarshal([]byte(text), &h.Order)
	if err == nil {
		err = h.work()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench worker %d: %v\n", h.Process, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (h *Host) work() (err error) {
	defer func() { err = errors.Join(err, h.close()) }()
	h.line = reexec.NewLine(os.Stdin, os.Stdout)
	return tasks.Serve(h.line, h, 2*CloseTime)
}

// taskLimit is how long a task, or a step of one, may take. A worker that takes longer hangs, and
// is killed: others shall be measured.
const taskLimit = 5 * time.Minute

// Start starts a worker for a subject. When ctx ends, its stdin does, which makes it end by itself;
// if it does not, it is killed.
func (b *Bench) Start(ctx context.Context, subject string, o Order) (*reexec.Worker, error) {
	o.Redis, o.Namespace, o.Debounce = b.Addr, b.prefix+"-"+subject, b.Debounce
	w, err := reexec.Start(ctx, orderEnv, o, b.stderr, 2*CloseTime+time.Second)
	if err != nil {
		return nil, err
	}
	w.Limit, w.Step = taskLimit, func(done, total int) { b.Progress.Step("by turns", done, total) }
	return w, nil
}

// Alone does a task in a worker of its own, so that its heap and its CPU time are its own.
func Alone[T, A any](ctx context.Context, b *Bench, subject string, t reexec.Task[T, A], with T) (A, error) {
	w, err := b.Start(ctx, subject, Order{Process: 1})
	if err != nil {
		var none A
		return none, err
	}
	a, err := t.Do(w, with)
	return a, errors.Join(err, w.Stop())
}

// team starts a worker on each of the cores, which end with the part of the subject. If that has
// failed they are interrupted.
func (b *Bench) team(ctx context.Context, subject string, cores ...int) (ws []*reexec.Worker, err error) {
	ctx, cancel := context.WithCancel(ctx)
	b.AtEnd(func(failed bool) error {
		if failed {
			cancel()
		}
		defer cancel()
		var all errgroup.Group
		for _, w := range ws { // all at the same time: a node that is left alone has much to take over
			all.Go(w.Stop)
		}
		return all.Wait()
	})
	for i, core := range cores {
		if err := Placed(core, func() error {
			w, err := b.Start(ctx, subject, Order{Process: i + 1})
			if err == nil {
				ws = append(ws, w)
			}
			return err
		}); err != nil {
			return ws, err
		}
	}
	return ws, nil
}

// StartMany starts n workers on a core, and another one on another core as the store, and returns
// the address of that.
func (b *Bench) StartMany(ctx context.Context, subject string, n, mine, its int) (store string, ws []*reexec.Worker, err error) {
	ws, err = b.team(ctx, subject, append(slices.Repeat([]int{mine}, n), its)...)
	if err != nil {
		return "", nil, err
	}
	store, err = storeTask.Do(ws[n], struct{}{})
	return store, ws[:n], err
}

// StartPinned starts a worker on a core of its own, if wanted and possible. For each of the others
// it starts one on our server's core, which the note names.
func (b *Bench) StartPinned(ctx context.Context, subject string, others ...string) (ws []*reexec.Worker, note string, err error) {
	// The first core gets most of the machine's interrupts. The server, which is on every path,
	// gets the other.
	mine, its, note := b.TwoCores()
	if err := b.PinServer(its); err != nil {
		return nil, "", err
	}
	if note == "" {
		note = fmt.Sprintf("pinned: the caller (the whole process) to core %d", mine)
		if b.PID != 0 {
			note += fmt.Sprintf(", redis-server (process %d) to core %d", b.PID, its)
		} else {
			note += "; the server is not ours, so it is not pinned"
		}
		for _, name := range others {
			note += fmt.Sprintf(", %s to core %d", name, its)
		}
	}
	ws, err = b.team(ctx, subject, append([]int{mine}, slices.Repeat([]int{its}, len(others))...)...)
	return ws, note, err
}

// PinServer binds our server to a core until the end of the part, unless there is none of ours, or
// the number is negative.
func (b *Bench) PinServer(core int) error {
	if b.PID == 0 || core < 0 {
		return nil
	}
	undo, err := Pin(b.PID, core)
	if err == nil {
		b.AtEnd(func(bool) error { return undo() })
	}
	return err
}
