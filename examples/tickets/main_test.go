//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/dbserver"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// orderEnv makes the test binary a process that sells.
const orderEnv = "HOLDFAST_TICKETS_ORDER"

type order struct {
	DSN    string
	Seats  int64
	Locked bool
}

const concert = "opening night"

func TestMain(m *testing.M) {
	text := os.Getenv(orderEnv)
	if text == "" {
		leak.Main(m)
		return
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	ctx, stop := reexec.Told()
	sold, unknown, err := run(ctx, o.DSN, concert, o.Seats, 4, o.Locked)
	stop()
	if err := json.NewEncoder(os.Stdout).Encode([]int64{sold, unknown}); err != nil {
		panic(err)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A database is a PostgreSQL server with its defaults.
type database struct {
	t       *testing.T
	process *storetest.Process
	dsn     string
}

func startDatabase(t *testing.T) *database {
	t.Helper()
	bin, err := dbserver.FindPostgres()
	if err != nil {
		t.Skip("PostgreSQL is not installed (apt install postgresql)")
	}
	dir, err := os.MkdirTemp("", "hftickets-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	attr, err := dbserver.As("postgres", dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "initdb"), "--pgdata", "data", "--username", "app", "--auth", "trust", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{filepath.Join(bin, "postgres"), "-D", "data", "-k", dir, "-c", "listen_addresses="}
	if attr != nil {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	d := &database{t: t, dsn: "postgres://app@/postgres?host=" + url.QueryEscape(dir)}
	d.process = storetest.Start(t, dir, nil, args...)
	d.ready()
	return d
}

// ready waits for an answer. A server that finds processes of the one before, which was killed,
// ends, and is started again.
func (d *database) ready() {
	d.t.Helper()
	begun := time.Now()
	await.Within(d.t, 2*time.Minute, "the database answers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, d.dsn)
		if err == nil {
			return conn.Close(ctx) == nil
		}
		if time.Since(begun) > 10*time.Second {
			d.process.Kill()
			d.process.Begin()
			begun = time.Now()
		}
		return false
	})
}

// crash is kill -9 and a restart.
func (d *database) crash() {
	d.t.Helper()
	d.process.Kill()
	d.process.Begin()
	d.ready()
}

// number returns the answer to a query, or -1 while the database does not answer.
func (d *database) number(text string) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return -1
	}
	defer conn.Close(ctx)
	n := int64(-1)
	_ = conn.QueryRow(ctx, text).Scan(&n)
	return n
}

func (d *database) tickets() int64 { return d.number(`SELECT count(*) FROM tickets`) }

func (d *database) start(o order) *reexec.Worker {
	d.t.Helper()
	o.DSN = d.dsn
	w, err := reexec.Start(d.t.Context(), orderEnv, o, d.t.Output(), 20*time.Second)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = w.Cmd.Process.Kill()
		_ = w.Cmd.Wait()
	})
	return w
}

// end waits until a process has sold all that it could.
func (d *database) end(w *reexec.Worker) (sold, unknown int64) {
	d.t.Helper()
	text, _ := io.ReadAll(w.Out)
	if err := w.Cmd.Wait(); err != nil {
		d.t.Errorf("%v", err)
	}
	var told []int64
	if err := json.Unmarshal(text, &told); err != nil || len(told) != 2 {
		d.t.Fatalf("%q, %v", text, err)
	}
	return told[0], told[1]
}

// Processes and the database are killed while tickets are sold. There are as many tickets as seats
// in the end.
func TestTickets_NoneIsSoldTwice(t *testing.T) {
	takes.Seconds(t)
	d := startDatabase(t)
	const seats = 1000
	o := order{Seats: seats, Locked: true}
	workers := []*reexec.Worker{d.start(o), d.start(o), d.start(o)}
	more := func(what string) {
		t.Helper()
		want := min(max(d.tickets(), 0)+100, seats)
		await.Within(t, 2*time.Minute, what, func() bool { return d.tickets() >= want })
	}
	more("sales")
	for i := range 2 {
		if err := workers[i].Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		workers[i] = d.start(o)
		more("sales after a process was killed")
	}
	d.crash()
	more("sales after the database was killed")
	var sold, unknown int64
	for _, w := range workers {
		s, u := d.end(w)
		sold, unknown = sold+s, unknown+u
	}
	left, tickets := d.number(`SELECT seats FROM concerts`), d.tickets()
	if left != 0 || tickets != seats {
		t.Errorf("%d tickets of %d seats, %d left", tickets, seats, left)
	}
	t.Logf("%d tickets; the processes that lived to the end sold %d, and %d perhaps", tickets, sold, unknown)
}

// The same sale without lock and token oversells: so this test would notice.
func TestTickets_WithoutALockSomeAre(t *testing.T) {
	takes.Seconds(t)
	d := startDatabase(t)
	const seats = 300
	o := order{Seats: seats}
	workers := []*reexec.Worker{d.start(o), d.start(o)}
	for _, w := range workers {
		d.end(w)
	}
	if n := d.tickets(); n <= seats {
		t.Errorf("%d tickets of %d seats: nothing was sold twice", n, seats)
	}
}
