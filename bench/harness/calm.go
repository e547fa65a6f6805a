package harness

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/stats"
)

// The remains of a round must not be charged to the next one. A pool that gives up hundreds of
// queries goes on for seconds after its callers have stopped: it must tell their servers, and make
// the connections anew.
const (
	calmBusy  = 0.1 // of all cores, at most, for
	calmFor   = 250 * time.Millisecond
	calmBlind = time.Second // where it is not known how busy the machine is
)

// Settle waits until the machine has little to do, for settings.calm at most: then something else
// keeps it busy.
func (b *Bench) Settle(ctx context.Context) {
	if b.Calm == 0 {
		return
	}
	limit := time.After(b.Calm)
	was, err := readTicks("/proc/stat")
	if err != nil {
		limit = time.After(min(b.Calm, calmBlind))
	}
	tick := time.NewTicker(calmFor)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
		if err != nil {
			continue
		}
		now, failed := readTicks("/proc/stat")
		if failed != nil || now.busyness(was) <= calmBusy {
			return
		}
		was = now
	}
}

// ticks is how much time all cores have had, and spent idly.
type ticks struct{ all, idle int64 }

func (t ticks) busyness(was ticks) float64 {
	return 1 - stats.Ratio(float64(t.idle-was.idle), float64(t.all-was.all))
}

// readTicks reads the first line of /proc/stat: "cpu", user, nice, system, idle, iowait and so on.
func readTicks(file string) (t ticks, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return t, err
		}
		if i >= 8 { // guests, which are counted as users, too
			break
		}
		t.all += n
		if i == 3 || i == 4 {
			t.idle += n
		}
	}
	return t, nil
}
