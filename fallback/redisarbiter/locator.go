package redisarbiter

import "github.com/redis/go-redis/v9"

// Servers implements [Locator]. The servers behind Sentinel are not known.
func (a *Arbiter) Servers() []string {
	switch c := a.client.(type) {
	case *redis.Client:
		if c == nil {
			return nil
		}
		if o := c.Options(); o.Network == "tcp" && o.Addr != failoverAddr {
			return []string{o.Addr}
		}
	case *redis.ClusterClient:
		if c != nil {
			return c.Options().Addrs
		}
	}
	return nil
}
