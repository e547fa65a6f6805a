package singleflight

import "runtime"

// Member is one membership in a flight, got from [Group.Join]. Its methods are safe for
// concurrent use.
type Member[K comparable, V any] struct {
	f    *flight[K, V]
	left bool // protected by f.g.mu
}

// Done returns a channel that is closed when fn has ended: returned, panicked or called
// Goexit. It is closed for a member that left, too, when fn ends.
func (m *Member[K, V]) Done() <-chan struct{} { return m.f.done }

// Result returns fn's results; it blocks until Done is closed. If fn panicked, Result panics with a
// [*PanicError]; if fn called [runtime.Goexit], so does Result. All members get the same V. A panic
// in a flight is dropped if all its members have left and do not ask for its result.
func (m *Member[K, V]) Result() (V, error) {
	<-m.f.done
	switch m.f.ending {
	case exited:
		runtime.Goexit()
	case panicked:
		panic(m.f.panicked)
	}
	return m.f.v, m.f.err
}

// Leave ends the membership. The last member to leave cancels fn's context and takes
// the flight out of the group at once; Leave does not wait for fn to heed that. It is
// idempotent, and does nothing to a flight after fn has ended.
func (m *Member[K, V]) Leave() {
	g := m.f.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.left {
		return
	}
	m.left = true
	m.f.members--
	if m.f.members == 0 {
		g.remove(m.f)
		// Under the mutex, so that no successor starts while this context is live. Safe:
		// cancelling runs none of fn's code in this goroutine.
		m.f.ctx.cancel(ErrAbandoned)
	}
}

// Shared reports whether the flight ever had more than one member, whether or not they
// are members still. It is final once Done is closed or all have left.
func (m *Member[K, V]) Shared() bool {
	m.f.g.mu.Lock()
	defer m.f.g.mu.Unlock()
	return m.f.shared
}
