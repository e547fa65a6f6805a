package kubernetes

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// Users of Kubernetes lock with a Lease, most by client-go's election, which is held for as long as
// a process runs. A lock for a section is a Lease that must not be there yet: one that another one
// has can only be asked for again.
func TestKubernetes_Row(t *testing.T) {
	owners.Row(t, owners.Store{
		Name:    "Kubernetes",
		Options: coord.Options{SessionTTL: 30 * time.Second, RenewEvery: 5 * time.Second},
		Serve: func() string {
			c := startCluster(t, 1)
			return c.addrs[0] + " " + string(c.ca)
		},
		Open: func(address string) fallback.Arbiter {
			addr, ca, _ := strings.Cut(address, " ")
			c := &cluster{t: t, addrs: []string{addr}, ca: []byte(ca), conns: make(map[net.Conn]struct{})}
			return c.arbiter()
		},
		Usual: func(address string) func(context.Context, string) (func() error, error) {
			addr, ca, _ := strings.Cut(address, " ")
			c := &cluster{t: t, addrs: []string{addr}, ca: []byte(ca), conns: make(map[net.Conn]struct{})}
			s := c.storeOf(c.config(admin), nil)
			if err := s.connect(); err != nil {
				t.Fatal(err)
			}
			const leases = "/apis/coordination.k8s.io/v1/namespaces/orders-locks/leases"
			return func(ctx context.Context, key string) (func() error, error) {
				name := strings.ReplaceAll(key, " ", "-")
				lease := `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "` + name + `"}, "spec": {"holderIdentity": "row"}}`
				err := s.client.Post().AbsPath(leases).SetHeader("Content-Type", "application/json").Body([]byte(lease)).Do(ctx).Error()
				return func() error { return s.client.Delete().AbsPath(leases, name).Do(ctx).Error() }, err
			}
		},
	})
}
