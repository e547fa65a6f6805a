package redisarbiter_test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// docs/arbiters.md has the figures. Commands of scripts are not counted: they are no round trips.
func TestRedis_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	for _, nodes := range []int{1, 10} {
		server := redistest.Start(t)
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // protects sent
		sent := make(map[string]int64)
		var reading sync.WaitGroup
		reading.Go(func() {
			for lines := bufio.NewScanner(conn); lines.Scan(); { // +1700000000.123456 [0 127.0.0.1:40000] "evalsha" "..."
				_, from, _ := strings.Cut(lines.Text(), "[")
				from, command, ok := strings.Cut(from, `] "`)
				name, _, _ := strings.Cut(command, `"`)
				if ok && !strings.HasSuffix(from, " lua") {
					mu.Lock()
					sent[strings.ToUpper(name)]++
					mu.Unlock()
				}
			}
		})
		hour := storetest.Rest(t, nodes, coord.Options{}, func() fallback.Arbiter {
			return redisarbiter.New(server.Client(t), &redisarbiter.Options{ColdStart: true})
		}, func() map[string]int64 {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(sent)
		})
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		reading.Wait()
		text, sum := "", int64(0)
		for _, name := range slices.Sorted(maps.Keys(hour)) {
			text += fmt.Sprintf(", %d %s", hour[name], name)
			sum += hour[name]
		}
		t.Logf("%d nodes, for each and hour: %d commands%s", nodes, sum, text)
	}
}
