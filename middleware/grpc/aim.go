package holdgrpc

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
)

// An aim is where a call of a [Resolver] goes, until the call is over. If the node that has the
// call is found dead, the call ends: a node that stands still keeps its connections.
type aim struct {
	r      *Resolver
	target string          // of the key's owner; empty: any node
	ctx    context.Context // of the call
	cancel context.CancelFunc
	died   atomic.Bool // the node that had the call
}

type aimKey struct{}

// errNodeDead is the status of a call whose node was found dead.
var errNodeDead = status.Error(codes.Unavailable, "holdgrpc: the node that had the call was found dead, and may have executed it")

// newAim returns the context of a call that goes to a target, or to any node.
func (r *Resolver) newAim(ctx context.Context, target string) (context.Context, *aim) {
	a := &aim{r: r, target: target}
	ctx, a.cancel = context.WithCancel(ctx)
	a.ctx = context.WithValue(ctx, aimKey{}, a)
	return a.ctx, a
}

// at is called before an attempt of the call goes to a node. It reports false if that was found
// dead. done is for the end of the attempt.
func (a *aim) at(target string) (done func(balancer.DoneInfo), ok bool) {
	life := a.r.lifeAt(target)
	if life.Err() != nil {
		return nil, false
	}
	stop := context.AfterFunc(life, func() {
		a.died.Store(true)
		a.cancel()
	})
	return func(balancer.DoneInfo) { stop() }, true
}

// told returns the error that the caller gets.
func (a *aim) told(err error) error {
	if (status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)) && a.died.Load() {
		return errNodeDead
	}
	return err
}

// lifeAt returns the life of the node that is called at a target. One that is not known does not
// end.
func (r *Resolver) lifeAt(target string) context.Context {
	if ids := r.ids.Load(); ids != nil {
		if id, ok := (*ids)[target]; ok {
			return r.life(id)
		}
	}
	return context.Background()
}

// look notes the nodes that can be called, and returns their targets.
func (r *Resolver) look(nodes []coord.NodeInfo) (targets []string) {
	ids := make(map[string]string)
	for _, n := range nodes {
		if at := r.target(n); at != "" && n.State == "active" {
			if _, twice := ids[at]; !twice {
				targets = append(targets, at)
			}
			ids[at] = n.ID
		}
	}
	r.ids.Store(&ids)
	return targets
}

// aimed is a stream with its aim.
type aimed struct {
	grpc.ClientStream
	aim  *aim
	many bool // the server sends any number of messages
}

func (s *aimed) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	return md, s.aim.told(err)
}

func (s *aimed) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil || err == io.EOF { // EOF: RecvMsg says how it ended
		return err
	}
	defer s.aim.cancel()
	return s.aim.told(err)
}

func (s *aimed) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.many {
		return nil
	}
	defer s.aim.cancel()
	return s.aim.told(err)
}
