package sqlite

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestSQLite_RefusesNetworkFileSystems(t *testing.T) {
	if err := checkType("/mnt", unix.NFS_SUPER_MAGIC); !errors.Is(err, fallback.ErrRefused) {
		t.Error(err)
	}
	if err := checkType("/mnt", unix.EXT4_SUPER_MAGIC); err != nil {
		t.Error(err)
	}
}
