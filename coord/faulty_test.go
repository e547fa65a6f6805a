package coord_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var errCut = errors.New("the network is cut")

// faulty is an arbiter that can be made to fail for one process.
type faulty struct {
	fallback.Arbiter

	old bool // knows of no LockRequest.Gone

	lock func(r fallback.LockRequest, do lockCall) (fallback.LockAnswer, error) // nil: do

	mu      sync.Mutex // protects the fields below
	rule    func(op string) fault
	down    func(partition uint32, op string) bool // the server that has the partition does not answer
	several bool                                   // servers: one of them was stopped
}

// lockCall makes a call of Lock.
type lockCall func() (fallback.LockAnswer, error)

// fault is the fate of a call.
type fault struct {
	request time.Duration // the request is under way for so long
	lost    bool          // the request never arrives, and the call ends with its ctx
	answer  time.Duration // the answer is under way for so long
	unheard bool          // the answer never arrives, and the call ends with its ctx
	err     error         // the call fails at once
}

func (f *faulty) set(rule func(op string) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

// cut makes every call of those operations fail at once; of all if none is named.
func (f *faulty) cut(ops ...string) {
	f.set(func(op string) fault {
		for _, o := range ops {
			if o == op {
				return fault{err: errCut}
			}
		}
		if len(ops) == 0 {
			return fault{err: errCut}
		}
		return fault{}
	})
}

// stop makes the servers of partitions not answer calls that name one.
func (f *faulty) stop(down func(partition uint32, op string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.several = down, f.several || down != nil
}

func (f *faulty) mend() { f.set(nil) }

func (f *faulty) fault(op string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rule == nil {
		return fault{}
	}
	return f.rule(op)
}

func (f *faulty) stopped(p uint32, op string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down != nil && f.down(p, op)
}

func (f *faulty) Attach(ctx context.Context, s fallback.Settings) (n fallback.Namespace, err error) {
	err = f.call(ctx, "attach", func() error { n, err = f.Arbiter.Attach(ctx, s); return err })
	if err != nil {
		return nil, err
	}
	return &faultySpace{n, f}, nil
}

// call runs f through the network. ctx does not stop a call that was sent.
func (f *faulty) call(ctx context.Context, op string, do func() error) error {
	x := f.fault(op)
	if x.err != nil {
		return x.err
	}
	if x == (fault{}) {
		return do()
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(x.request)
		if x.lost {
			return
		}
		err := do()
		time.Sleep(x.answer)
		if !x.unheard {
			done <- err
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type faultySpace struct {
	fallback.Namespace
	f *faulty
}

// to makes a call of the server that has the partition.
func to[T any](n *faultySpace, ctx context.Context, p uint32, op string, do func(ctx context.Context) (T, error)) (v T, err error) {
	if n.f.stopped(p, op) {
		<-ctx.Done()
		return v, ctx.Err()
	}
	return through(n, ctx, op, do)
}

// through makes a call whose answer is of type T. ctx limits the wait, not the request.
func through[T any](n *faultySpace, ctx context.Context, op string, do func(ctx context.Context) (T, error)) (v T, err error) {
	var answer T
	if err := n.f.call(ctx, op, func() (err error) { answer, err = do(context.WithoutCancel(ctx)); return err }); err != nil {
		return v, err
	}
	return answer, nil
}

func (n *faultySpace) Open(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return through(n, ctx, "open", func(ctx context.Context) (fallback.Renewal, error) { return n.Namespace.Open(ctx, id, r) })
}

func (n *faultySpace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	return through(n, ctx, "renew", func(ctx context.Context) (fallback.Renewal, error) { return n.Namespace.Renew(ctx, id, r) })
}

func (n *faultySpace) Dead(ctx context.Context, id string, by fallback.Stamp) (fallback.Liveness, error) {
	return through(n, ctx, "dead", func(ctx context.Context) (fallback.Liveness, error) { return n.Namespace.Dead(ctx, id, by) })
}

func (n *faultySpace) CloseSession(ctx context.Context, id string) error {
	return n.f.call(ctx, "close", func() error { return n.Namespace.CloseSession(context.WithoutCancel(ctx), id) })
}

// Bury implements [fallback.Burier], as the arbiters do that it stands for.
func (n *faultySpace) Bury(ctx context.Context, id string, version uint32, voters []string) (fallback.Burial, error) {
	return through(n, ctx, "bury", func(ctx context.Context) (fallback.Burial, error) {
		return n.Namespace.(fallback.Burier).Bury(ctx, id, version, voters)
	})
}

func (n *faultySpace) List(ctx context.Context) (fallback.Listing, error) {
	return through(n, ctx, "list", func(ctx context.Context) (fallback.Listing, error) { return n.Namespace.List(ctx) })
}

func (n *faultySpace) Load(ctx context.Context, p uint32) (fallback.Record, error) {
	return to(n, ctx, p, "load", func(ctx context.Context) (fallback.Record, error) { return n.Namespace.Load(ctx, p) })
}

func (n *faultySpace) Acquire(ctx context.Context, p uint32, me string, e fallback.Expect) (fallback.Acquisition, error) {
	return to(n, ctx, p, "acquire", func(ctx context.Context) (fallback.Acquisition, error) { return n.Namespace.Acquire(ctx, p, me, e) })
}

func (n *faultySpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	return to(n, ctx, p, "demote", func(ctx context.Context) (fallback.Demotion, error) {
		return n.Namespace.Demote(ctx, p, me, epoch, holds)
	})
}

// Spread implements [fallback.Spreader]: there are several servers if one of them may be stopped.
func (n *faultySpace) Spread() bool {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.f.several
}

// Restore is for one partition, as coord's calls are if there are several servers: "adopt" or, if
// the first hold rests on its row, "reclaim".
func (n *faultySpace) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	op := "adopt"
	if claims[0].Holds[0].Owned == 0 {
		op = "reclaim"
	}
	r, err := to(n, ctx, claims[0].Partition, op, func(ctx context.Context) ([]fallback.Restored, error) {
		return n.Namespace.Restore(ctx, claims), nil
	})
	if err != nil {
		return slices.Repeat([]fallback.Restored{{Err: err}}, len(claims))
	}
	return r
}

func (n *faultySpace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if n.f.old {
		r.Gone = ""
	}
	do := func() (fallback.LockAnswer, error) {
		return to(n, ctx, r.Partition, "lock", func(ctx context.Context) (fallback.LockAnswer, error) { return n.Namespace.Lock(ctx, r) })
	}
	if n.f.lock != nil {
		return n.f.lock(r, do)
	}
	return do()
}

func (n *faultySpace) Unlock(ctx context.Context, r []fallback.Release) []error {
	stopped := make([]bool, len(r))
	var well []fallback.Release
	for i := range r {
		if stopped[i] = n.f.stopped(r[i].Partition, "unlock"); !stopped[i] {
			well = append(well, r[i])
		}
	}
	its, err := through(n, ctx, "unlock", func(ctx context.Context) ([]error, error) { return n.Namespace.Unlock(ctx, well), nil })
	if err != nil {
		return slices.Repeat([]error{err}, len(r))
	}
	if len(well) == len(r) {
		return its
	}
	<-ctx.Done() // a client of several servers waits for all of them
	errs := make([]error, len(r))
	for i := range r {
		switch {
		case stopped[i]:
			errs[i] = ctx.Err()
		case its != nil: // nil: all is well
			errs[i], its = its[0], its[1:]
		}
	}
	return errs
}

func (n *faultySpace) Verify(ctx context.Context, r []fallback.Read) []fallback.State {
	states, err := through(n, ctx, "verify", func(ctx context.Context) ([]fallback.State, error) { return n.Namespace.Verify(ctx, r), nil })
	if err != nil {
		return slices.Repeat([]fallback.State{{Err: err}}, len(r))
	}
	late := false
	for i := range r {
		if n.f.stopped(r[i].Partition, "verify") {
			late = true
			states[i] = fallback.State{Err: context.DeadlineExceeded}
		}
	}
	if late { // a client of several servers waits for all of them
		<-ctx.Done()
	}
	return states
}

func (n *faultySpace) Listen(ctx context.Context, session string, handle func(fallback.Message)) (func(), error) {
	return n.Namespace.Listen(ctx, session, func(m fallback.Message) {
		if n.f.fault("message") == (fault{}) {
			handle(m)
		}
	})
}

// Carry implements [fallback.Courier].
func (n *faultySpace) Carry(send fallback.Sender) { n.Namespace.(fallback.Courier).Carry(send) }
