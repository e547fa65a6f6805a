//go:build unix

package mongodb

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A server is FerretDB on SQLite, which is sent one command that writes at a time
// (internal/ferretdb).
type server struct {
	t       *testing.T
	process *storetest.Process
	dir     string
	addr    string
}

func startServer(t *testing.T) *server {
	t.Helper()
	program, err := filepath.Abs("../../internal/ferretdb/ferretdb")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skipf("FerretDB is missing (make ferretdb): %v", err)
	}
	dir, err := os.MkdirTemp("", "hfmongodb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, addr: loopback.Address(t)}
	s.process = storetest.Start(t, dir, nil, program, s.addr)
	s.ready()
	return s
}

// ready waits until the server answers.
func (s *server) ready() {
	s.t.Helper()
	client := s.client(nil)
	await.Within(s.t, 2*time.Minute, "an answer", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err() == nil
	})
}

func (s *server) client(opts *options.ClientOptions) *mongo.Client {
	s.t.Helper()
	if opts == nil {
		opts = options.Client()
	}
	c, err := mongo.Connect(opts.ApplyURI("mongodb://" + s.addr + "/?directConnection=true"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Disconnect(ctx); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// watched is a client that shows all its commands.
func (s *server) watched(opts *options.ClientOptions, see func(bson.Raw)) *mongo.Client {
	return s.client(opts.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { see(e.Command) }}))
}

func (s *server) store(opts *Options) *store { return newStore(s.client(nil), opts) }

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (s *server) arbiter() fallback.Arbiter { return New(s.client(nil), isNew) }

// arbiterBy is one by a line.
func (s *server) arbiterBy(line *storetest.Line, opts *Options) fallback.Arbiter {
	s.t.Helper()
	return New(s.client(options.Client().SetDialer(dialer(line.Through(new(net.Dialer).DialContext)))), opts)
}

type dialer storetest.Dialer

// DialContext implements [options.ContextDialer].
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// unmark deletes the mark.
func (s *server) unmark() {
	s.t.Helper()
	if r, err := s.store(nil).records().DeleteOne(s.t.Context(), bson.D{{Key: "_id", Value: markID}}); err != nil || r.DeletedCount != 1 {
		s.t.Fatalf("%+v, %v", r, err)
	}
}

// kill is kill -9. Then the server comes back with its data.
func (s *server) kill() {
	s.t.Helper()
	s.process.Kill()
	s.process.Begin()
	s.ready()
}

func (s *server) injuries() arbitertest.Cluster {
	return arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return s.arbiter() },
		Kill:    func(*testing.T) { s.kill() },
		Restart: func(*testing.T) { s.kill() },
		Careful: func(*testing.T) fallback.Arbiter { return New(s.client(nil), nil) },
		Empty: func(t *testing.T) {
			if err := s.store(nil).records().Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		Delete: func(t *testing.T, key string) {
			if r, err := s.store(nil).records().DeleteOne(t.Context(), bson.D{{Key: "_id", Value: recordID(key)}}); err != nil || r.DeletedCount != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
		},
	}
}

// copied copies the data of now. back puts the copy in their place.
func (s *server) copied() (back func()) {
	s.t.Helper()
	data := filepath.Join(s.dir, "data")
	run := func(args ...string) {
		s.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			s.t.Fatalf("%s: %v", out, err)
		}
	}
	s.process.Kill()
	run("cp", "-a", data, data+".old")
	s.process.Begin()
	s.ready()
	return func() {
		s.process.Kill()
		run("rm", "-rf", data)
		run("cp", "-a", data+".old", data)
		s.process.Begin()
		s.ready()
	}
}
