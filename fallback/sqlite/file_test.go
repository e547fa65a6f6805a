package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

var settings, alice, bob = storetest.Settings, storetest.Alice, storetest.Bob

func attach(t *testing.T, path string, opts *sqlite.Options) fallback.Namespace {
	t.Helper()
	return storetest.Attach(t, sqlite.New(path, opts))
}

func lock(t *testing.T, n fallback.Namespace, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: me, Block: 1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var cold = &sqlite.Options{ColdStart: true}

// remove deletes a database.
func remove(t *testing.T, path string) {
	t.Helper()
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// Processes that have a file open which was deleted do not go on in it, beside those that have a
// new one.
func TestSQLite_ADeletedFileIsLostData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	n := attach(t, path, cold)
	row := fallback.Row{Identity: alice, Token: lock(t, n, alice).Token}
	remove(t, path)
	other := attach(t, path, nil)
	if a := lock(t, other, bob); a.Verdict != fallback.InGrace {
		t.Errorf("Lock in a file that is new: %+v", a)
	}
	if a := lock(t, n, bob); a.Verdict != fallback.InGrace {
		t.Errorf("Lock by the process of before: %+v", a)
	}
	if r := n.Restore(t.Context(), []fallback.Claims{{Holds: []fallback.Claim{{Key: "k", Row: row}}}})[0]; r.Err != nil || r.Verdicts[0] != fallback.Granted {
		t.Errorf("Restore: %+v", r)
	}
	if s := other.Verify(t.Context(), []fallback.Read{{Keys: []string{"k"}}})[0]; s.Err != nil || s.Rows[0] != row {
		t.Errorf("the other process reads %+v", s)
	}
}

// A copy that takes the file's place is another server.
func TestSQLite_ACopyIsAnotherServer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "locks")
	n := attach(t, path, cold)
	if err := n.Close(); err != nil { // its WAL is in the file then
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n = attach(t, path, nil)
	lock(t, n, alice)
	remove(t, path)
	if err := os.WriteFile(path+".old", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	for _, n := range []fallback.Namespace{n, attach(t, path, cold)} {
		if a := lock(t, n, bob); a.Verdict != fallback.InGrace {
			t.Errorf("Lock: %+v", a)
		}
	}
}

// A process that ends leaves all to the next one, without Grace.
func TestSQLite_ARestartHasNoGrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	n := attach(t, path, cold)
	held := lock(t, n, alice)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	a := lock(t, attach(t, path, nil), bob)
	if a.Verdict != fallback.Held || a.Holder != (fallback.Row{Identity: alice, Token: held.Token}) {
		t.Errorf("%+v", a)
	}
}

func TestSQLite_ManyMakeTheFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			n, err := sqlite.New(path, cold).Attach(t.Context(), settings)
			if err != nil {
				t.Error(err)
				return
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestSQLite_Refuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{
		"": "path", ":memory:": "path", filepath.Join(dir, "missing", "locks"): "directory", dir: "", text: "no SQLite database",
	} {
		n, err := sqlite.New(path, cold).Attach(t.Context(), settings)
		if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

// A lock and its release of the arbiter, and a renewal: each is a commit. README.md has the
// figures.
func BenchmarkSQLite(b *testing.B) {
	n, err := sqlite.New(filepath.Join(b.TempDir(), "locks"), cold).Attach(b.Context(), settings)
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	b.Run("lock and unlock", func(b *testing.B) {
		for b.Loop() {
			if _, err := n.Lock(b.Context(), fallback.LockRequest{Key: "k", Me: alice, Block: 1}); err != nil {
				b.Fatal(err)
			}
			if err := errors.Join(n.Unlock(b.Context(), []fallback.Release{{Key: "k", Identity: alice}})...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("renewal", func(b *testing.B) {
		for b.Loop() {
			if _, err := n.Open(b.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
