//go:build unix

package consul

import (
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

// What stands for Consul has no sessions, so Consul's own lock cannot be measured beside.
func TestConsul_Row(t *testing.T) {
	if !*long {
		t.Skip("takes a minute: make arbiters")
	}
	owners.Row(t, owners.Store{
		Name:    "Consul",
		Options: coord.Options{Partitions: 31},
		Serve:   func() string { return startFake(t, nil).http.URL },
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
}
