package postgres_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A server whose disk is full takes no change, and says so.
func TestPostgres_AFullDisk(t *testing.T) {
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), &postgres.Options{Table: "hf.locks", ColdStart: true}))
	s.must(`CREATE FUNCTION hf.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`,
		`CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON hf.locks FOR EACH ROW EXECUTE FUNCTION hf.no_room()`)
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: storetest.Settings.Lease}); !errors.Is(err, fallback.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	s.must(`DROP TRIGGER no_room ON hf.locks`)
	if r, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: storetest.Settings.Lease}); err != nil || !r.Alive {
		t.Errorf("with room again: %+v, %v", r, err)
	}
}
