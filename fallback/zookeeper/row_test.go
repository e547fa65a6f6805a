package zookeeper

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestZookeeper_Row(t *testing.T) {
	of := func(address string) *ensemble { return &ensemble{t: t, addrs: []string{address}} }
	owners.Row(t, owners.Store{
		Name:  "ZooKeeper",
		Serve: func() string { return startEnsemble(t, 1).addrs[0] },
		Open: func(address string) fallback.Arbiter {
			e := of(address)
			t.Cleanup(e.conns.Wait)
			return New(e.connect(), isNew)
		},
		Usual: func(address string) func(context.Context, string) (func() error, error) {
			e := of(address)
			conn, err := e.dial(5*time.Second, net.DialTimeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				conn.Close()
				e.conns.Wait()
			})
			return func(_ context.Context, key string) (func() error, error) {
				l := zk.NewLock(conn, "/"+key, zk.WorldACL(zk.PermAll))
				return l.Unlock, l.Lock()
			}
		},
	})
}
