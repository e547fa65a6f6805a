//go:build unix

package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A replica is no primary, also for a user with rights to write there: a client that is led there
// waits for better times. The connection is given up, as the address may lead elsewhere.
func TestMySQL_AReplicaIsNotRefusedForGood(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	for _, user := range []string{"root", "app"} {
		n := storetest.Attach(t, New(s.config(user), options()))
		lock(t, n, storetest.Alice)
		s.must(`SET GLOBAL read_only = 1`)
		_, err := New(s.config(user), options()).Attach(t.Context(), storetest.Settings)
		if err == nil || errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "replica") {
			t.Errorf("Attach by %s: %v", user, err)
		}
		if _, err := n.Load(t.Context(), 0); !errors.Is(err, fallback.ErrNotSent) || !strings.Contains(err.Error(), "replica") {
			t.Errorf("Load by %s: %v", user, err)
		}
		s.must(`SET GLOBAL read_only = 0`)
		if a := lock(t, n, storetest.Bob); a.Verdict != fallback.Held {
			t.Errorf("Lock by %s after it: %+v", user, a)
		}
	}
}

// A server without room takes no change, and says so.
func TestMySQL_AFullDisk(t *testing.T) {
	s := startServer(t)
	st := newStore(s.config("root"), options())
	if err := st.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	look, err := st.Load(t.Context(), []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	change := []fallback.Change{{Key: "k", Value: []byte("v")}}
	for _, number := range []string{"1114", "1021"} {
		s.must(`CREATE TRIGGER hf.no_room BEFORE INSERT ON hf.holdfast FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ` + number)
		if _, err := st.Swap(t.Context(), look.Server, change); !errors.Is(err, fallback.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		s.must(`DROP TRIGGER hf.no_room`)
	}
	if done, err := st.Swap(t.Context(), look.Server, change); err != nil || !done[0] {
		t.Errorf("with room again: %v, %v", done, err)
	}
}

// A process with another Durable is refused, and changes nothing: the mark would be another
// server's with each of its calls, and with each of the others', and all of them in Grace.
func TestMySQL_AnotherDurableIsRefused(t *testing.T) {
	for theirs, word := range map[bool]string{true: "set it, too", false: "leave it out"} {
		t.Run(fmt.Sprint("Durable=", theirs), func(t *testing.T) {
			s := startServer(t)
			n := storetest.Attach(t, New(s.config("app"), &Options{Durable: theirs, ColdStart: true}))
			other := New(s.config("app"), &Options{Durable: !theirs})
			if n, err := other.Attach(t.Context(), storetest.Settings); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("Attach: %v, %v, want one that says %q", n, err, word)
			}
			if a := lock(t, n, storetest.Alice); a.Verdict != fallback.Granted {
				t.Errorf("a new key after that: %+v", a)
			}
			// As the error and docs/operations.md say. The old records are in Grace.
			s.unmark()
			if a := lock(t, storetest.Attach(t, other), storetest.Bob); a.Verdict != fallback.InGrace {
				t.Errorf("a key after the mark was deleted: %+v", a)
			}
		})
	}
}

// An older process writes its mark over one of another Durable. Those that run take it back: with
// each call refused they would lose all their locks, and the mark would stay.
func TestMySQL_AnOlderProcessTakesTheMark(t *testing.T) {
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprint("Durable=", ours), func(t *testing.T) {
			s := startServer(t)
			n := storetest.Attach(t, New(s.config("app"), &Options{Durable: ours, ColdStart: true}))
			lock(t, n, storetest.Alice)
			theirs := durable
			if ours {
				theirs = "1@older"
			}
			s.must(`UPDATE hf.holdfast SET version = 7, value = '{"server":"` + theirs + `","since":1}' WHERE name = 'server'`)
			if a := lock(t, n, storetest.Bob); a.Verdict != fallback.InGrace {
				t.Errorf("a caller of the process that runs: %+v", a)
			}
			if n, err := New(s.config("app"), &Options{Durable: !ours}).Attach(t.Context(), storetest.Settings); !errors.Is(err, fallback.ErrRefused) {
				t.Errorf("Attach with another Durable after that: %v, %v", n, err)
			}
		})
	}
}

// Processes with and without Durable run side by side, after the mark was deleted too early: all
// namespaces are in Grace, and each of them says why. One mark, as an older command leaves it, is
// no such process.
func TestMySQL_RivalsAreTold(t *testing.T) {
	s := startServer(t)
	one := storetest.Attach(t, New(s.config("app"), &Options{ColdStart: true}))
	lock(t, one, storetest.Alice)
	s.unmark()
	other := storetest.Attach(t, New(s.config("app"), &Options{Durable: true}))
	told := func(n fallback.Namespace) bool {
		advice, err := n.(fallback.Adviser).Advise(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(fmt.Sprint(advice), "Options.Durable")
	}
	lock(t, one, storetest.Bob)
	if told(one) || told(other) {
		t.Error("told after one mark")
	}
	for range 2 {
		for _, n := range []fallback.Namespace{other, one} {
			if a := lock(t, n, storetest.Bob); a.Verdict != fallback.InGrace {
				t.Errorf("a new key: %+v", a)
			}
		}
	}
	if !told(one) || !told(other) {
		t.Error("not told")
	}
}

// A server's defaults change nothing, and names that only collations take for one are two.
func TestMySQL_WhateverTheServersDefaults(t *testing.T) {
	s := startServer(t, "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "--autocommit=0", "--default-time-zone=+05:30",
		"--transaction-isolation=READ-UNCOMMITTED", "--character-set-server=latin1")
	st := newStore(s.config("app"), nil)
	if err := st.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var keys []string
	var changes []fallback.Change
	for _, k := range []string{"a/s", "A/s", "\u00e4/s", "a/s\u00a0", `q'"\/s`, "\U0001f512/s"} {
		keys = append(keys, k)
		changes = append(changes, fallback.Change{Key: k, Value: []byte(`{"of":'` + k + `\"}`)})
	}
	look, err := st.Load(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(time.UnixMilli(look.Now)); off < -time.Minute || off > time.Minute {
		t.Errorf("the server's clock is %v behind", off)
	}
	if done, err := st.Swap(t.Context(), look.Server, changes); err != nil || fmt.Sprint(done) != "[true true true true true true]" {
		t.Fatalf("%v, %v", done, err)
	}
	other := newStore(s.config("app"), nil) // another connection: it sees only committed writes
	if err := other.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	look, err = other.Load(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range look.Values {
		if string(v.Value) != string(changes[i].Value) || v.Version == "" {
			t.Errorf("%q: %q, want %q", keys[i], v.Value, changes[i].Value)
		}
	}
}

func TestMySQL_ManyRecordsAtOnce(t *testing.T) {
	st := newStore(startServer(t).config("app"), nil)
	if err := st.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var keys []string
	var changes []fallback.Change
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i))
		changes = append(changes, fallback.Change{Key: keys[i], Value: []byte(strings.Repeat("v", 1000))})
	}
	var look fallback.Look
	swap := func(want func(i int) bool) {
		t.Helper()
		done, err := st.Swap(t.Context(), look.Server, changes)
		if err != nil || len(done) != len(changes) {
			t.Fatalf("%d done, %v", len(done), err)
		}
		for i, ok := range done {
			if ok != want(i) {
				t.Fatalf("change %d: %t", i, ok)
			}
		}
	}
	load := func() {
		t.Helper()
		var err error
		if look, err = st.Load(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	load()
	first := look
	swap(func(int) bool { return true })
	for i := range changes { // all are there: none is made, nor written at a version of before
		changes[i].Value = []byte("another")
	}
	swap(func(int) bool { return false })
	load()
	for i := range changes {
		if i%3 != 0 {
			changes[i].Version = look.Values[i].Version
		}
		if i%3 == 2 {
			changes[i].Key = fmt.Sprint("new", i)
			changes[i].Version = ""
		}
	}
	swap(func(i int) bool { return i%3 != 0 })
	for i := range changes {
		changes[i].Key = fmt.Sprint("newer", i)
		changes[i].Version = ""
	}
	look.Server = "another" + first.Server
	swap(func(int) bool { return false })
	if done, err := st.Swap(t.Context(), look.Server, changes[:1]); err != nil || done[0] {
		t.Errorf("a swap at another server: %v, %v", done, err)
	}
}

func TestMySQL_TooManySessions(t *testing.T) {
	st := newStore(startServer(t, "--max-allowed-packet=1M").config("app"), nil)
	if err := st.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	storetest.TooManySessions(t, st, 1<<21)
}

// A record is written as soon as the server takes it, by connections of before as well; and one
// that its quotation marks make too large is refused.
func TestMySQL_APacketThatIsRaised(t *testing.T) {
	s := startServer(t, "--max-allowed-packet=1M")
	st := newStore(s.config("app"), nil)
	if err := st.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	swap := func(values ...string) error {
		t.Helper()
		var keys []string
		var changes []fallback.Change
		for i, v := range values {
			keys, changes = append(keys, fmt.Sprint("ns/p", i)), append(changes, fallback.Change{Value: []byte(v)})
		}
		look, err := st.Load(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i := range changes {
			changes[i].Key, changes[i].Version = keys[i], look.Values[i].Version
		}
		done, err := st.Swap(t.Context(), look.Server, changes)
		for i := range done {
			if !done[i] {
				t.Errorf("record %d was not written", i)
			}
		}
		return err
	}
	for range 2 { // inserts, then updates
		if err := swap(strings.Repeat("v", 900<<10), strings.Repeat("w", 900<<10), "x"); err != nil {
			t.Errorf("three records that do not fit together: %v", err)
		}
	}
	for name, v := range map[string]string{"large": strings.Repeat("v", 2<<20), "quoted": strings.Repeat(`"`, 600<<10)} {
		if err := swap(v); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "max_allowed_packet") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.must(`SET GLOBAL max_allowed_packet = 4 << 20`)
	for _, v := range []string{strings.Repeat("v", 2<<20), strings.Repeat(`"`, 600<<10)} {
		if err := swap(v); err != nil {
			t.Errorf("after it was raised: %v", err)
		}
	}
	s.must(`SET GLOBAL max_allowed_packet = 1 << 20`)
	if err := swap(strings.Repeat("v", 2<<20)); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("after it was lowered: %v", err)
	}
}

// A transaction of others that holds a record, and a lock of the whole table as backups take it,
// hold calls up and nothing else: a call that was given up is not executed minutes later.
func TestMySQL_LocksOfOthersHoldCallsUp(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	db := s.open(s.now.Load())
	defer db.Close()
	for _, statement := range []string{`SELECT * FROM hf.holdfast WHERE name LIKE 'ns/%' FOR UPDATE`, `LOCK TABLES hf.holdfast READ`} {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ExecContext(t.Context(), `START TRANSACTION`); err != nil {
			t.Fatal(err)
		}
		rows, err := c.QueryContext(t.Context(), statement)
		if err != nil {
			t.Fatal(err)
		}
		rows.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // more than the two that a statement waits
		a, err := n.Lock(ctx, fallback.LockRequest{Key: "k", Me: storetest.Alice, Block: 1})
		if err == nil {
			t.Errorf("%s: %+v", statement, a)
		}
		cancel()
		if _, err := c.ExecContext(t.Context(), `ROLLBACK`); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ExecContext(t.Context(), `UNLOCK TABLES`); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if a := lock(t, n, storetest.Bob); a.Verdict != fallback.Granted && a.Holder.Session != "alice" {
			t.Errorf("%s, and afterwards: %+v", statement, a)
		}
		for _, err := range n.Unlock(t.Context(), []fallback.Release{{Key: "k", Identity: storetest.Bob}, {Key: "k", Identity: storetest.Alice}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A connection that the server has ended is no error.
func TestMySQL_IdleConnectionsThatTheServerEnds(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	for range 3 {
		s.killClients()
		if _, err := n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: storetest.Alice, Block: 1}); err != nil {
			t.Error(err)
		}
	}
}

// An operator is told why calls fail: of a right that the user has lost, of a password that was
// changed, and of a server that is a replica now.
func TestMySQL_ReasonsOfFailures(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	s.must(Table("hf.locks"), `CREATE USER clerk IDENTIFIED BY 'secret'`, `GRANT SELECT, INSERT, UPDATE ON hf.locks TO clerk`)
	n := storetest.Attach(t, New(s.config("clerk"), &Options{Table: "hf.locks", ColdStart: true}))
	lock(t, n, storetest.Alice)
	load := func() error {
		_, err := n.Load(t.Context(), 0)
		return err
	}
	s.must(`SET GLOBAL read_only = 1`)
	if err := load(); !errors.Is(err, fallback.ErrReadOnly) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("from a replica: %v", err)
	}
	s.must(`SET GLOBAL read_only = 0`, `REVOKE SELECT ON hf.locks FROM clerk`)
	if err := load(); !errors.Is(err, fallback.ErrDenied) || !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("without the right to read: %v", err)
	}
	s.must(`GRANT SELECT ON hf.locks TO clerk`, `ALTER USER clerk IDENTIFIED BY 'another'`)
	s.restart()
	if err := load(); !errors.Is(err, fallback.ErrDenied) || !errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("with the password of before: %v", err)
	}
	s.must(`ALTER USER clerk IDENTIFIED BY 'secret'`)
	if err := load(); err != nil {
		t.Errorf("with the right one: %v", err)
	}
}
