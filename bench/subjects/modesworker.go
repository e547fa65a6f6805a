package subjects

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/coord"
)

var modesTasks = harness.NewTask("modes", mode)

// modesTask tells a worker to do a job in one way. Without Duration it only gets ready.
type modesTask struct {
	Way      string        `json:"way"`
	Job      modeJob       `json:"job"`
	Server   string        `json:"server"` // how to connect to the way's own
	Key      string        `json:"key"`    // what the keys begin with
	Judge    string        `json:"judge"`  // file
	Begin    time.Time     `json:"begin"`  // the same for all workers
	Duration time.Duration `json:"duration"`
}

// judge is memory that the worker processes share, of one key, on a cache line of its own.
type judge struct {
	inside atomic.Int64
	wrong  atomic.Int64
	_      [48]byte
}

// openJudge maps the file, which gets the right size, until unmap is called.
func openJudge(path string) (_ *judge, unmap func() error, err error) {
	mem, unmap, err := harness.MapFile(path, int(unsafe.Sizeof(judge{})))
	return (*judge)(mem), unmap, err
}

// modePlace is where a way is opened: one process.
type modePlace struct {
	rivals.Environment
	job     modeJob
	cluster func() (*coord.Coordinator, error) // the process's node
	key     string                             // of a lock for readers and writers
}

// openMode is a way that is open in this process.
type openMode struct {
	// loop locks and unlocks n times.
	loop  func(ctx context.Context, n int) error
	close func() error // nil: nothing is to be closed
	count *harness.Counter
	batch int                   // pairs of calls that are timed at a time; 0: as the job says
	judge atomic.Pointer[judge] // of the round
}

// loopBatch is how many pairs of calls are timed at a time.
const loopBatch = 1000

// get opens a way when it is first asked for.
func (t modesTask) get(h *harness.Host) (*openMode, error) {
	return harness.Kept(h, "way "+t.Way, func() (*openMode, error) { return t.open(h) })
}

func (t modesTask) open(h *harness.Host) (*openMode, error) {
	w, err := findWay(t.Way)
	if err != nil {
		return nil, err
	}
	p := modePlace{job: t.Job}
	p.Order, p.Server, p.Goroutines = h.Order, t.Server, t.Job.Goroutines
	p.Client, p.Count = harness.NewClient(h.Redis, t.Job.Goroutines)
	count := p.Count
	p.cluster = func() (*coord.Coordinator, error) {
		v, err := get(h, hotTask{Variant: rivals.ClusterVariant, Goroutines: t.Job.Goroutines})
		if err != nil {
			return nil, err
		}
		count = v.count
		return v.Locker.(*rivals.Holdfast).C, nil
	}
	open := w.open
	if open == nil {
		open = func(p modePlace) (*openMode, error) { return openLocks(w, p) }
	}
	m, err := open(p)
	if err != nil {
		return nil, errors.Join(err, p.Client.Close())
	}
	h.AtEnd(func() error {
		var err error
		if m.close != nil {
			err = m.close()
		}
		return errors.Join(err, p.Client.Close())
	})
	m.count = count
	return m, nil
}

// mode does the job from t.Begin on.
func mode(ctx context.Context, h *harness.Host, t modesTask) (_ *hotResult, err error) {
	m, err := t.get(h)
	if err != nil || t.Duration == 0 {
		return new(hotResult), err
	}
	judge, unmap, err := openJudge(t.Judge)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	m.judge.Store(judge)
	if t.Job.Procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(t.Job.Procs))
	}
	parts := make([]hotResult, t.Job.Goroutines)
	var all hotResult
	all.Effort = together(ctx, t.Begin, t.Duration, len(parts), func(ctx context.Context, i int) {
		m.pairs(ctx, cmp.Or(m.batch, t.Job.batch()), &parts[i])
	}, m.count)
	all.add(parts)
	return &all, nil
}

// pairs is one goroutine that locks and unlocks, with nothing in between, until ctx ends, and once at least: on a busy machine the
// round may be over when the goroutine begins.
func (m *openMode) pairs(ctx context.Context, batch int, r *hotResult) {
	for first := true; first || ctx.Err() == nil; first = false {
		begin := time.Now()
		if err := m.loop(context.WithoutCancel(ctx), batch); err != nil {
			r.Failed++
			r.Failure = err.Error()
			return
		}
		r.Sections += int64(batch)
		r.Waits.Record(time.Since(begin) / time.Duration(batch))
	}
}
