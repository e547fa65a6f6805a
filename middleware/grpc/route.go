package holdgrpc

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/coord"
)

// Metadata and details that a [Follower] and [Route] exchange.
const (
	// In the metadata of a call: the caller can go to the owner. Route puts the same text into the
	// trailer of its answer. So the status of a handler, which may have come from elsewhere, is not
	// taken for Route's. Handlers do not get it.
	nonceHeader = "holdfast-nonce"

	// "ask": the caller only wants to know the owner. "1", of Followers of before: it can go there,
	// and has no nonce.
	followHeader = "holdfast-follow"

	ReasonNotOwner = "NOT_OWNER" // of errdetails.ErrorInfo: the metadata "target" says where to call
	reasonOwner    = "OWNER"     // the same, in answer to "ask": call here
	Domain         = "holdfast"  // of errdetails.ErrorInfo
)

// RouteOptions are the options of [Route]. Nil means all defaults.
type RouteOptions struct {
	// Target returns where a node is called, as grpc.NewClient takes it; callers have to reach it.
	// Empty: serve here. Default: NodeInfo.Service without "http://" or "https://".
	Target func(coord.NodeInfo) string
}

// Router makes interceptors, see [Route].
type Router struct {
	c    *coord.Coordinator
	key  KeyFunc
	opts RouteOptions
}

// Route tells callers that have a [Follower] which node owns the key of their call, where its lock
// is a local one: by a status Unavailable with an errdetails.ErrorInfo (ReasonNotOwner, Domain,
// "target"), before anything is executed. The caller's retry policy does not retry it. Calls of
// others are served here. It never decides about exclusion, so that a wrong guess costs time only.
// It panics if c or key is nil.
//
// Put it outside of [Idempotent] and of all that reads a stream: a Follower asks for the owner of a
// stream's key before it sends a message, and Idempotent waits for one. Put it inside of
// authentication: it tells callers where nodes are.
func Route(c *coord.Coordinator, key KeyFunc, opts *RouteOptions) *Router {
	if c == nil || key == nil {
		panic("holdgrpc: Route needs a coordinator and a KeyFunc")
	}
	r := &Router{c: c, key: key}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.Target == nil {
		r.opts.Target = func(n coord.NodeInfo) string {
			return strings.TrimPrefix(strings.TrimPrefix(n.Service, "http://"), "https://")
		}
	}
	return r
}

// noRetry keeps the caller's retry policy from calling this node again before its [Follower] is
// told.
var noRetry = metadata.Pairs("grpc-retry-pushback-ms", "-1")

// Unary is for grpc.UnaryInterceptor and grpc.ChainUnaryInterceptor.
func (r *Router) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	inner, trailer, err := r.look(ctx, info.FullMethod, req)
	if err != nil {
		_ = grpc.SetTrailer(ctx, trailer)
		return nil, err
	}
	return next(inner, req)
}

// Stream is for grpc.StreamInterceptor and grpc.ChainStreamInterceptor.
func (r *Router) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := ss.Context()
	inner, trailer, err := r.look(ctx, info.FullMethod, nil)
	if err != nil {
		ss.SetTrailer(trailer)
		return err
	}
	if inner != ctx {
		ss = &stream{ss, inner}
	}
	return next(srv, ss)
}

// look returns the handler's context, or an error and its trailer if the call is not to be served
// here.
func (r *Router) look(ctx context.Context, method string, req any) (context.Context, metadata.MD, error) {
	nonces, follow := metadata.ValueFromIncomingContext(ctx, nonceHeader), metadata.ValueFromIncomingContext(ctx, followHeader)
	if len(nonces) == 0 && len(follow) == 0 {
		return ctx, nil, nil
	}
	key, ok, err := r.key.of(ctx, method, req)
	if err != nil {
		return nil, noRetry, err
	}
	trailer := noRetry
	if len(nonces) > 0 {
		trailer = metadata.Join(noRetry, metadata.Pairs(nonceHeader, nonces[len(nonces)-1])) // the last one is of the Follower that called
	}
	if ok {
		if n, known := r.c.Owner(key); known && !n.Self && n.State == "active" {
			if target := r.opts.Target(n); target != "" {
				return nil, trailer, told(ReasonNotOwner, target)
			}
		}
	}
	if slices.Contains(follow, "ask") {
		return nil, trailer, told(reasonOwner, "")
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	delete(md, nonceHeader)
	delete(md, followHeader)
	return metadata.NewIncomingContext(ctx, md), nil, nil
}

func told(reason, target string) error {
	s := status.New(codes.Unavailable, "another node owns the key")
	if d, err := s.WithDetails(&errdetails.ErrorInfo{
		Reason: reason, Domain: Domain, Metadata: map[string]string{"target": target},
	}); err == nil {
		s = d
	}
	return s.Err()
}

// redirect returns Route's reason and the owner's target from an answer with this trailer to a call
// with this nonce.
func redirect(err error, trailer metadata.MD, nonce string) (reason, target string) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable || !slices.Contains(trailer[nonceHeader], nonce) {
		return "", ""
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return info.Reason, info.Metadata["target"]
		}
	}
	return "", ""
}
