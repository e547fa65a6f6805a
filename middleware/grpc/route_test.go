package holdgrpc_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
	holdgrpc "github.com/holdfast-go/holdfast/middleware/grpc"
)

// cluster is start, and returns the nodes' listeners, and an order that the second node owns.
func cluster(t *testing.T, target func(coord.NodeInfo) string, opts ...grpc.ServerOption) (nodes [2]net.Listener, order string) {
	nodes, all := start(t, target, opts...)
	for i := range 1000 {
		if n, ok := all[0].Owner(middleware.JoinKey("order", fmt.Sprint(i))); ok && !n.Self {
			return nodes, fmt.Sprint(i)
		}
	}
	t.Fatal("the second node owns nothing")
	return
}

// start starts two nodes whose services answer with their number.
func start(t *testing.T, target func(coord.NodeInfo) string, opts ...grpc.ServerOption) (nodes [2]net.Listener, all [2]*coord.Coordinator) {
	a := fallback.NewMemory()
	for i := range nodes {
		nodes[i] = listen(t)
		c := locks(t, a, &coord.Options{
			// A busy machine's delays are not taken for faults.
			Partitions: 61, SessionTTL: time.Minute, RenewEvery: 750 * time.Millisecond, Grace: 80 * time.Second,
			Cluster: &coord.Cluster{
				Membership: gossip.Start,
				Gossip:     "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 4 * time.Second, Takeover: -1,
				Service: "http://" + nodes[i].Addr().String(),
			},
		})
		all[i] = c
		route := holdgrpc.Route(c, byOrder, &holdgrpc.RouteOptions{Target: target})
		s := holdgrpc.Serialize(c, byOrder, nil)
		serve(t, nodes[i], &service{
			pay: func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				return wrapperspb.String(fmt.Sprint("node ", i)), nil
			},
			watch: func(ss grpc.ServerStream) error {
				var m wrapperspb.StringValue
				if err := ss.RecvMsg(&m); err != nil {
					return err
				}
				return ss.SendMsg(wrapperspb.String(fmt.Sprint("node ", i)))
			},
		}, append(opts, grpc.ChainUnaryInterceptor(route.Unary, s.Unary), grpc.ChainStreamInterceptor(route.Stream, s.Stream))...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range all {
		if err := c.Settled(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, all
}

// ways calls by unary and by stream.
var ways = map[string]func(ctx context.Context, conn *grpc.ClientConn, order string) (string, error){
	"unary": func(ctx context.Context, conn *grpc.ClientConn, order string) (string, error) {
		return call(ctx, conn, order)
	},
	"stream": func(ctx context.Context, conn *grpc.ClientConn, order string) (string, error) {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "order", order), 20*time.Second)
		defer cancel()
		ss, err := conn.NewStream(ctx, &desc.Streams[0], watch)
		if err != nil {
			return "", err
		}
		var m wrapperspb.StringValue
		if err := ss.SendMsg(wrapperspb.String("x")); err != nil && err != io.EOF { // EOF: the handler has ended already, and RecvMsg says how
			return "", err
		}
		err = ss.RecvMsg(&m)
		return m.Value, err
	},
}

func TestRoute(t *testing.T) {
	nodes, order := cluster(t, nil)
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	follows := []grpc.DialOption{grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream)}
	for way, ask := range ways {
		for i := range nodes {
			if at, err := ask(t.Context(), dial(t, nodes[i], follows...), order); at != "node 1" || err != nil {
				t.Errorf("%s to node %d: %s, %v", way, i, at, err)
			}
			if at, err := ask(t.Context(), dial(t, nodes[i]), order); at != fmt.Sprint("node ", i) || err != nil {
				t.Errorf("%s to node %d, does not follow: %s, %v", way, i, at, err)
			}
		}
		conn := dial(t, nodes[0], follows...)
		if _, err := ask(t.Context(), conn, string(make([]byte, coord.MaxKey))); status.Code(err) == codes.OK {
			t.Errorf("%s: a key that is too long", way)
		}
	}
}

// An owner that cannot be reached is done without.
func TestRoute_OwnerNotReached(t *testing.T) {
	l := listen(t)
	l.Close()
	nodes, order := cluster(t, func(coord.NodeInfo) string { return l.Addr().String() })
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	for way, ask := range ways {
		conn := dial(t, nodes[0], grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
		if at, err := ask(t.Context(), conn, order); at != "node 0" || err != nil {
			t.Errorf("%s: %s, %v", way, at, err)
		}
	}
}

// A client that is told where to go does not try the node again before, whatever it does about
// UNAVAILABLE.
func TestRoute_NotRetried(t *testing.T) {
	holdgrpc.BePatient(t)
	var attempts atomic.Int32 // at both nodes
	nodes, order := cluster(t, nil, grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		attempts.Add(1)
		return ctx, nil
	}))
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	retries := grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`)
	for way, ask := range ways {
		for i, want := range []int32{2, map[string]int32{"unary": 1, "stream": 2}[way]} { // a stream asks its owner, too
			attempts.Store(0)
			conn := dial(t, nodes[i], retries, grpc.WithUnaryInterceptor(f.Unary), grpc.WithStreamInterceptor(f.Stream))
			if at, err := ask(t.Context(), conn, order); at != "node 1" || err != nil || attempts.Load() != want {
				t.Errorf("%s to node %d: %s, %v, %d attempts, want %d", way, i, at, err, attempts.Load(), want)
			}
		}
	}
}

// A server that does not name the owner, as it waits for the stream's first message, serves the
// stream.
func TestFollower_NoAnswer(t *testing.T) {
	takes.Seconds(t)
	c := locks(t, fallback.NewMemory(), nil)
	idempotent := holdgrpc.Idempotent(c, middleware.NewMemoryStore(nil), one, nil)
	route := holdgrpc.Route(c, byOrder, nil)
	l := listen(t)
	var lists atomic.Int32
	serve(t, l, &service{
		watch: func(ss grpc.ServerStream) error {
			var m wrapperspb.StringValue
			if err := ss.RecvMsg(&m); err != nil {
				return err
			}
			return ss.SendMsg(&m)
		},
		list: func(m *wrapperspb.StringValue, ss grpc.ServerStream) error {
			lists.Add(1)
			return ss.SendMsg(m)
		},
	}, grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if info.FullMethod == watch {
			return next(srv, ss) // which has no Route
		}
		return idempotent.Stream(srv, ss, info, func(srv any, ss grpc.ServerStream) error { return route.Stream(srv, ss, info, next) })
	}))
	f := holdgrpc.Follow(grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer f.Close()
	conn := dial(t, l, grpc.WithStreamInterceptor(f.Stream))
	if text, err := ways["stream"](t.Context(), conn, "7"); text != "x" || err != nil {
		t.Errorf("without Route: %s, %v", text, err)
	}
	if got := ask(t.Context(), conn, "key", "a"); !slices.Equal(got.texts, []string{"a"}) || got.err != nil || lists.Load() != 1 {
		t.Errorf("with Idempotent outside of Route: %+v, %d runs", got, lists.Load())
	}
}
