package fallback_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A ledger is a store of records in memory, which can be made to fail over as a Memory can.
type ledger struct {
	mu      sync.Mutex // protects the fields below
	servers int
	records map[string]fallback.Versioned
	writes  int
	kept    time.Duration
	ahead   time.Duration             // its clock is
	fail    error                     // of Swap, if not nil: it is not executed
	opened  int                       // that are not closed
	naive   bool                      // Swap does not look at the server's name
	before  func(ctx context.Context) // each step, if not nil
}

func newLedger() *ledger {
	return &ledger{records: make(map[string]fallback.Versioned), kept: time.Hour}
}

// name is the same as a Memory's that failed over as often.
func (l *ledger) name() string { return "memory-" + strconv.Itoa(l.servers) }

func (l *ledger) step(ctx context.Context) error {
	if l.before != nil {
		l.before(ctx)
	}
	return ctx.Err()
}

func (l *ledger) Open(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
	return nil
}

func (l *ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened--; l.opened < 0 {
		return fmt.Errorf("closed more often than opened")
	}
	return nil
}

func (l *ledger) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	if err := l.step(ctx); err != nil {
		return fallback.Look{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	look := fallback.Look{Now: time.Now().Add(l.ahead).UnixMilli(), Server: l.name(), Kept: l.kept}
	for _, k := range keys {
		v := l.records[k]
		look.Values = append(look.Values, fallback.Versioned{Version: v.Version, Value: bytes.Clone(v.Value)})
	}
	return look, nil
}

func (l *ledger) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if err := l.step(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	done := make([]bool, len(changes))
	for i, c := range changes {
		if done[i] = (l.naive || server == l.name()) && l.records[c.Key].Version == c.Version; done[i] {
			l.writes++
			l.records[c.Key] = fallback.Versioned{Version: fmt.Sprint(l.writes), Value: bytes.Clone(c.Value)}
		}
	}
	return done, nil
}

// A scattered ledger reads each record at a moment of its own, the last one first.
type scattered struct{ *ledger }

func (l scattered) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for {
		all, err := l.ledger.Load(ctx, nil)
		if err != nil {
			return fallback.Look{}, err
		}
		all.Values = make([]fallback.Versioned, len(keys))
		same := true
		for i := len(keys) - 1; i >= 0 && same; i-- {
			one, err := l.ledger.Load(ctx, keys[i:i+1])
			if err != nil {
				return fallback.Look{}, err
			}
			all.Values[i], same = one.Values[0], one.Server == all.Server
			for range rand.IntN(20) {
				runtime.Gosched() // others write
			}
		}
		if same {
			return all, nil
		}
	}
}

// snapshot copies the records.
func (l *ledger) snapshot() map[string]fallback.Versioned {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.records)
}

// restore makes it another server, with the records given.
func (l *ledger) restore(records map[string]fallback.Versioned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers++
	l.records = make(map[string]fallback.Versioned)
	maps.Copy(l.records, records)
}

// rewind gives it older records, under the same name.
func (l *ledger) rewind(records map[string]fallback.Versioned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = maps.Clone(records)
}

// talkingLedger is a ledger with messages.
type talkingLedger struct {
	*ledger
	posts sync.Mutex // protects ears
	ears  map[*ear]bool
}

type ear struct {
	channels map[string]bool
	texts    chan string // empty: a gap
}

func newTalkingLedger() *talkingLedger {
	return &talkingLedger{ledger: newLedger(), ears: make(map[*ear]bool)}
}

func (l *talkingLedger) Send(ctx context.Context, all []fallback.Mail) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.posts.Lock()
	defer l.posts.Unlock()
	for _, m := range all {
		for e := range l.ears {
			if e.channels[m.Channel] {
				e.texts <- m.Text
			}
		}
	}
	return nil
}

func (l *talkingLedger) restore(records map[string]fallback.Versioned) {
	l.ledger.restore(records)
	l.gap()
}

// gap tells all that messages may be missing.
func (l *talkingLedger) gap() {
	l.posts.Lock()
	defer l.posts.Unlock()
	for e := range l.ears {
		e.texts <- ""
	}
}

func (l *talkingLedger) Receive(ctx context.Context, channels []string, handle func(string), lost func()) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &ear{channels: make(map[string]bool), texts: make(chan string, 10000)}
	for _, c := range channels {
		e.channels[c] = true
	}
	l.posts.Lock()
	l.ears[e] = true
	l.posts.Unlock()
	var running sync.WaitGroup
	running.Go(func() {
		for text := range e.texts {
			if text == "" {
				lost()
			} else {
				handle(text)
			}
		}
	})
	stop := sync.OnceFunc(func() {
		l.posts.Lock()
		delete(l.ears, e)
		l.posts.Unlock()
		close(e.texts)
	})
	return func() { stop(); running.Wait() }, nil
}
