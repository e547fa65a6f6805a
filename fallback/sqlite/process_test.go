//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// workerEnv has the directory of a worker: a process that locks keys of the arbiter in it.
const workerEnv = "HOLDFAST_SQLITE_WORKER"

const workerKeys = 3

// work locks keys until it is told to end, and writes a line for each: "locked", or a fault.
func work(text string) int {
	var dir string
	if err := json.Unmarshal([]byte(text), &dir); err != nil {
		return 2
	}
	ctx, stop := reexec.Told()
	defer stop()
	c, err := coord.New(ctx, sqlite.New(filepath.Join(dir, "locks"), &sqlite.Options{ColdStart: true}), &coord.Options{
		Namespace: "judged", Partitions: 8, SessionTTL: 3 * time.Second,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	var turns sync.WaitGroup
	for range 3 {
		turns.Go(func() {
			for ctx.Err() == nil {
				key := fmt.Sprint("key-", rand.IntN(workerKeys))
				l, err := c.Lock(ctx, key)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				if wrong := section(filepath.Join(dir, key), l); wrong != "" {
					fmt.Println("WRONG:", wrong)
				} else {
					fmt.Println("locked")
				}
			}
		})
	}
	turns.Wait()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = c.Close(end)
	return 0
}

// section is the section under a lock: a file with the last token. It unlocks. A later token that
// is there before Unlock says that the lock was held until then is of a second holder. A process
// that was stopped for longer than its lock lasted finds later tokens, too: its Unlock has an
// error, and nothing is wrong.
func section(path string, l coord.Lock) (wrong string) {
	fence := uint64(l.Fence())
	if n := lastToken(path); n >= fence {
		wrong = fmt.Sprintf("token %d after %d", fence, n)
	}
	mine := fmt.Sprintf("%s.token.%d", path, fence)
	if err := os.WriteFile(mine, strconv.AppendUint(nil, fence, 10), 0o600); err != nil {
		return err.Error()
	}
	if err := os.Rename(mine, path+".token"); err != nil {
		return err.Error()
	}
	select {
	case <-l.Context().Done():
	case <-time.After(rand.N(5 * time.Millisecond)):
	}
	if n := lastToken(path); n > fence && wrong == "" {
		wrong = fmt.Sprintf("token %d was given out while %d was held", n, fence)
	}
	if l.Unlock() != nil {
		return ""
	}
	return wrong
}

// lastToken returns the token in the file, 0 without one.
func lastToken(path string) uint64 {
	text, _ := os.ReadFile(path + ".token")
	n, _ := strconv.ParseUint(string(text), 10, 64)
	return n
}

// Processes that are killed in the middle of a transaction, and of a section, leave nothing but
// their locks, until they expire.
func TestSQLite_NoTwoHoldersOverKills(t *testing.T) {
	takes.Seconds(t)
	kills, each := 3, int64(30)
	if storetest.Full() {
		kills, each = 10, 60
	}
	dir := t.TempDir()
	var locks atomic.Int64
	var readers sync.WaitGroup
	start := func() *reexec.Worker {
		t.Helper()
		w, err := reexec.Start(t.Context(), workerEnv, dir, os.Stderr, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			for lines := bufio.NewScanner(w.Out); lines.Scan(); {
				if text := lines.Text(); strings.HasPrefix(text, "WRONG") {
					t.Error(text)
				} else {
					locks.Add(1)
				}
			}
		})
		return w
	}
	advance := func(what string) {
		t.Helper()
		want := locks.Load() + each
		await.Within(t, time.Minute, what, func() bool { return locks.Load() >= want })
	}
	workers := []*reexec.Worker{start(), start(), start()}
	for range kills {
		advance("locks")
		i := rand.IntN(len(workers))
		_ = workers[i].Cmd.Process.Kill()
		_ = workers[i].Cmd.Wait()
		workers[i] = start()
	}
	advance("locks after the last kill")
	for _, w := range workers {
		_ = w.In.Close()
	}
	readers.Wait()
	for _, w := range workers {
		if err := w.Cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d locks", locks.Load())
}
