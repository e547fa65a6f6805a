package redisarbiter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// secretsOf opens a session and returns the secrets that its process is told.
func secretsOf(t *testing.T, n fallback.Namespace, session string) fallback.Secrets {
	t.Helper()
	r, err := n.Open(t.Context(), session, fallback.Registration{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r.Secrets[0] == (fallback.Secret{}) {
		t.Fatal("the namespace has no secret")
	}
	return r.Secrets
}

// All processes are told the same secret, also one that attached before the server lost its data,
// and another namespace has another one.
func TestSecretSurvivesTheLossOfData(t *testing.T) {
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	arbiter := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	attach := func(name string) fallback.Namespace {
		n, err := arbiter.Attach(t.Context(), fallback.Settings{Namespace: name, Partitions: 3, Grace: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	a, b := attach("one"), attach("one")
	first := secretsOf(t, a, "a")
	if other := secretsOf(t, b, "b"); other[0].Key != first[0].Key {
		t.Error("two processes, two secrets")
	}
	if other := secretsOf(t, attach("one"), "a process that comes later"); other[0].Key != first[0].Key {
		t.Error("a process that comes later brings another secret")
	}
	if other := secretsOf(t, attach("two"), "c"); other[0].Key == first[0].Key {
		t.Error("two namespaces have the same secret")
	}
	if first[0].Age < time.Hour {
		t.Errorf("the first secret is %v old: no node would use it yet", first[0].Age)
	}
	for _, text := range []string{fmt.Sprint(first), fmt.Sprintf("%+v %#v %x", first, first[0], first[0])} {
		if strings.Contains(text, fmt.Sprintf("%x", first[0].Key[:4])) || strings.Contains(text, fmt.Sprintf("%d, ", first[0].Key[0])) {
			t.Errorf("a secret prints its key: %s", text)
		}
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if after := secretsOf(t, b, "b"); after[0].Key != first[0].Key {
		t.Error("the secret is lost with the data, though processes know it")
	}
	if err := a.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := secretsOf(t, a, "a")
	if after[0].Key == first[0].Key || after[1].Key != first[0].Key || after[0].Age > time.Minute {
		t.Errorf("after a rotation: %v", after)
	}
}
