package kubernetes

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// What users lock with in Kubernetes is client-go's election, which is held for as long as a process runs: there is no row to compare with.
func TestKubernetes_Row(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	owners.Row(t, owners.Store{
		Name:    "Kubernetes",
		Options: coord.Options{Partitions: 31, SessionTTL: 30 * time.Second, RenewEvery: 5 * time.Second},
		Serve: func() string {
			c := startCluster(t, 1)
			return c.addrs[0] + " " + string(c.ca)
		},
		Open: func(address string) fallback.Arbiter {
			addr, ca, _ := strings.Cut(address, " ")
			c := &cluster{t: t, addrs: []string{addr}, ca: []byte(ca), conns: make(map[net.Conn]struct{})}
			return c.arbiter()
		},
	})
}
