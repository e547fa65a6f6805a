package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/bench/stats"
)

// Meter is where the counters of a process were when a round began.
type Meter struct {
	counters []*Counter
	was      stats.Effort
}

// NewMeter begins to measure. Counters of clients that are not there are nil.
func NewMeter(counters ...*Counter) Meter {
	m := Meter{counters: counters}
	m.was = m.now()
	return m
}

func (m Meter) now() stats.Effort {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	e := stats.Effort{Allocs: mem.Mallocs, CPU: SelfCPU()}
	for _, c := range m.counters {
		if c != nil {
			e.Commands += c.Commands.Load()
			e.Trips += c.Trips.Load()
			e.Sent += c.Sent.Load()
			e.Received += c.Received.Load()
		}
	}
	return e
}

// Read returns the usage since the meter began.
func (m Meter) Read(sections int64) stats.Effort {
	e := m.now()
	return stats.Effort{
		Sections: sections, Commands: e.Commands - m.was.Commands, Trips: e.Trips - m.was.Trips,
		Sent: e.Sent - m.was.Sent, Received: e.Received - m.was.Received,
		Allocs: e.Allocs - m.was.Allocs, CPU: e.CPU - m.was.CPU,
	}
}

// Heap returns the size of the reachable heap: the least of some looks, because the coordinator
// goes on in the background.
func Heap() int64 {
	least := int64(-1)
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		runtime.GC()
		runtime.GC() // for objects that sync.Pools kept through the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if n := int64(m.HeapAlloc); least < 0 || n < least {
			least = n
		}
	}
	return least
}

func SelfCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ServerCPU returns the CPU time of redis-server since it started.
func ServerCPU(ctx context.Context, c *redis.Client) (time.Duration, error) {
	info := c.InfoMap(ctx, "cpu")
	if info.Err() != nil {
		return 0, info.Err()
	}
	var user, sys float64
	_, err := fmt.Sscan(info.Item("CPU", "used_cpu_user")+" "+info.Item("CPU", "used_cpu_sys"), &user, &sys)
	return time.Duration((user + sys) * float64(time.Second)), err
}

// CommandStat is the server's statistics of one command since it started.
type CommandStat struct{ Calls, usec int64 }

func (s CommandStat) Since(before CommandStat) CommandStat {
	return CommandStat{s.Calls - before.Calls, s.usec - before.usec}
}

// Mean is the time that the server took for one.
func (s CommandStat) Mean() time.Duration {
	if s.Calls == 0 {
		return 0
	}
	return time.Duration(s.usec) * time.Microsecond / time.Duration(s.Calls)
}

// CommandStats reads the statistics of a command. Those of EVALSHA tell how many scripts were
// called, because a script cannot call another: for all other commands the server does not tell a
// client's from a script's.
func CommandStats(ctx context.Context, c *redis.Client, command string) (s CommandStat, err error) {
	info := c.InfoMap(ctx, "commandstats")
	if text := info.Item("Commandstats", "cmdstat_"+command); text != "" {
		_, err = fmt.Sscanf(text, "calls=%d,usec=%d", &s.Calls, &s.usec)
	}
	return s, errors.Join(info.Err(), err)
}
