package debug

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// keep is the life of an answer.
const keep = time.Second

// A room is for those that ask at the same time: a node answers four questions of another one at
// a time, and the overview and the pages of keys ask the same nodes.
type room struct {
	door  chan struct{} // full while a look takes its places, so that no two wait for each other's
	taken chan struct{} // an element for each place that is taken
}

func newRoom() *room { return &room{make(chan struct{}, 1), make(chan struct{}, questions)} }

// Questions that a look asks of a node at a time, at most.
const (
	questions     = 4 // all together
	ofTheOverview = 4
	ofAKey        = 2
)

// enter takes places. It reports false if ctx ends before.
func (r *room) enter(ctx context.Context, places int) bool {
	if !enter(ctx, r.door) {
		return false
	}
	defer func() { <-r.door }()
	for i := range places {
		if !enter(ctx, r.taken) {
			r.leave(i)
			return false
		}
	}
	return true
}

func (r *room) leave(places int) {
	for range places {
		<-r.taken
	}
}

// looks asks the nodes once a second at most.
type looks[T any] struct {
	ask    func(context.Context) T
	of     *room
	places int // in it

	turn  chan struct{} // has an element while the nodes are asked; protects the fields below
	last  T
	asked time.Time // the end of the questions of last; zero: no last
}

func newLooks[T any](of *room, places int, ask func(context.Context) T) *looks[T] {
	return &looks[T]{ask: ask, of: of, places: places, turn: make(chan struct{}, 1)}
}

// look asks the nodes, or returns their answers of the last second; ok is false if ctx ends before.
func (l *looks[T]) look(ctx context.Context) (t T, ok bool) {
	if !enter(ctx, l.turn) {
		return t, false
	}
	defer func() { <-l.turn }()
	if l.over() {
		if !l.of.enter(ctx, l.places) {
			return t, false
		}
		defer l.of.leave(l.places)
		l.last = l.ask(context.WithoutCancel(ctx)) // others get the same answer
		l.asked = time.Now()
	}
	return l.last, true
}

// over reports whether the nodes' last answers are too old. It counts from the end of the
// questions, so that slow nodes are not asked again at once.
func (l *looks[T]) over() bool { return l.asked.IsZero() || time.Since(l.asked) >= keep }

func enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// keyLooks asks about each key once a second at most, and about two keys at a time.
type keyLooks struct {
	ask func(context.Context, string) (Key, error)
	of  *room

	mu    sync.Mutex
	keys  map[string]*keyLook // those that requests look at, or have lately; guarded by mu
	swept time.Time           // when the others were taken out; guarded by mu
}

type keyLook struct {
	*looks[told]
	users int // guarded by mu of the keyLooks
}

// told is the nodes' answer about a key.
type told struct {
	key Key
	err error
}

func newKeyLooks(of *room, ask func(context.Context, string) (Key, error)) *keyLooks {
	return &keyLooks{ask: ask, of: of, keys: make(map[string]*keyLook)}
}

var errCrowded = errors.New("too many keys are asked for at once: ask again")

// look asks the nodes about a key, or returns their answer of the last second.
func (k *keyLooks) look(ctx context.Context, key string) (Key, error) {
	if key == "" || len(key) > coord.MaxKey { // not worth remembering
		return k.ask(ctx, key)
	}
	l := k.use(key)
	defer func() {
		k.mu.Lock()
		l.users--
		k.mu.Unlock()
	}()
	t, ok := l.look(ctx)
	if !ok {
		return Key{}, errCrowded
	}
	return t.key, t.err
}

func (k *keyLooks) use(key string) *keyLook {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.swept) >= keep {
		k.swept = time.Now()
		for other, l := range k.keys {
			if l.users == 0 && l.over() {
				delete(k.keys, other)
			}
		}
	}
	l := k.keys[key]
	if l == nil {
		l = &keyLook{looks: newLooks(k.of, ofAKey, func(ctx context.Context) (t told) {
			t.key, t.err = k.ask(ctx, key)
			return t
		})}
		k.keys[key] = l
	}
	l.users++
	return l
}

// forget has the nodes asked anew, as a request has changed something.
func (k *keyLooks) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
}
