package ring

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstRetry      = 250 * time.Millisecond // doubled each time, up to RediscoverEvery
	discoverTimeout = 5 * time.Second
	joiners         = 4 // at once: a host that is gone costs each of them a timeout
)

// searchOthers joins whoever is known to exist and is not a member, for as long as the ring lasts. Often at first: nodes
// that start at the same time can find each other only after all of them have registered.
func (r *Ring) searchOthers() {
	retry := firstRetry
	for {
		if r.searchOnce() {
			r.searched.Store(true)
			r.roster.poke()
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

// Search makes the ring look for others at once, because Options.Discover knows more than it did. It does not wait.
func (r *Ring) Search() {
	select {
	case r.sooner <- struct{}{}:
	default:
	}
}

// searchOnce reports whether it knows where this node stands: it joined somebody, or it asked everybody it could ask. An
// address that does not answer is no reason to doubt: those who crashed stay registered for a while.
func (r *Ring) searchOnce() bool {
	ctx, cancel := context.WithTimeout(r.ctx, discoverTimeout)
	addrs, err := r.candidates(ctx)
	cancel()
	if err != nil && !r.partial && r.searched.Load() && r.ctx.Err() == nil { // once, not every 5 s, and not while all begin
		r.opts.Logger.Warn("ring: not all addresses of others are known", "err", err)
	}
	r.partial = err != nil
	addrs = slices.DeleteFunc(addrs, func(a netip.AddrPort) bool { return r.roster.has(a.String()) }) // as a rule all of them
	// In any order, so that nobody is always behind the same dead ones.
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	next := make(chan string)
	var joined atomic.Bool
	var wg sync.WaitGroup
	for range min(joiners, len(addrs)) {
		wg.Go(func() {
			for addr := range next {
				// Whom one of the others has just joined told us about all of its cluster.
				if r.ctx.Err() == nil && !r.roster.has(addr) && r.join(addr) == nil {
					joined.Store(true)
				}
			}
		})
	}
	for _, a := range addrs {
		next <- a.String()
	}
	close(next)
	wg.Wait()
	return err == nil || joined.Load()
}

// candidates returns the addresses of Seeds and Discover, without one's own. With an error they are not all.
func (r *Ring) candidates(ctx context.Context) ([]netip.AddrPort, error) {
	names := r.opts.Seeds
	var err error
	if r.opts.Discover != nil {
		var found []string
		found, err = r.opts.Discover(ctx)
		names = append(names[:len(names):len(names)], found...)
	}
	addrs, err2 := resolve(ctx, names, r.opts.seedPort, r.find)
	others := addrs[:0]
	for _, a := range addrs {
		if a.String() != r.gossip {
			others = append(others, a)
		}
	}
	return others, errors.Join(err, err2)
}

// join exchanges all that is known with the node at addr, an IP:port, so that each becomes a member of the other's cluster.
func (r *Ring) join(addr string) error {
	_, err := r.list.Join([]string{addr})
	return err
}
