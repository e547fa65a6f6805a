package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// patience is how long an expected event may take.
const patience = 2 * time.Minute

var full = flag.Bool("arbiters.full", false, "run what takes minutes, too")

// Full reports whether tests that take minutes are to run.
func Full() bool { return *full }

// Minutes skips a test that takes minutes, or half of one, unless [Full].
func Minutes(t testing.TB) {
	t.Helper()
	if !Full() {
		t.Skip("takes minutes: make arbiters")
	}
}

// Join is coord.New. A node may not be let in in time, on a busy machine or if many come at once.
// It tries again then, as a process does that is started again.
func Join(t *testing.T, a fallback.Arbiter, opts *coord.Options) (c *coord.Coordinator, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if c, err = coord.New(ctx, a, opts); !errors.Is(err, coord.ErrUnavailable) || ctx.Err() != nil {
			return c, err
		}
		t.Log(err)
	}
}

// Settings is for tests that attach. Alice and Bob are requests of two sessions.
var (
	Settings = fallback.Settings{Namespace: "ns", Partitions: 4, Grace: time.Hour}
	Alice    = fallback.Identity{Session: "alice", Request: 1}
	Bob      = fallback.Identity{Session: "bob", Request: 1}
)

// Attach attaches to the arbiter until the test ends.
func Attach(t *testing.T, a fallback.Arbiter) fallback.Namespace {
	t.Helper()
	n, err := a.Attach(t.Context(), Settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Lock locks a key in partition 0, which has to be granted.
func Lock(t *testing.T, n fallback.Namespace, key string, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: key, Me: me, Block: 1})
	if err != nil || a.Verdict != fallback.Granted {
		t.Fatalf("Lock(%q): %+v, %v", key, a, err)
	}
	return a
}

// InGrace asks for a key in some partitions, which the store has lost: none may be granted, as all
// are in Grace.
func InGrace(t *testing.T, n fallback.Namespace, key string, partitions ...uint32) {
	t.Helper()
	for _, p := range partitions {
		a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: key, Me: Bob, Block: 1})
		if err != nil || a.Verdict == fallback.Granted || a.Record.Grace == 0 {
			t.Errorf("Lock in partition %d: %+v, %v", p, a, err)
		}
	}
}

// Refused checks that nothing can attach to the arbiter, and that the error says why.
func Refused(t *testing.T, a fallback.Arbiter, why string) {
	t.Helper()
	n, err := a.Attach(t.Context(), Settings)
	if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal that names %s", err, why)
	}
}

// OldDataAreNoticed checks that processes that have seen newer data tell a store so. copied copies
// the store, and returns the function that brings the copy back.
func OldDataAreNoticed(t *testing.T, a fallback.Arbiter, copied func() (back func())) {
	t.Helper()
	n := Attach(t, a)
	back := copied()
	opened, err := n.Open(t.Context(), Alice.Session, fallback.Registration{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	locked := Lock(t, n, "k", Alice)
	back()
	r, err := n.Witness(t.Context(), 0, locked.Token)
	if err != nil || r.Grace == 0 {
		t.Errorf("Witness: %+v, %v", r, err)
	}
	l, err := n.Dead(t.Context(), Bob.Session, fallback.Stamp{Session: Alice.Session, Seen: opened.Expiry})
	if err != nil || l.Dead || l.Grace == 0 {
		t.Errorf("Dead: %+v, %v", l, err)
	}
}

// LoseBetween empties a store between Load and Swap. A change of a record of before is not written.
// A new record is, and is for the data of before: all is in Grace afterwards, once the processes
// have looked again.
func LoseBetween(t *testing.T, s fallback.Records, opts *fallback.RecordsOptions, empty, later func()) {
	t.Helper()
	n := Attach(t, fallback.NewRecords(s, opts))
	Lock(t, n, "k", Alice)
	look, err := s.Load(t.Context(), []string{"ns/p0", "ns/p1"})
	if err != nil {
		t.Fatal(err)
	}
	empty()
	done, err := s.Swap(t.Context(), look.Server, []fallback.Change{
		{Key: "ns/p0", Version: look.Values[0].Version, Value: look.Values[0].Value}, // a change
		{Key: "ns/p1", Value: look.Values[0].Value},                                  // a new record
	})
	if err != nil || done[0] || !done[1] {
		t.Fatalf("Swap: %v, %v, want the new one only", done, err)
	}
	later()
	InGrace(t, n, "k", 0, 1, 2)
}

// Many reads and writes many records at once, of so many bytes. The last time every other one has
// an old version. It calls looked, if that is not nil, with each look.
func Many(t *testing.T, s fallback.Records, keys []string, size int, looked func(fallback.Look)) {
	t.Helper()
	changes := make([]fallback.Change, len(keys))
	for round := range 3 {
		look, err := s.Load(t.Context(), keys)
		if err != nil || len(look.Values) != len(keys) {
			t.Fatalf("%d values, %v", len(look.Values), err)
		}
		if looked != nil {
			looked(look)
		}
		for i, key := range keys {
			if round > 0 && string(look.Values[i].Value) != string(changes[i].Value) {
				t.Fatalf("round %d, record %d: %+v", round, i, look.Values[i])
			}
			version := look.Values[i].Version
			if round == 2 && i%2 == 0 {
				version = changes[i].Version // of before: it is not written
			}
			value := append(fmt.Append(nil, round, i), make([]byte, size)...)
			changes[i] = fallback.Change{Key: key, Version: version, Value: value}
		}
		done, err := s.Swap(t.Context(), look.Server, changes)
		if err != nil || len(done) != len(changes) {
			t.Fatalf("%d done, %v", len(done), err)
		}
		for i, ok := range done {
			if ok == (round == 2 && i%2 == 0) {
				t.Fatalf("round %d, change %d: %t", round, i, ok)
			}
		}
	}
}

// Names returns so many names of records, which begin alike.
func Names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

// Largest checks that a store takes a record of so many bytes, and refuses a larger one.
func Largest(t *testing.T, s fallback.Records, key string, limit int) {
	t.Helper()
	look, err := s.Load(t.Context(), []string{key})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{limit, limit + 1} {
		_, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: key, Value: make([]byte, n)}})
		if n <= limit && err != nil || n > limit && !errors.Is(err, fallback.ErrRefused) {
			t.Errorf("a record of %d bytes: %v", n, err)
		}
	}
	TooManySessions(t, s, limit+1)
}

// TooManySessions checks that a store refuses a table of sessions of so many bytes, and names a
// remedy: more partitions would be none.
func TooManySessions(t *testing.T, s fallback.Records, size int) {
	t.Helper()
	const table = "ns/s"
	look, err := s.Load(t.Context(), []string{table})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Swap(t.Context(), look.Server, []fallback.Change{{Key: table, Version: look.Values[0].Version, Value: make([]byte, size)}})
	if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "too many sessions") || strings.Contains(err.Error(), "Partitions") {
		t.Errorf("a table of sessions of %d bytes: %v", size, err)
	}
}
