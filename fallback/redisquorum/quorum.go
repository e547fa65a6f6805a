// Package redisquorum is an arbiter on several Redis servers that know nothing of each other, three
// or five: the purpose of Redlock. A minority of them may be away, be emptied, lose their last
// writes, or have wrong clocks, and no lock is lost.
//
//	c, err := coord.New(ctx, redisquorum.New([]*redis.Client{a, b, c}, nil), &coord.Options{Namespace: "orders"})
//
// Each record of the arbiter is a register that a majority agrees on, by consensus and not by time:
// docs/quorum.md lists its costs, the failures that it survives, and the promises that Redlock
// cannot make.
package redisquorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Prefix begins all keys. Empty: "holdfast:quorum:".
	Prefix string

	// ColdStart says that servers are new if none of them is a member. So a new namespace need not
	// wait for Grace. For tests, demos and development: see [fallback.RecordsOptions].
	ColdStart bool
}

// New returns an arbiter on the servers of some clients, which stay the caller's to close. Each is
// a primary of its own: no two are the same server, replicas of each other, or nodes of a Redis
// Cluster. All processes have to name the same servers; the order does not matter. New does no I/O:
// errors are those of [fallback.Arbiter.Attach]. opts may be nil.
//
// The arbiter is Guarded: if a majority has lost its data, Grace begins. It goes by no server's
// clock, and has no messages ([fallback.Mute]).
func New(clients []*redis.Client, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(clients, opts), &fallback.RecordsOptions{NoClock: true, ColdStart: opts != nil && opts.ColdStart})
}

func newStore(clients []*redis.Client, opts *Options) *store {
	s := &store{clients: clients, prefix: "holdfast:quorum:", healing: make(map[int]bool)}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	return s
}

// store is the servers, a [fallback.Records].
type store struct {
	clients []*redis.Client
	prefix  string
	calls   calls

	mu      sync.Mutex // protects the fields below
	current *register  // of the generation that a majority was of when it was looked at last; nil: none yet
	name    string     // of the generation
	healing map[int]bool
	stop    context.CancelFunc // ends the healing; nil: not open
	opens   int
	ctx     context.Context // of the healing
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

func (s *store) markKey() string { return s.prefix + "mark" }

// Open implements [fallback.Records].
func (s *store) Open(ctx context.Context) error {
	if n := len(s.clients); n < 3 || n > 7 || n%2 == 0 {
		return refusal("redisquorum.New got %d clients: a quorum has 3, 5 or 7 servers", n)
	}
	for i, c := range s.clients {
		if c == nil {
			return refusal("client %d of redisquorum.New is nil", i+1)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.opens++; s.opens == 1 {
		s.ctx, s.stop = context.WithCancel(context.Background())
	}
	s.mu.Unlock()
	if err := s.begin(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Close implements [fallback.Records]. It waits for calls on their way.
func (s *store) Close() error {
	s.mu.Lock()
	if s.opens--; s.opens == 0 {
		s.stop()
	}
	last := s.opens == 0
	s.mu.Unlock()
	if last {
		s.calls.wait()
	}
	return nil
}

// marks asks all servers for their marks. It returns when all have answered, or ctx ends.
func (s *store) marks(ctx context.Context) (all []mark, errs []error) {
	all, errs = make([]mark, len(s.clients)), make([]error, len(s.clients))
	var each sync.WaitGroup
	for i := range s.clients {
		each.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			all[i], errs[i] = s.hello(ctx, i)
		})
	}
	each.Wait()
	return all, errs
}

// begin looks which generation a majority is of. If there can be none, as too many have lost their
// data or are new, it begins one.
func (s *store) begin(ctx context.Context) error {
	for try := 1; ; try++ {
		all, errs := s.marks(ctx)
		if err := s.fit(all, errs); err != nil {
			return err
		}
		name, lost := alive(all, errs)
		switch {
		case name != "":
			s.use(name)
			return nil
		case !lost:
			return fmt.Errorf("%w: %w", errMinority, errors.Join(errs...))
		}
		// Each of a new name: one that was used is never used again when it has lost its majority.
		name = rand.Text()[:16]
		for i, m := range all {
			if errs[i] == nil {
				errs[i] = s.makeMember(ctx, i, m, name, 1)
			}
		}
		if try > 1 {
			if err := pause(ctx, 10*time.Millisecond<<min(try, 5)); err != nil { // others begin one at the same time
				return errors.Join(append(errs, err)...)
			}
		}
	}
}

// alive returns the generation of a majority, "" if there is none. lost says that there cannot be
// one, also if those that have not answered are of it.
func alive(all []mark, errs []error) (name string, lost bool) {
	away := 0
	of := make(map[string]int)
	for i, m := range all {
		if errs[i] != nil {
			away++
		} else if m.member() {
			of[m.generation]++
		}
	}
	lost = away < majority(len(all))
	for g, n := range of {
		if n >= majority(len(all)) {
			return g, false
		}
		if n+away >= majority(len(all)) {
			lost = false
		}
	}
	return "", lost
}

// fit checks the settings of the servers that have answered, and that no two are the same.
func (s *store) fit(all []mark, errs []error) error {
	runs := make(map[string]int)
	for i, m := range all {
		if err := errs[i]; redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "CLUSTERDOWN") {
			return refusal("a quorum has servers that know nothing of each other, and this is a node of a Redis Cluster: %w", err)
		} else if err != nil {
			continue
		}
		switch j, twice := runs[m.run]; {
		case twice && m.run != "":
			return refusal("clients %d and %d of redisquorum.New are of the same server", j+1, i+1)
		case m.run == "":
			return refusal("%w", s.explain(i, errors.New("INFO does not tell its run_id: is it Redis?")))
		case m.mode == "cluster":
			return refusal("%w", s.explain(i, errors.New("a quorum has servers that know nothing of each other, and this is a node of a Redis Cluster")))
		case len(m.policy) > 8 && m.policy[:8] == "allkeys-":
			return refusal("%w", s.explain(i, fmt.Errorf("maxmemory-policy %s may evict records: set noeviction", m.policy)))
		}
		runs[m.run] = i
	}
	return nil
}

// use makes calls go by a generation, if they do not yet.
func (s *store) use(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name != name {
		s.name, s.current = name, newRegister(&generation{s, name}, &s.calls)
	}
}

// register returns the register that calls go by, and the name of its generation.
func (s *store) register() (*register, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.name
}

// Load implements [fallback.Records]. A server's name is that of the generation.
func (s *store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for try := 1; ; try++ {
		r, name := s.register()
		look := fallback.Look{Server: name, Values: make([]fallback.Versioned, 0, len(keys))}
		var err error
		for first := 0; first < len(keys) && err == nil; first += maxRecords {
			var cells []cell
			cells, err = r.load(ctx, keys[first:min(first+maxRecords, len(keys))])
			for _, c := range cells {
				look.Values = append(look.Values, fallback.Versioned{Version: c.version, Value: []byte(c.value)})
			}
		}
		if err == nil || !errors.Is(err, errMinority) || ctx.Err() != nil || try > 3 {
			return look, refused(err)
		}
		// Perhaps the majority is of another generation by now, or has forgotten.
		if e := s.begin(ctx); e != nil {
			return fallback.Look{}, refused(errors.Join(err, e))
		}
	}
}

// Swap implements [fallback.Records].
func (s *store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	r, name := s.register()
	if server != name {
		return make([]bool, len(changes)), nil
	}
	names, was, values := make([]string, len(changes)), make([]string, len(changes)), make([]string, len(changes))
	for i, c := range changes {
		names[i], was[i], values[i] = c.Key, c.Version, string(c.Value)
	}
	return r.swap(ctx, names, was, values)
}

// missing is told of a server that is no member. It is admitted again in the background.
func (s *store) missing(g *generation, server int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healing[server] || s.opens == 0 || s.name != g.name {
		return
	}
	s.healing[server] = true
	r, ctx := s.current, s.ctx
	s.calls.all.Go(func() {
		_ = s.heal(ctx, r, g.name, server) // the next message finds it missing again
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.healing, server)
	})
}

// heal admits a server, once the records are safe without it.
func (s *store) heal(ctx context.Context, r *register, name string, server int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*callTime)
	defer cancel()
	was, err := s.hello(ctx, server)
	if err != nil || was.member() && was.generation == name {
		return err
	}
	epoch, err := r.admit(ctx, server)
	if err != nil {
		return err
	}
	return s.makeMember(ctx, server, was, name, epoch)
}

// refused marks errors that an operator has to see to.
func refused(err error) error {
	if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
		return refusal("%w", err)
	}
	return err
}
