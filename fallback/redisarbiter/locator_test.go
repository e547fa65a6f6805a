package redisarbiter

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestServers(t *testing.T) {
	for _, c := range []struct {
		client redis.UniversalClient
		want   string
	}{
		{redis.NewClient(&redis.Options{Addr: "redis:6379"}), "[redis:6379]"},
		{redis.NewClient(&redis.Options{}), "[localhost:6379]"},
		{redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis"}), "[]"},
		{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1", "b:2"}}), "[a:1 b:2]"},
		{redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"s:1"}}), "[]"},
		{(*redis.Client)(nil), "[]"},
		{nil, "[]"},
	} {
		var l fallback.Locator = New(c.client, nil)
		if got := fmt.Sprint(l.Servers()); got != c.want {
			t.Errorf("%T: %s, not %s", c.client, got, c.want)
		}
		if x, ok := c.client.(*redis.Client); c.client != nil && (!ok || x != nil) {
			c.client.Close()
		}
	}
}
