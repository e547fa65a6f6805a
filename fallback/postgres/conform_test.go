package postgres_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// options are those of a role that owns a schema and nothing else. Nothing was lost: the server has
// just begun.
func options() *postgres.Options { return &postgres.Options{Table: "hf.locks", ColdStart: true} }

func TestPostgresConforms(t *testing.T) {
	shared := startServer(t)
	f := arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return postgres.New(shared.config("app"), options()) },
	}
	if storetest.Full() {
		f.NewServer = func(t *testing.T) arbitertest.Server {
			s := startServer(t)
			return arbitertest.Server{Arbiter: postgres.New(s.config("app"), options()), Save: s.save, Crash: s.crash}
		}
	}
	arbitertest.Run(t, f)
}
