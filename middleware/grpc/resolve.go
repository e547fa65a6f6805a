package holdgrpc

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"

	"github.com/holdfast-go/holdfast/coord"
)

// Scheme is that of targets which a [Resolver] resolves.
const Scheme = "holdfast"

// policy is the name of the load balancing policy that goes with a Resolver.
const policy = "holdfast_owner"

// lookEvery is the time between a Resolver's looks for nodes that have come or gone.
const lookEvery = 500 * time.Millisecond

// A Resolver lets the calls of a client go to the owners of their keys without asking, see
// [Resolve].
type Resolver struct {
	c      *coord.Coordinator
	key    KeyFunc
	target func(coord.NodeInfo) string
	life   func(id string) context.Context // coord.Coordinator.NodeContext

	ids atomic.Pointer[map[string]string] // of nodes, by their targets; nil before the first look
}

// Resolve returns a Resolver for a client in a process of the cluster, such as a gateway: c knows
// the nodes and their partitions. Calls without a usable key, and those with an owner that is
// unknown or not connected, go to the nodes by turns. A client in another process uses [Follow].
//
// A node that stands still keeps its connections. The calls that it has end when it is found dead,
// as [coord.Coordinator.NodeContext] tells: some 3 s later by the default of Cluster.Takeover. They
// have the status Unavailable, and may have been executed. Retry policies, stats handlers and
// interceptors further in see Canceled in its place.
//
//	r := holdgrpc.Resolve(locks, byOrder, nil)
//	conn, err := grpc.NewClient("holdfast:///orders", append(r.DialOptions(), grpc.WithTransportCredentials(creds))...)
//
// The end of the target, "orders", is the name that TLS checks. key is that of the servers: the
// outgoing metadata of a call is the incoming metadata of the context that it gets. Nodes with an
// empty RouteOptions.Target get no calls. It panics if c or key is nil.
func Resolve(c *coord.Coordinator, key KeyFunc, opts *RouteOptions) *Resolver {
	r := Route(c, key, opts)
	return &Resolver{c: c, key: key, target: r.opts.Target, life: c.NodeContext}
}

// DialOptions are for grpc.NewClient.
func (r *Resolver) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + policy + `": {}}]}`),
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, res any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			ctx, a := r.to(ctx, method, req)
			defer a.cancel()
			return a.told(invoke(ctx, method, req, res, cc, opts...))
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			ctx, a := r.to(ctx, method, nil)
			s, err := stream(ctx, desc, cc, method, opts...)
			if err != nil {
				defer a.cancel()
				return s, a.told(err)
			}
			return &aimed{s, a, desc.ServerStreams}, nil
		}),
	}
}

// to returns the context of a call, which goes to the owner of its key, if that is known.
func (r *Resolver) to(ctx context.Context, method string, req any) (context.Context, *aim) {
	md, _ := metadata.FromOutgoingContext(ctx)
	key, ok, err := r.key.of(metadata.NewIncomingContext(ctx, md), method, req)
	if err != nil || !ok {
		return r.newAim(ctx, "")
	}
	n, ok := r.c.Owner(key)
	if !ok || n.State != "active" {
		return r.newAim(ctx, "")
	}
	return r.newAim(ctx, r.target(n))
}

// Scheme implements resolver.Builder.
func (r *Resolver) Scheme() string { return Scheme }

// Build implements resolver.Builder.
func (r *Resolver) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	l := &looking{r: r, cc: cc, now: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go l.run()
	return l, nil
}

// looking tells a connection which nodes there are, until it is closed.
type looking struct {
	r     *Resolver
	cc    resolver.ClientConn
	now   chan struct{} // capacity 1
	stop  chan struct{}
	ended chan struct{}
}

var errNoNodes = errors.New("holdgrpc: no node of the cluster says where to call it, in Cluster.Service")

func (l *looking) run() {
	defer close(l.ended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var told []string
	for {
		targets := l.r.look(l.r.c.Nodes())
		slices.Sort(targets)
		switch {
		case len(targets) == 0 && len(told) == 0:
			l.cc.ReportError(errNoNodes)
		case len(targets) > 0 && !slices.Equal(targets, told): // else the last ones may still serve
			all := make([]resolver.Address, len(targets))
			for i, at := range targets {
				all[i].Addr = at
			}
			if l.cc.UpdateState(resolver.State{Addresses: all}) == nil {
				told = targets
			}
		}
		select {
		case <-l.stop:
			return
		case <-l.now:
		case <-tick.C:
		}
	}
}

// ResolveNow implements resolver.Resolver.
func (l *looking) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case l.now <- struct{}{}:
	default:
	}
}

// Close implements resolver.Resolver.
func (l *looking) Close() {
	close(l.stop)
	<-l.ended
}

func init() { balancer.Register(base.NewBalancerBuilder(policy, pickers{}, base.Config{})) }

// pickers makes pickers of the nodes that are connected.
type pickers struct{}

func (pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &picker{byTarget: make(map[string]balancer.SubConn)}
	for sc, of := range info.ReadySCs {
		p.byTarget[of.Address.Addr] = sc
		p.all = append(p.all, of.Address.Addr)
	}
	return p
}

// picker picks the owner's connection. If there is none, or the owner was found dead, it picks that
// of any node that was not.
type picker struct {
	byTarget map[string]balancer.SubConn
	all      []string // targets
	next     atomic.Uint32
}

// errAllDead is no status: a call that is to wait until a node is ready waits.
var errAllDead = errors.New("holdgrpc: all nodes that are connected were found dead")

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	n := uint32(len(p.all))
	next := p.next.Add(1) % n
	a, ok := info.Ctx.Value(aimKey{}).(*aim)
	if !ok { // a call without the Resolver's interceptors
		return balancer.PickResult{SubConn: p.byTarget[p.all[next]]}, nil
	}
	if sc, ok := p.byTarget[a.target]; ok {
		if done, ok := a.at(a.target); ok {
			return balancer.PickResult{SubConn: sc, Done: done}, nil
		}
	}
	for i := range n {
		target := p.all[(next+i)%n]
		if done, ok := a.at(target); ok {
			return balancer.PickResult{SubConn: p.byTarget[target], Done: done}, nil
		}
	}
	return balancer.PickResult{}, errAllDead
}
