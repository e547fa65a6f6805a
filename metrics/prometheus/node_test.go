package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/metrics/prometheus"
)

// asNode makes this program a process of an application: its name. HOLDFAST_TEST_REDIS is the
// arbiter's address.
const asNode = "HOLDFAST_TEST_NODE"

const nodePartitions = 31

// serveNode is such a process: a node that says where its metrics are, and locks until its input
// ends.
func serveNode(name string) (err error) {
	redis.SetLogger(quiet{})
	c := redis.NewClient(&redis.Options{Addr: os.Getenv("HOLDFAST_TEST_REDIS"), ContextTimeoutEnabled: true})
	defer c.Close()
	waits := prometheus.NewWaits(&prometheus.WaitOptions{Exemplar: func(ctx context.Context) client.Labels {
		id, _ := ctx.Value(traceID{}).(string)
		return client.Labels{"trace_id": id}
	}})
	locks, err := coord.New(context.Background(), redisarbiter.New(c, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Name: name, SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: nodePartitions, StartUnavailable: true,
		Trace: &coord.Trace{Waited: waits.Observe}, Cluster: &coord.Cluster{
			Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond,
			Takeover: 2 * time.Second,
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithCancel(context.Background())
		cancel()
		_ = locks.Close(end)
	}()
	r := client.NewPedanticRegistry()
	if err := errors.Join(r.Register(waits), r.Register(prometheus.NewCollector(locks, nil))); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: true}), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for i := range 4 {
		work.Go(func() { traffic(ctx, locks, i) })
	}
	awaitEnd(ctx)
	return nil
}

// quiet keeps go-redis's log lines about a server that is gone out of the test's output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// traffic takes locks of both nodes, waits for some of them, and holds one of its own all the time.
func traffic(ctx context.Context, locks *coord.Coordinator, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		keys := []string{"order/hot", "sku/" + strconv.Itoa(n%97), "plain-" + strconv.Itoa(n%7)}
		if number == 0 {
			keys = []string{"held/" + strconv.Itoa(os.Getpid())}
		}
		for _, key := range keys {
			call, cancel := context.WithTimeout(context.WithValue(ctx, traceID{}, fmt.Sprintf("%032x", n+1)), time.Second)
			_ = locks.Do(call, key, func(ctx context.Context, _ coord.Lock) error {
				hold := time.Millisecond
				if number == 0 {
					hold = 500 * time.Millisecond
				}
				select {
				case <-time.After(hold):
				case <-ctx.Done():
				}
				return nil
			})
			cancel()
		}
	}
}
