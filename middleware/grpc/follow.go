package holdgrpc

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
)

// A Follower lets a client's calls go to the owners of their keys, as [Route] at the servers tells.
// It goes once: the owner serves the call, whatever owner it takes the key to have. If the owner
// cannot be connected to within a second, the first node serves it. A handler's error sends no call
// elsewhere, also if it is one of Route's that the handler got from another server. A connection
// that is not connected, and that no call has asked for in the last 10 minutes, is closed when
// another one is made. An owner that stands still keeps its connections: give calls a deadline, or
// connections a [google.golang.org/grpc/keepalive]. A client that is a node itself has [Resolve].
type Follower struct {
	opts []grpc.DialOption

	mu    sync.Mutex
	conns map[string]*link // by target; nil once closed; guarded by mu
}

// A link is a connection to an owner.
type link struct {
	*grpc.ClientConn
	used time.Time // by the last call that was told to go there; guarded by the Follower's mu
}

// patience is a call's longest wait to be told of an owner, and to be connected to it.
var patience = time.Second

// disuse is the time until a Follower drops a link that is neither connected nor used: its node has
// gone.
const disuse = 10 * time.Minute

// Follow returns a Follower that makes its connections to owners with these options. Close it in
// the end. Where the client's service config has a retryThrottling, a call to a node that does not
// own its key counts there as failed.
//
//	f := holdgrpc.Follow(grpc.WithTransportCredentials(creds))
//	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds),
//		grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
func Follow(opts ...grpc.DialOption) *Follower {
	return &Follower{opts: opts, conns: make(map[string]*link)}
}

// Close closes the connections to owners. It does not wait for calls.
func (f *Follower) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []error
	for _, conn := range f.conns {
		all = append(all, conn.Close())
	}
	f.conns = nil
	return errors.Join(all...)
}

// Unary is for grpc.WithUnaryInterceptor. A call to a node that does not own its key costs a round
// trip more.
func (f *Follower) Unary(
	ctx context.Context, method string, req, res any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	nonce, trailer := rand.Text(), metadata.MD(nil)
	asking := metadata.AppendToOutgoingContext(ctx, nonceHeader, nonce)
	err := invoke(asking, method, req, res, cc, append(slices.Clip(opts), grpc.Trailer(&trailer))...)
	reason, target := redirect(err, trailer, nonce)
	if reason != ReasonNotOwner {
		return err
	}
	if conn := f.reach(ctx, target); conn != nil {
		return conn.Invoke(ctx, method, req, res, opts...)
	}
	return invoke(ctx, method, req, res, cc, opts...)
}

// Stream is for grpc.WithStreamInterceptor. It asks for the key's owner before it makes the stream,
// which costs a round trip, and a second where the server does not answer. Let servers have [Route]
// for all streams, in its place (see there): without it a handler begins twice, first with a stream
// that ends before a message comes, and then with the caller's.
func (f *Follower) Stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if target := f.ask(ctx, desc, cc, method, stream); target != "" {
		if conn := f.reach(ctx, target); conn != nil {
			return conn.NewStream(ctx, desc, method, opts...)
		}
	}
	return stream(ctx, desc, cc, method, opts...)
}

// ask returns where to go, empty if nowhere else. It sends no message, and does not close its side:
// for a handler without Route that would be a call.
func (f *Follower) ask(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer) string {
	nonce := rand.Text()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, nonceHeader, nonce, followHeader, "ask"), patience)
	defer cancel()
	s, err := stream(ctx, desc, cc, method)
	if err != nil {
		return ""
	}
	if err := s.RecvMsg(&nothing{}); err != nil {
		if reason, target := redirect(err, s.Trailer(), nonce); reason == ReasonNotOwner {
			return target
		}
	}
	return ""
}

// nothing is a message that no codec knows: an answer of a handler, which was not asked, is an
// error.
type nothing struct{}

// reach returns a connection that is there, nil if there is none.
func (f *Follower) reach(ctx context.Context, target string) *grpc.ClientConn {
	conn, err := f.conn(target)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		switch s := conn.GetState(); s {
		case connectivity.Ready:
			return conn
		case connectivity.TransientFailure, connectivity.Shutdown:
			return nil
		case connectivity.Idle:
			conn.Connect()
			fallthrough
		default:
			if !conn.WaitForStateChange(ctx, s) {
				return nil
			}
		}
	}
}

func (f *Follower) conn(target string) (*grpc.ClientConn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return nil, io.ErrClosedPipe
	}
	now := time.Now()
	if l, ok := f.conns[target]; ok {
		l.used = now
		return l.ClientConn, nil
	}
	conn, err := grpc.NewClient(target, f.opts...)
	if err != nil {
		return nil, err
	}
	for other, l := range f.conns {
		if l.GetState() != connectivity.Ready && now.Sub(l.used) > disuse {
			_ = l.Close()
			delete(f.conns, other)
		}
	}
	f.conns[target] = &link{conn, now}
	return conn, nil
}
