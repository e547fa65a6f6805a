// Package owners measures the costs of a cluster's nodes for a store, as package storetest does for
// processes without a cluster. It is a package of its own for the packages that a cluster links.
package owners

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// AtRest logs how long it takes two nodes to own all partitions. It also logs the requests of each
// of them to the store then, by kind. counted returns the numbers of requests up to now.
func AtRest(t *testing.T, start func() fallback.Arbiter, opts coord.Options, counted func() map[string]int64) {
	t.Helper()
	opts.Cluster = &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}
	began, before := time.Now(), counted()
	var nodes []*coord.Coordinator
	for range 2 {
		c, err := storetest.Join(t, start(), &opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Close(ctx); err != nil { // on a machine that has much else to do
				t.Log(err)
			}
		}()
		nodes = append(nodes, c)
	}
	partitions := opts.Partitions
	if partitions == 0 {
		partitions = defaultPartitions
	}
	await.Within(t, 3*time.Minute, "the nodes own all partitions", func() bool {
		owned := 0
		for _, c := range nodes {
			owned += c.Stats().Owned
		}
		return owned == partitions
	})
	took := time.Since(began)
	t.Logf("SessionTTL %v, RenewEvery %v (0: default), %d partitions: two nodes own all after %.1f s and%s", opts.SessionTTL, opts.RenewEvery,
		partitions, took.Seconds(), differences(counted(), before, 1))
	const while = 30 * time.Second
	time.Sleep(2 * opts.RenewEvery) // the costs of the last change are not at rest
	before = counted()
	time.Sleep(while)
	t.Logf("at rest, for each node and hour:%s", differences(counted(), before, float64(time.Hour)/float64(while)/float64(len(nodes))))
}

const defaultPartitions = 1021

// NoTwoHolders is [storetest.NoTwoHolders] of three nodes that own the partitions.
func NoTwoHolders(t *testing.T, start func() fallback.Arbiter, injuries ...func()) (lost int64) {
	t.Helper()
	probesEnd(t)
	opts := coord.Options{SessionTTL: 3 * time.Second, Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}}
	return storetest.NoTwoHoldersWith(t, opts, start, injuries...)
}

// probesEnd has the end of the test wait until no node that has closed is asked any more whether it
// lives.
func probesEnd(t *testing.T) {
	t.Cleanup(func() {
		await.Within(t, time.Minute, "the last probe of other nodes ends", func() bool {
			stacks := make([]byte, 1<<20)
			return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("hashicorp/memberlist"))
		})
	})
}

func differences(now, before map[string]int64, times float64) (text string) {
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		text += fmt.Sprintf(" %d %s,", int64(float64(now[kind]-before[kind])*times), kind)
	}
	return text
}
