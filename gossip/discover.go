package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/ring"
)

const (
	firstRetry      = 250 * time.Millisecond // doubled each time, up to RediscoverEvery
	discoverTimeout = 5 * time.Second
	joiners         = 4 // at once: a host that is gone costs each of them a timeout
)

// searchOthers joins each node that is known to exist and is not a member, for as long as the ring
// lasts. Often at first: nodes that start at the same time can find each other only after all of
// them have registered.
func (r *Ring) searchOthers() {
	retry := firstRetry
	for {
		if r.searchOnce() {
			r.found()
		}
		wait := min(retry, r.opts.RediscoverEvery)
		retry = min(2*retry, r.opts.RediscoverEvery)
		timer := time.NewTimer(time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())))
		select {
		case <-timer.C:
		case <-r.sooner:
			timer.Stop()
			retry = firstRetry
		case <-r.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// found notes that this node knows where it stands: see searchOnce.
func (r *Ring) found() {
	r.searched.Store(true)
	r.roster.poke()
}

// Search makes the ring look for others at once, because Options.Discover knows more than it did.
// It does not wait.
func (r *Ring) Search() {
	select {
	case r.sooner <- struct{}{}:
	default:
	}
}

// searchOnce reports whether it knows where this node stands: it joined a node, or it asked every
// node that it could ask. An address that does not answer is no reason to doubt: crashed nodes stay
// registered for a while.
func (r *Ring) searchOnce() bool {
	ctx, cancel := context.WithTimeout(r.ctx, discoverTimeout)
	addrs, registered, err := r.candidates(ctx)
	cancel()
	if err != nil && !r.partial && r.searched.Load() && r.ctx.Err() == nil { // once, not every 5 s, and not while all begin
		r.opts.Logger.Warn("holdfast: not all addresses of other nodes are known", "error", err)
	}
	r.partial = err != nil
	// None would understand a node without their keys.
	early := r.early.Load()
	addrs = slices.DeleteFunc(addrs, func(a netip.AddrPort) bool { return early || r.roster.has(a.String()) }) // as a rule all of them
	// In any order, so that no node is always behind the same dead ones.
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	next := make(chan string)
	var joined atomic.Bool
	var mu sync.Mutex
	failed := make(map[string]error) // guarded by mu
	var wg sync.WaitGroup
	for range min(joiners, len(addrs)) {
		wg.Go(func() {
			for addr := range next {
				// A node that one of the others has just joined told it about the whole cluster,
				// and it told us.
				if r.ctx.Err() != nil || r.roster.has(addr) {
					continue
				}
				if err := r.join(addr); err == nil {
					joined.Store(true)
					r.found() // a host that stands still may cost the others a timeout
				} else {
					mu.Lock()
					failed[addr] = err
					mu.Unlock()
				}
			}
		})
	}
	for _, a := range addrs {
		next <- a.String()
	}
	close(next)
	wg.Wait()
	if r.ctx.Err() == nil {
		r.failing.note(failed, registered)
	}
	return err == nil || joined.Load()
}

// candidates returns the addresses of Seeds and Discover, without one's own, and those of Discover
// alone. With an error they are not all.
func (r *Ring) candidates(ctx context.Context) (all []netip.AddrPort, registered map[string]bool, err error) {
	names := r.opts.Seeds
	registered = make(map[string]bool)
	if r.opts.Discover != nil {
		var found []string
		found, err = r.opts.Discover(ctx)
		names = append(names[:len(names):len(names)], found...)
		for _, s := range found {
			registered[s] = true
		}
	}
	addrs, err2 := resolve(ctx, names, r.opts.seedPort, r.find)
	others := addrs[:0]
	for _, a := range addrs {
		if a.String() != r.gossip {
			others = append(others, a)
		}
	}
	return others, registered, errors.Join(err, err2)
}

// Failing returns the addresses that could not be joined when they were last tried, in no order.
// The attempts go on for as long as they are named.
func (r *Ring) Failing() []ring.Failure { return r.failing.all() }

// failures are the addresses that could not be joined.
type failures struct {
	mu   sync.Mutex
	last map[string]ring.Failure // guarded by mu; by address
}

// note replaces the known failures by those of a search.
func (f *failures) note(failed map[string]error, registered map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := make(map[string]ring.Failure, len(failed))
	for addr, err := range failed {
		x := ring.Failure{Addr: addr, Since: f.last[addr].Since, Err: err, Discovered: registered[addr]}
		if x.Since.IsZero() {
			x.Since = time.Now()
		}
		next[addr] = x
	}
	f.last = next
}

func (f *failures) all() []ring.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.last))
}

// join exchanges all that is known with the node at addr, an IP:port, so that each becomes a member
// of the other's cluster.
func (r *Ring) join(addr string) error {
	_, err := r.list.Join([]string{addr})
	if one := errors.Unwrap(err); one != nil { // memberlist's list of one error has several lines
		err = one
	}
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "failed to join "+addr+": ")
	if strings.Contains(text, errKey.Error()) { // memberlist wraps no errors
		return fmt.Errorf("gossip: %w", ring.ErrOtherKeys)
	}
	return errors.New(text)
}
