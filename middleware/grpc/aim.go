package holdgrpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
)

// An aim is the owner that a call of a [Resolver] goes to, until the call is over. If the owner is
// found dead, the call ends: an owner that stands still keeps its connections. A nil aim is that of
// a call to any node.
type aim struct {
	target string
	ctx    context.Context // of the call
	cancel context.CancelCauseFunc
	forget func() bool // that the owner may be found dead

	mu    sync.Mutex // protects the fields below
	dead  bool       // the owner
	there bool       // the call, or its last attempt, went to the owner
}

type aimKey struct{}

// errOwnerDead is the status of a call whose owner was found dead.
var errOwnerDead = status.Error(codes.Unavailable, "holdgrpc: the owner of the key was found dead, and may have executed the call")

// newAim returns the context of a call that goes to an owner. life is the owner's.
func newAim(ctx, life context.Context, target string) (context.Context, *aim) {
	a := &aim{target: target, dead: life.Err() != nil}
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.ctx = context.WithValue(ctx, aimKey{}, a)
	a.forget = context.AfterFunc(life, a.die)
	return a.ctx, a
}

// die is called when the owner is found dead.
func (a *aim) die() {
	a.mu.Lock()
	a.dead = true
	there := a.there
	a.mu.Unlock()
	if there {
		a.cancel(coord.ErrNodeDead)
	}
}

// owner notes whether an attempt of the call goes to the owner, which may be connected: it does if
// the owner is, and was not found dead.
func (a *aim) owner(connected bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there = connected && !a.dead
	return a.there
}

// over is called when the call is over.
func (a *aim) over() {
	if a != nil {
		a.forget()
		a.cancel(nil)
	}
}

// told returns the error that the caller gets.
func (a *aim) told(err error) error {
	if a != nil && status.Code(err) == codes.Canceled && context.Cause(a.ctx) == coord.ErrNodeDead {
		return errOwnerDead
	}
	return err
}

// aimed is a stream to an owner.
type aimed struct {
	grpc.ClientStream
	aim  *aim
	many bool // the server sends any number of messages
}

func newAimed(s grpc.ClientStream, a *aim, many bool) grpc.ClientStream {
	context.AfterFunc(a.ctx, func() { a.forget() }) // callers may end a stream by their context alone
	return &aimed{s, a, many}
}

func (s *aimed) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, s.aim.told(err)
}

func (s *aimed) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.many {
		return nil
	}
	err = s.aim.told(err)
	s.aim.over()
	return err
}
