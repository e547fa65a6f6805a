package redisquorum

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestQuorum_Row(t *testing.T) {
	owners.Row(t, owners.Store{
		Name: "three Redis servers",
		Serve: func() string {
			var addrs []string
			for _, s := range startQuorum(t, 3).servers {
				addrs = append(addrs, s.Addr)
			}
			return strings.Join(addrs, " ")
		},
		Open: func(addrs string) fallback.Arbiter {
			var clients []*redis.Client
			for _, addr := range strings.Fields(addrs) {
				c := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { _ = c.Close() })
				clients = append(clients, c)
			}
			return New(clients, &Options{ColdStart: true})
		},
	})
}
