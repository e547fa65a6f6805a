package main

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/figures"
)

func TestCommandCount(t *testing.T) {
	server := miniredis.RunT(t)
	client := newRedisClient(server.Addr(), 1)
	defer client.Close()
	var count commandCount
	client.AddHook(&count)

	client.Set(t.Context(), "a", 1, 0)
	client.Get(t.Context(), "missing")
	pipe := client.Pipeline()
	for range 5 {
		pipe.Incr(t.Context(), "a")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := client.TxPipeline()
	tx.Incr(t.Context(), "a")
	if _, err := tx.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	setnxRelease.Run(t.Context(), client, []string{"a"}, "x") // EVALSHA, then EVAL: it is unknown
	setnxRelease.Run(t.Context(), client, []string{"a"}, "x")

	if want := int64(2 + 5 + 3 + 3); count.Load() != want {
		t.Errorf("counted %d, want %d", count.Load(), want)
	}
}

func TestEmbeddedRedisLetsKeysExpire(t *testing.T) {
	server, err := startRedis(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	client := newRedisClient(server.addr, 1)
	defer client.Close()
	if err := client.Set(t.Context(), "k", 1, 100*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the key expires", func() bool { return client.Exists(t.Context(), "k").Val() == 0 })
}

func TestDeleteKeysOfTheRunOnly(t *testing.T) {
	mini := miniredis.RunT(t)
	server, err := startRedis(t.Context(), mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	for i := range 1500 {
		mini.HSet("{invabc-2:p"+figures.Thousands(int64(i))+"}", "f", "v")
	}
	for _, key := range []string{"invabc-1:sku-1", "{invabc-2:s}", "invabd-1:sku-1", "other", "{other:s}"} {
		mini.Set(key, "v")
	}
	if err := server.deleteKeys(t.Context(), "invabc"); err != nil {
		t.Fatal(err)
	}
	keys := mini.Keys()
	slices.Sort(keys)
	if want := []string{"invabd-1:sku-1", "other", "{other:s}"}; !slices.Equal(keys, want) {
		t.Errorf("left %v, want %v", keys, want)
	}
}
