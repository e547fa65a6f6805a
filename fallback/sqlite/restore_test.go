//go:build unix

package sqlite_test

import (
	databasesql "database/sql"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A saved file has copies.
type saved struct {
	t    *testing.T
	path string
	made int
}

func newSaved(t *testing.T) *saved {
	return &saved{t: t, path: filepath.Join(t.TempDir(), "locks")}
}

func (s *saved) run(sql string) {
	s.t.Helper()
	db, err := databasesql.Open("sqlite", "file:"+s.path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(sql); err != nil {
		s.t.Fatal(err)
	}
}

func (s *saved) copy() (old string) {
	s.t.Helper()
	s.made++
	old = fmt.Sprint(s.path, ".old", s.made)
	s.run("VACUUM INTO '" + old + "'")
	return old
}

// copied copies the file. back puts a copy of that in its place, and may be called again.
func (s *saved) copied() (back func()) {
	s.t.Helper()
	old := s.copy()
	return func() {
		s.t.Helper()
		text, err := os.ReadFile(old)
		if err == nil {
			err = os.WriteFile(old+".again", text, 0o600)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		remove(s.t, s.path)
		if err := os.Rename(old+".again", s.path); err != nil {
			s.t.Fatal(err)
		}
	}
}

func init() { newServer = crashed }

// crashed is a file of a test's own. Another server is another file in its place: a copy, or one
// that is new.
func crashed(t *testing.T) arbitertest.Server {
	s := &saved{t: t, path: filepath.Join(directory(t), "locks")}
	back := func() { remove(t, s.path) }
	return arbitertest.Server{
		Arbiter: sqlite.New(s.path, cold),
		Save:    func() { back = s.copied() },
		Crash:   func() { back() },
		NoStep:  "the clock is the machine's, which all processes have: docs/arbiters.md",
	}
}

// The same copy is put back again and again. Its number in the file system is that of a file which
// is gone, at times also that of the one that was copied.
func TestSQLite_EachCopyIsAnotherServer(t *testing.T) {
	s := newSaved(t)
	n := attach(t, s.path, cold)
	lock(t, n, alice)
	back := s.copied()
	seen := make(map[string]bool)
	for i := range 10 {
		r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.Server] {
			t.Errorf("copy %d: the server's name is %q again", i, r.Server)
		}
		seen[r.Server] = true
		back()
		if a := lock(t, n, bob); a.Verdict != fallback.InGrace {
			t.Errorf("copy %d: %+v", i+1, a)
		}
	}
}

// kept copies the file. back writes the records of the copy into the file, as the command .restore
// does.
func (s *saved) kept() (back func()) {
	s.t.Helper()
	old := s.copy()
	return func() {
		s.t.Helper()
		s.run("ATTACH '" + old + "' AS old; BEGIN IMMEDIATE; DELETE FROM records; INSERT INTO records SELECT * FROM old.records; COMMIT")
	}
}

// Copies take the file's place while processes hold locks.
func TestSQLite_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	s := newSaved(t)
	var injuries []func()
	for range 4 {
		var back func()
		injuries = append(injuries, func() { back = s.copied() }, func() { back() })
	}
	storetest.NoTwoHolders(t, func() fallback.Arbiter { return sqlite.New(s.path, nil) }, injuries...)
}

func TestSQLite_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	s := newSaved(t)
	storetest.TokensRise(t, func() fallback.Arbiter { return sqlite.New(s.path, nil) }, s.copied, func() {}) // a copy is another server
}

// Older data in the same file have its name, until that is changed.
func TestSQLite_TokensRiseOverOlderData(t *testing.T) {
	takes.Seconds(t)
	s := newSaved(t)
	marked := func() { s.run("UPDATE file SET id = hex(randomblob(16)), created = strftime('%s', 'now') * 1000") }
	storetest.TokensRise(t, func() fallback.Arbiter { return sqlite.New(s.path, nil) }, s.kept, marked)
}

// The file has the secret of its namespaces, so it is made for its user alone, with the files that
// SQLite puts beside it.
func TestSQLite_NoOtherUserReadsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	defer syscall.Umask(syscall.Umask(0o022))
	n := attach(t, path, cold)
	lock(t, n, alice)
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has the mode %o, want 600", filepath.Base(name), mode)
		}
	}
}
