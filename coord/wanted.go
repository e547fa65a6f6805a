package coord

import "context"

// Wanted returns a channel that is closed when another caller, of any process, asks for the lock's
// key, or when the lock ends: a holder that has work for long can give way at a good moment. It is
// closed already if that was so before. A caller of another process is noticed when the owner or
// the arbiter tells this one, after a round trip as a rule; without a cluster, where a message of
// the arbiter's is lost, after Options.RenewEvery.
func (l Lock) Wanted() <-chan struct{} {
	if l.t == nil {
		return canceled.Done()
	}
	var a after
	l.p.lock()
	wanted := l.p.Partition.Wanted(l.t, l.fence)
	l.p.unlock(&a)
	a.do(l.p.c)
	return wanted
}

// watch returns the channel of Wanted of a lock, or permits, that is one of several under the lock
// with the given channel. The mutex that protects f is held.
func (f *follower) watch(c *Coordinator, wanted <-chan struct{}) <-chan struct{} {
	if f.wanted != nil {
		return f.wanted
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	f.wanted, f.ends = ctx.Done(), append(f.ends, cancel)
	select {
	case <-wanted:
		cancel(nil)
	default:
		c.life.pool.Go(func() {
			select {
			case <-wanted:
				cancel(nil)
			case <-ctx.Done():
			}
		})
	}
	return f.wanted
}
