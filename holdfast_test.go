package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func open(t *testing.T, client *redistest.Server, opts *holdfast.Options) *holdfast.Coordinator {
	t.Helper()
	c, err := holdfast.Open(t.Context(), client.Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// Two processes are a cluster with nothing said but the namespace, and exclude each other.
func TestOpen_IsAClusterOnRedis(t *testing.T) {
	server := redistest.Start(t)
	more := &coord.Options{Cluster: &coord.Cluster{Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond}}
	opts := func(name string) *holdfast.Options {
		return &holdfast.Options{
			Namespace: "shop", Name: name, Service: "http://" + name, Redis: &holdfast.RedisOptions{ColdStart: true}, More: more,
		}
	}
	a, b := open(t, server, opts("a")), open(t, server, opts("b"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []*holdfast.Coordinator{a, b} {
		if err := c.Settled(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	services := make(map[string]string)
	for _, n := range a.Nodes() {
		services[n.Name] = n.Service
	}
	if len(services) != 2 || services["a"] != "http://a" || services["b"] != "http://b" {
		t.Errorf("the nodes are %v", services)
	}
	err := a.Do(ctx, "order/4711", func(context.Context, holdfast.Lock) error {
		_, err := b.TryLock(ctx, "order/4711")
		return err
	})
	if !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("TryLock of a key that is locked: %v", err)
	}
	if a.Namespace() != "shop" || more.Cluster.Membership != nil || more.Namespace != "" {
		t.Errorf("namespace %s, and the caller's options are %+v", a.Namespace(), more)
	}
}

func TestOpen_NamesWhatIsWrong(t *testing.T) {
	for what, o := range map[string]*holdfast.Options{
		"no client": nil, "a name": {Name: "a b"}, "a service": {Service: "a b"}, "partitions": {More: &coord.Options{Partitions: -1}},
	} {
		if c, err := holdfast.Open(t.Context(), nil, o); err == nil {
			c.Close(t.Context())
			t.Errorf("%s: no error", what)
		}
	}
}
