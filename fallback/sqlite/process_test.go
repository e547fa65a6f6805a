//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var long = flag.Bool("arbiters.full", false, "run what takes minutes, too")

// workerEnv has the directory of a worker: a process that locks keys of the arbiter in it.
const workerEnv = "HOLDFAST_SQLITE_WORKER"

const workerKeys = 3

// work locks keys until it is told to end, and writes a line for each: "locked", or what is wrong.
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
				_ = l.Unlock() // a lock that was lost is no mistake
			}
		})
	}
	turns.Wait()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = c.Close(end)
	return 0
}

// section is what a lock protects: a file that one process at a time makes, and another one with the last token.
func section(path string, l coord.Lock) (wrong string) {
	for {
		f, err := os.OpenFile(path+".in", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprint(f, os.Getpid())
			f.Close()
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return err.Error()
		}
		text, err := os.ReadFile(path + ".in")
		pid, err2 := strconv.Atoi(string(text))
		if err != nil || err2 != nil || syscall.Kill(pid, 0) == nil {
			if l.Context().Err() != nil {
				return "" // the lock was lost, and the other one has it
			}
			return fmt.Sprintf("process %s is in the section of %s: %v", text, path, err)
		}
		_ = os.Remove(path + ".in") // it was killed in there
	}
	defer os.Remove(path + ".in")
	last, _ := os.ReadFile(path + ".token")
	n, _ := strconv.ParseUint(string(last), 10, 64)
	if fence := uint64(l.Fence()); n >= fence {
		return fmt.Sprintf("token %d after %d", fence, n)
	}
	if err := os.WriteFile(path+".token.new", strconv.AppendUint(nil, uint64(l.Fence()), 10), 0o600); err != nil {
		return err.Error()
	}
	if err := os.Rename(path+".token.new", path+".token"); err != nil {
		return err.Error()
	}
	select {
	case <-l.Context().Done():
	case <-time.After(rand.N(5 * time.Millisecond)):
	}
	return ""
}

// Processes that are killed in the middle of a transaction, and of a section, leave nothing but their locks, until they expire.
func TestSQLite_NoTwoHoldersOverKills(t *testing.T) {
	takes.Seconds(t)
	kills, each := 3, int64(30)
	if *long {
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
