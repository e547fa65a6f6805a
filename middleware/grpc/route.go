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

// Metadata and details by which a [Follower] and [Route] understand each other.
const (
	followHeader = "holdfast-follow" // "1": the caller can go to the owner; "ask": it only wants to know the owner

	ReasonNotOwner = "NOT_OWNER" // of errdetails.ErrorInfo: the metadata "target" says where to call
	reasonOwner    = "OWNER"     // the same, in answer to "ask": call here
	Domain         = "holdfast"  // of errdetails.ErrorInfo
)

// RouteOptions are the options of [Route]. Nil means all defaults.
type RouteOptions struct {
	// Target returns where a node is called, as grpc.NewClient takes it; callers have to reach it. Empty: serve here. Default:
	// NodeInfo.Service without "http://" or "https://".
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
	if err := r.look(ctx, info.FullMethod, req); err != nil {
		_ = grpc.SetTrailer(ctx, noRetry)
		return nil, err
	}
	return next(ctx, req)
}

// Stream is for grpc.StreamInterceptor and grpc.ChainStreamInterceptor.
func (r *Router) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := r.look(ss.Context(), info.FullMethod, nil); err != nil {
		ss.SetTrailer(noRetry)
		return err
	}
	return next(srv, ss)
}

// look returns an error if the call is not to be served here.
func (r *Router) look(ctx context.Context, method string, req any) error {
	md, _ := metadata.FromIncomingContext(ctx)
	follow := md[followHeader]
	if len(follow) == 0 {
		return nil
	}
	key, ok, err := r.key.of(ctx, method, req)
	if err != nil {
		return err
	}
	if ok {
		if n, known := r.c.Owner(key); known && !n.Self && n.State == "active" {
			if target := r.opts.Target(n); target != "" {
				return told(ReasonNotOwner, target)
			}
		}
	}
	if slices.Contains(follow, "ask") {
		return told(reasonOwner, "")
	}
	return nil
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

// redirect returns what a node has told of the owner.
func redirect(err error) (reason, target string) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return "", ""
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return info.Reason, info.Metadata["target"]
		}
	}
	return "", ""
}
