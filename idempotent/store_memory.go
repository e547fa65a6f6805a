package idempotent

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MemoryStoreOptions are the options of [NewMemoryStore]. The zero value of each field means its
// default, and a nil
// *MemoryStoreOptions means all defaults.
type MemoryStoreOptions struct {
	// MaxBytes is how much all records may take together, in bytes of keys and records, plus 128
	// for each. Default 64 MiB. Negative: no limit.
	MaxBytes int64

	// Evicted is called for each record that had to go before it expired, with no mutex held. Nil:
	// not.
	Evicted func(key string)
}

// A MemoryStore is a [Store] in the memory of this process: for tests, and for services that are
// one process and may forget everything with it. Expired records go when the next one is put.
//
// When a new record would exceed MaxBytes, those that expire first are evicted, whatever they say:
// with the same ttl for all, the oldest. A request is executed again if it comes again after its
// record was evicted. So MaxBytes should be enough for all requests of the time in which clients
// repeat them, and Evicted be looked at.
type MemoryStore struct {
	max     int64
	evicted func(string)

	mu      sync.Mutex // protects the fields below
	records map[string]*memoryRecord
	queue   expiryQueue // the same records
	bytes   int64       // of all of them
}

type memoryRecord struct {
	key     string
	data    []byte
	fence   uint64
	expires time.Time
	at      int // in the queue
}

// perRecord is about the size of a record besides its key and bytes.
const perRecord = 128

func (r *memoryRecord) size() int64 { return int64(len(r.key)+len(r.data)) + perRecord }

// errRecordTooLarge is the error for a record that does not fit, whatever is evicted.
var errRecordTooLarge = errors.New("idempotent: the record is larger than MemoryStoreOptions.MaxBytes")

// NewMemoryStore returns an empty store.
func NewMemoryStore(opts *MemoryStoreOptions) *MemoryStore {
	var o MemoryStoreOptions
	if opts != nil {
		o = *opts
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Evicted == nil {
		o.Evicted = func(string) {}
	}
	return &MemoryStore{max: o.MaxBytes, evicted: o.Evicted, records: make(map[string]*memoryRecord)}
}

// Get implements [Store].
func (s *MemoryStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || !time.Now().Before(r.expires) {
		return nil, ErrNoRecord
	}
	return append([]byte{}, r.data...), nil
}

// Put implements [Store]. A record that is larger than MaxBytes by itself is refused with an error.
func (s *MemoryStore) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ttl <= 0 {
		return errTTL(ttl)
	}
	out, err := s.put(key, append([]byte(nil), record...), fence, ttl)
	for _, key := range out {
		s.evicted(key)
	}
	return err
}

func (s *MemoryStore) put(key string, data []byte, fence uint64, ttl time.Duration) (evicted []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.queue) > 0 && !now.Before(s.queue[0].expires) {
		s.remove(s.queue[0])
	}
	old := s.records[key]
	if old != nil && old.fence > fence {
		return nil, ErrStale
	}
	r := &memoryRecord{key: key, data: data, fence: fence, expires: now.Add(ttl)}
	if s.max >= 0 && r.size() > s.max {
		return nil, fmt.Errorf("%w: %d bytes", errRecordTooLarge, r.size())
	}
	if old != nil {
		s.remove(old)
	}
	for s.max >= 0 && s.bytes+r.size() > s.max {
		evicted = append(evicted, s.queue[0].key)
		s.remove(s.queue[0])
	}
	s.records[key] = r
	s.bytes += r.size()
	heap.Push(&s.queue, r)
	return evicted, nil
}

// remove forgets a record. The caller holds mu.
func (s *MemoryStore) remove(r *memoryRecord) {
	heap.Remove(&s.queue, r.at)
	delete(s.records, r.key)
	s.bytes -= r.size()
}

// errTTL returns the error for a ttl that is not positive.
func errTTL(ttl time.Duration) error {
	return fmt.Errorf("idempotent: a record cannot be stored for %v", ttl)
}

// expiryQueue is a heap of records, the one that expires first at its top.
type expiryQueue []*memoryRecord

func (q expiryQueue) Len() int           { return len(q) }
func (q expiryQueue) Less(i, j int) bool { return q[i].expires.Before(q[j].expires) }
func (q expiryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *expiryQueue) Push(x any) {
	r := x.(*memoryRecord)
	r.at = len(*q)
	*q = append(*q, r)
}

func (q *expiryQueue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
