package postgres_test

import (
	"flag"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/postgres"
)

var long = flag.Bool("arbiters.full", false, "run what takes minutes, too")

// options are those of a role that owns a schema and nothing else. Nothing was lost: the server has just begun.
func options() *postgres.Options { return &postgres.Options{Table: "hf.locks", ColdStart: true} }

func TestPostgresConforms(t *testing.T) {
	shared := startServer(t)
	f := arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return postgres.New(shared.config("app"), options()) },
	}
	if *long {
		f.NewServer = func(t *testing.T) arbitertest.Server {
			s := startServer(t)
			return arbitertest.Server{Arbiter: postgres.New(s.config("app"), options()), Save: s.save, Crash: s.crash}
		}
	}
	arbitertest.Run(t, f)
}
