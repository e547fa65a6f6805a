//go:build unix

package consul

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// The stand-in for Consul has no sessions, so Consul's own lock cannot be measured beside. How long
// it takes to answer says nothing of a real one: of locks without a cluster the number of
// transactions counts.
func TestConsul_Row(t *testing.T) {
	f := startFake(t, nil)
	calls := func() int {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		return f.Calls
	}
	owners.Row(t, owners.Store{
		Name:  "Consul",
		Serve: func() string { return f.URL },
		Open: func(address string) fallback.Arbiter {
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			t.Cleanup(transport.CloseIdleConnections)
			c, err := api.NewClient(&api.Config{Address: address, HttpClient: &http.Client{Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			return New(c, isNew)
		},
	})
	c, err := coord.New(t.Context(), New(f.client(""), isNew), &coord.Options{Partitions: 31, Namespace: "counted", Handoff: coord.Handoff{Linger: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	count := func(what string, key func(i int) string) {
		const locks = 500
		before := calls()
		for i := range locks {
			l, err := c.Lock(t.Context(), key(i))
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s: %.2f transactions for a lock and its release", what, float64(calls()-before)/locks)
	}
	count("each partition's first keys, and more", func(i int) string { return fmt.Sprint("first ", i) })
	count("a new key", func(i int) string { return fmt.Sprint("new ", i) })
	count("the same key again", func(int) string { return "the same" })
}
