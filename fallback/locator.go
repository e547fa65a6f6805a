package fallback

import (
	"github.com/redis/go-redis/v9"
)

// A Locator is an [Arbiter] that knows where its servers are. A node listens on the address that
// leads there, unless it is told another one.
type Locator interface {
	// Servers returns addresses of servers, host:port, as they are configured. It asks nobody. Nil:
	// they are not known.
	Servers() []string
}

// Servers implements [Locator]. The servers behind Sentinel are not known.
func (a *Redis) Servers() []string {
	switch c := a.client.(type) {
	case *redis.Client:
		if c == nil {
			return nil
		}
		if o := c.Options(); o.Network == "tcp" && o.Addr != "FailoverClient" { // go-redis's word for Sentinel
			return []string{o.Addr}
		}
	case *redis.ClusterClient:
		if c != nil {
			return c.Options().Addrs
		}
	}
	return nil
}
