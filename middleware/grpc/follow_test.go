package holdgrpc_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/fallback"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// notOwner is a status as Route makes them.
func notOwner(t *testing.T, target string) error {
	t.Helper()
	s, err := status.New(codes.Unavailable, "another node owns the key").WithDetails(&errdetails.ErrorInfo{
		Reason: holdgrpc.ReasonNotOwner, Domain: holdgrpc.Domain, Metadata: map[string]string{"target": target},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// calling counts the runs of a service; each answers with err, and with the call's metadata as the
// trailer.
func calling(runs *atomic.Int32, err error) *service {
	told := func(ctx context.Context) metadata.MD {
		runs.Add(1)
		md, _ := metadata.FromIncomingContext(ctx)
		md = md.Copy()
		for name := range md {
			if name != "holdfast-nonce" && name != "holdfast-follow" {
				delete(md, name)
			}
		}
		return md
	}
	return &service{
		pay: func(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
			_ = grpc.SetTrailer(ctx, told(ctx))
			return wrapperspb.String("paid"), err
		},
		watch: func(ss grpc.ServerStream) error {
			ss.SetTrailer(told(ss.Context()))
			if err != nil {
				return err
			}
			return ss.SendMsg(wrapperspb.String("seen"))
		},
	}
}

// A handler passes on the error of a server elsewhere, with all metadata: the caller gets that, and
// goes nowhere.
func TestFollower_AnErrorOfAHandler(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	route := holdgrpc.Route(c, byOrder, nil)
	routes := []grpc.ServerOption{grpc.UnaryInterceptor(route.Unary), grpc.StreamInterceptor(route.Stream)}
	var runs, named atomic.Int32
	l, elsewhere := listen(t), listen(t)
	serve(t, elsewhere, calling(&named, nil), routes...)
	serve(t, l, calling(&runs, notOwner(t, elsewhere.Addr().String())), routes...)
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	conn := dial(t, l, grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
	for way, ask := range ways {
		runs.Store(0)
		if text, err := ask(t.Context(), conn, "7"); status.Code(err) != codes.Unavailable || text != "" || runs.Load() != 1 {
			t.Errorf("%s: %q, %v, %d runs", way, text, err, runs.Load())
		}
	}
	if named.Load() != 0 {
		t.Errorf("%d calls went to the server that the error names", named.Load())
	}
}

// The handler gets no nonce that it could pass on.
func TestRoute_KeepsTheNonce(t *testing.T) {
	c := locks(t, fallback.NewMemory(), nil)
	route := holdgrpc.Route(c, byOrder, nil)
	var runs atomic.Int32
	l := listen(t)
	serve(t, l, calling(&runs, nil), grpc.UnaryInterceptor(route.Unary), grpc.StreamInterceptor(route.Stream))
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "holdfast-nonce", "x", "holdfast-follow", "1")
	if text, err := call(ctx, dial(t, l), "7", grpc.Trailer(&trailer)); text != "paid" || err != nil || trailer.Len() > 0 {
		t.Errorf("%q, %v, %v", text, err, trailer)
	}
}

// A Route of before knows no nonces, and answers all that say holdfast-follow: such a node serves
// the calls itself, once.
func TestFollower_ARouteOfBefore(t *testing.T) {
	elsewhere := listen(t)
	elsewhere.Close()
	asked := func(ctx context.Context) error {
		if len(metadata.ValueFromIncomingContext(ctx, "holdfast-follow")) > 0 {
			return notOwner(t, elsewhere.Addr().String())
		}
		return nil
	}
	var runs atomic.Int32
	l := listen(t)
	serve(t, l, calling(&runs, nil),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := asked(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := asked(ss.Context()); err != nil {
				return err
			}
			return next(srv, ss)
		}))
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	conn := dial(t, l, grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
	for way, ask := range ways {
		runs.Store(0)
		if text, err := ask(t.Context(), conn, "7"); !slices.Contains([]string{"paid", "seen"}, text) || err != nil || runs.Load() != 1 {
			t.Errorf("%s: %q, %v, %d runs", way, text, err, runs.Load())
		}
	}
}

// A Follower of before has no nonce, and is told where to go all the same.
func TestRoute_AFollowerOfBefore(t *testing.T) {
	nodes, order := cluster(t, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "holdfast-follow", "1")
	_, err := call(ctx, dial(t, nodes[0]), order)
	s, _ := status.FromError(err)
	if details := s.Details(); s.Code() != codes.Unavailable || len(details) != 1 ||
		details[0].(*errdetails.ErrorInfo).Metadata["target"] != nodes[1].Addr().String() {
		t.Errorf("%v: %v", err, details)
	}
}
