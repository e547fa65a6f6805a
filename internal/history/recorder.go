package history

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Recorder notes the calls of one process's clients. It is safe for concurrent use.
type Recorder struct {
	Process string               // a name that no other process has, nor an earlier one
	Now     func() time.Duration // a clock that all processes of the history share
	Put     func(Record)         // it is called twice for each record, the first time with Unknown set

	last atomic.Uint64
}

// A Call is an operation that has begun.
type Call struct {
	r   *Recorder
	rec Record
}

func (r *Recorder) begin(rec Record) *Call {
	rec.Process, rec.ID, rec.Call, rec.Unknown = r.Process, r.last.Add(1), r.Now(), true
	r.Put(rec)
	return &Call{r, rec}
}

func (c *Call) end() {
	c.rec.Return, c.rec.Unknown = c.r.Now(), false
	c.r.Put(c.rec)
}

// Lock is to be called before a client calls Lock.
func (r *Recorder) Lock(client int, key string) *Call {
	return r.begin(Record{Client: client, Op: Lock, Key: key})
}

// TryLock is to be called before a client calls TryLock.
func (r *Recorder) TryLock(client int, key string) *Call {
	return r.begin(Record{Client: client, Op: TryLock, Key: key})
}

// RLock is to be called before a client calls RLock.
func (r *Recorder) RLock(client int, key string) *Call {
	return r.begin(Record{Client: client, Op: RLock, Key: key})
}

// TryRLock is to be called before a client calls TryRLock.
func (r *Recorder) TryRLock(client int, key string) *Call {
	return r.begin(Record{Client: client, Op: TryRLock, Key: key})
}

// Acquire is to be called before a client calls Acquire for n permits of the semaphore of a key.
// Its key has nothing to do with a lock's key of the same name.
func (r *Recorder) Acquire(client int, key string, n, of int) *Call {
	return r.begin(Record{Client: client, Op: Acquire, Key: key, Permits: n, Of: of})
}

// TryAcquire is Acquire for a client that calls TryAcquire.
func (r *Recorder) TryAcquire(client int, key string, n, of int) *Call {
	return r.begin(Record{Client: client, Op: TryAcquire, Key: key, Permits: n, Of: of})
}

// Refused notes that there is no lock, that a Downgrade has changed nothing, or that Unlock said
// that the lock had been lost.
func (c *Call) Refused() {
	c.rec.Refused = true
	c.end()
}

// Done notes that Unlock has returned without an error.
func (c *Call) Done() { c.end() }

// Granted notes that the call has returned with a lock, or with permits, whose token is 0.
func (c *Call) Granted(fence uint64) *Hold {
	c.rec.Fence = fence
	c.end()
	return &Hold{r: c.r, of: c.rec, seen: c.rec.Call}
}

// A Hold is a lock that was granted, or permits.
type Hold struct {
	r  *Recorder
	of Record // the call that granted it

	mu   sync.Mutex
	seen time.Duration // when its context had not ended, for the last time that is known
}

func (h *Hold) record(op Op) Record {
	return Record{Client: h.of.Client, Op: op, Key: h.of.Key, Hold: h.of.ID}
}

// See looks whether the lock is in force: alive is to look at its context. It returns alive's
// result.
func (h *Hold) See(alive func() bool) bool {
	at := h.r.Now()
	if !alive() {
		return false
	}
	h.mu.Lock()
	h.seen = max(h.seen, at)
	h.mu.Unlock()
	rec := h.record(Seen)
	rec.Process, rec.ID, rec.Call, rec.Return = h.r.Process, h.r.last.Add(1), at, h.r.Now()
	h.r.Put(rec)
	return true
}

// Lost notes that the lock's context has ended, and not because of Unlock.
func (h *Hold) Lost() {
	rec := h.record(Lost)
	h.mu.Lock()
	rec.Call = h.seen
	h.mu.Unlock()
	rec.Process, rec.ID, rec.Return = h.r.Process, h.r.last.Add(1), h.r.Now()
	h.r.Put(rec)
}

// Unlock is to be called before Unlock, which Done or Refused ends.
func (h *Hold) Unlock() *Call { return h.r.begin(h.record(Unlock)) }

// Downgrade is to be called before the Downgrade of a lock. If that is refused the hold goes on;
// Granted returns the one for reading.
func (h *Hold) Downgrade() *Call { return h.r.begin(h.record(Downgrade)) }

// Paused notes that the process stood still for a while. The recorder need not be that process's
// own. Until has to be late enough for the process to have noticed the lost time: its clocks are
// looked at every now and then only.
func (r *Recorder) Paused(from, until time.Duration) {
	r.Put(Record{Process: r.Process, ID: r.last.Add(1), Op: Paused, Call: from, Return: until})
}

// Gone notes that the process was killed, or has otherwise ended without giving its holds back. A
// recorder with the process's name will do if it writes to another place.
func (r *Recorder) Gone(from, until time.Duration) {
	r.Put(Record{Process: r.Process, ID: r.last.Add(1), Op: Gone, Call: from, Return: until})
}

// Log keeps records in memory.
type Log struct {
	mu      sync.Mutex // protects the fields below
	records []Record
	at      map[id]int
}

// id is a record's identity.
type id struct {
	process string
	n       uint64
}

// NewLog returns an empty one.
func NewLog() *Log { return &Log{at: make(map[id]int)} }

// Put adds a record, or replaces its earlier version.
func (l *Log) Put(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := id{r.Process, r.ID}
	if i, ok := l.at[k]; ok {
		l.records[i] = r
		return
	}
	if r.Unknown {
		l.at[k] = len(l.records)
	}
	l.records = append(l.records, r)
}

// Records returns all of them.
func (l *Log) Records() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Record(nil), l.records...)
}
