package coord_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A server that begins to evict keys while processes run is told of, once for each change.
func TestAdvice_APolicyThatIsChangedWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client, log := s.Client(t), newRecords()
	start(t, overRedis(t, s), &coord.Options{Partitions: 1, SessionTTL: time.Second, Grace: 2 * time.Second, Logger: slog.New(log)})
	set := func(policy string) {
		if err := client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	told := func() int { return len(log.about("holdfast: the arbiter is not fit for locks any more")) }
	set("allkeys-lru")
	await.Within(t, time.Minute, "a record of the first change", func() bool { return told() == 1 })
	set("allkeys-random")
	await.Within(t, time.Minute, "a record of the second change", func() bool { return told() == 2 })
	if r := log.about("holdfast: the arbiter is not fit for locks any more")[1]; r.level != slog.LevelError {
		t.Errorf("level: got %v", r.level)
	}
	set("noeviction")
	if n := told(); n != 2 {
		t.Errorf("%d records of two changes", n)
	}
}
