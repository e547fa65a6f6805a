package river_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	lib "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/river"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/dbserver"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// startPostgres starts a PostgreSQL server with river's tables.
func startPostgres(t *testing.T) *pgxpool.Pool {
	t.Helper()
	bin, err := dbserver.FindPostgres()
	if err != nil {
		t.Skipf("PostgreSQL: %v", err)
	}
	server, err := dbserver.Start(dbserver.Script{
		Start: `
"$1/initdb" --pgdata data --username river --auth trust --no-sync >&2 || exit 1
"$1/postgres" -D data -k "$2" -c listen_addresses= -c fsync=off >&2 &`,
		End: `kill -QUIT $!`, Account: "postgres",
	}, bin, "river-")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), "host="+server.Dir+" user=river dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Await(t.Context(), pool.Ping); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	tables, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	return pool
}

type args struct {
	Key string `json:"key"`
	ID  string `json:"id"`
}

func (args) Kind() string { return "section" }

func keyOf(job *rivertype.JobRow) string {
	var a args
	_ = json.Unmarshal(job.EncodedArgs, &a)
	return a.Key
}

// clients are river's clients, one per process.
type clients struct {
	pool     *pgxpool.Pool
	mu       sync.Mutex // protects the fields below
	clients  map[*coord.Coordinator]*lib.Client[pgx.Tx]
	sections map[string]func(context.Context) error // by ID
	errs     map[string]chan error
}

// outcome notes a job's error: it is around the lock.
type outcome struct {
	lib.MiddlewareDefaults
	x *clients
}

func (o *outcome) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	err := work(ctx)
	var a args
	_ = json.Unmarshal(job.EncodedArgs, &a)
	o.x.mu.Lock()
	defer o.x.mu.Unlock()
	o.x.errs[a.ID] <- err
	return err
}

// client returns the client of a process, which has a queue of its own.
func (x *clients) client(t *testing.T, c *coord.Coordinator) (*lib.Client[pgx.Tx], string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	queue := fmt.Sprintf("queue_%p", c)
	if client := x.clients[c]; client != nil {
		return client, queue, nil
	}
	serialize, err := river.Serialize(c, keyOf, &river.Options{Wait: time.Minute})
	if err != nil {
		return nil, "", err
	}
	workers := lib.NewWorkers()
	lib.AddWorker(workers, lib.WorkFunc(func(ctx context.Context, job *lib.Job[args]) error {
		x.mu.Lock()
		section := x.sections[job.Args.ID]
		x.mu.Unlock()
		return section(ctx)
	}))
	client, err := lib.NewClient(riverpgxv5.New(x.pool), &lib.Config{
		Queues: map[string]lib.QueueConfig{queue: {MaxWorkers: 10}}, Workers: workers, MaxAttempts: 1,
		Middleware: []rivertype.Middleware{&outcome{x: x}, serialize}, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: time.Millisecond, FetchPollInterval: 20 * time.Millisecond, LeaderElectionDisabled: true,
	})
	if err != nil {
		return nil, "", err
	}
	if err := client.Start(context.WithoutCancel(t.Context())); err != nil {
		return nil, "", err
	}
	t.Cleanup(func() {
		if err := client.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	x.clients[c] = client
	return client, queue, nil
}

func (x *clients) section(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	client, queue, err := x.client(t, c)
	if err != nil {
		return err
	}
	id, done := rand.Text(), make(chan error, 1)
	x.mu.Lock()
	x.sections[id], x.errs[id] = section, done
	x.mu.Unlock()
	if _, err := client.Insert(t.Context(), args{Key: key, ID: id}, &lib.InsertOpts{Queue: queue}); err != nil {
		return err
	}
	return <-done
}

func newClients(t *testing.T) *clients {
	return &clients{pool: startPostgres(t), clients: map[*coord.Coordinator]*lib.Client[pgx.Tx]{}, sections: map[string]func(context.Context) error{}, errs: map[string]chan error{}}
}

func TestSerialize(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{RealTime: true, Section: newClients(t).section})
}

func TestSerialize_Processes(t *testing.T) { processtest.Run(t, newClients(t).section) }

// A job whose turn does not come is snoozed, and as many run at a time as may.
func TestSerialize_AtMost(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	m, err := river.Serialize(c, func(*rivertype.JobRow) string { return "k" }, &river.Options{AtMost: 2, Wait: 200 * time.Millisecond, Snooze: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	work := func(id int64, f func(context.Context) error) error {
		return m.Work(t.Context(), &rivertype.JobRow{ID: id}, f)
	}
	err = work(1, func(ctx context.Context) error {
		if _, err := c.Lock(ctx, "k/1"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("the context does not carry the lock: %v", err)
		}
		return work(2, func(context.Context) error {
			for id := range int64(2) {
				snoozed, ok := errors.AsType[*rivertype.JobSnoozeError](work(3+id, func(context.Context) error { t.Error("it ran"); return nil }))
				if !ok || snoozed.Duration != time.Minute {
					t.Errorf("job %d: %v", 3+id, snoozed)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	for _, opts := range []*river.Options{{AtMost: -1}, {Snooze: -1}, {Wait: -1}, {Snooze: 5}, {Wait: 1}} {
		if _, err := river.Serialize(c, keyOf, opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
	if _, err := river.Serialize(nil, nil, nil); err == nil {
		t.Error("nil was accepted")
	}
}

func ExampleSerialize() {
	ctx, locks := context.Background(), adaptertest.Locks()
	serialize, err := river.Serialize(locks, func(job *rivertype.JobRow) string { return "job/" + job.Kind }, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	config := &lib.Config{Middleware: []rivertype.Middleware{serialize}} // river.NewClient(driver, config)
	fmt.Println(len(config.Middleware), locks.Close(ctx))
	// Output: 1 <nil>
}
