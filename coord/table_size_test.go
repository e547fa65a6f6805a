package coord_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// All sessions of a namespace are one record, so a store that limits records limits processes.
// docs/arbiters.md has how many bytes of it one has, which the test logs: a node's card, with names
// as those of a deployment of Kubernetes, and five guardians.
func TestTableOfSessions_BytesOfASession(t *testing.T) {
	takes.Seconds(t)
	store := new(coordtest.Store)
	a := fallback.NewRecords(store, &fallback.RecordsOptions{ColdStart: true})
	o := unhurried()
	o.Name = "orders-6b7d9c5f4-x2k8q"
	o.Cluster.Service = "10.244.101.202:8080"
	o.Cluster.Takeover = 0 // by default
	c := join(t, a, o)
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: o.Grace})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	all, err := ns.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := c.Stats().Session
	card, err := url.ParseQuery(all.Sessions[id])
	if err != nil {
		t.Fatal(err)
	}
	card.Set("h", o.Name)
	card.Set("g", "10.244.101.202:43215")
	card.Set("p", "10.244.101.202:43216")
	const sessions = 100
	other := func(i int) string { return fmt.Sprintf("%04d", i%sessions) + id[4:] }
	table := func() int { return store.Sizes()["holdfast/s"] }
	before := table()
	for i := range sessions {
		r := fallback.Registration{TTL: time.Hour, Info: card.Encode(), Guardians: fallback.Guardians{Version: 1}}
		for g := range 5 {
			r.Guardians.Set = append(r.Guardians.Set, other(i+g+1))
		}
		if a, err := ns.Open(t.Context(), other(i), r); err != nil || !a.Alive {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	each := (table() - before) / sessions
	t.Logf("%d bytes of a session, with a card of %d: %s", each, len(card.Encode()), card.Encode())
	if each < 550 || each > 600 {
		t.Errorf("a session has %d bytes, docs/arbiters.md says 571", each)
	}
}
