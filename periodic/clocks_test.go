package periodic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/periodic"
)

// minutes is a job of once a minute in a bubble.
type minutes struct {
	*diary
	opts  *periodic.Options
	began time.Time
	ends  []context.CancelFunc
	nodes []*coord.Coordinator // two, whose processes are many
}

func everyMinute(t *testing.T, a *fallback.Memory, opts *periodic.Options) *minutes {
	m := &minutes{diary: &diary{t: t}, opts: opts, began: time.Now()}
	m.nodes = []*coord.Coordinator{start(t, a), start(t, a)}
	t.Cleanup(m.stop)
	return m
}

// join makes a process take part until the test calls leave.
func (m *minutes) join(by string, skew time.Duration) (leave func()) {
	ctx, cancel := context.WithCancel(m.t.Context())
	m.ends = append(m.ends, cancel)
	m.diary.join(ctx, m.nodes[len(m.ends)%2], by, skew, periodic.Every(time.Minute), m.opts, nil)
	return cancel
}

func (m *minutes) stop() {
	for _, end := range m.ends {
		end()
	}
	m.work.Wait()
}

// until waits for a moment after a tick: the minute counts from the beginning.
func (m *minutes) until(minute int) {
	time.Sleep(time.Until(m.began.Add(time.Duration(minute)*time.Minute + 30*time.Second)))
}

// ticks lists the runs: the minutes of the ticks, each with a sign where it was not run at its
// time.
func (m *minutes) ticks() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, r := range m.runs {
		text := fmt.Sprint(r.Due.Sub(m.began).Minutes())
		if off := r.at.Sub(r.Due); off > time.Second {
			text += "+"
		} else if off < -time.Second {
			text += "-"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (m *minutes) want(ticks string) {
	m.t.Helper()
	if got := m.ticks(); got != ticks {
		m.t.Errorf("ran  %s\nwant %s", got, ticks)
	}
}

// A machine's processes have one clock, and are not two that agree upon the time.
func TestRun_OneVotePerMachine(t *testing.T) {
	for name, more := range map[string]func(m *minutes, leave func()){
		"two processes":         func(m *minutes, _ func()) { m.join("wrong/2", time.Hour) },
		"a process that begins": func(m *minutes, leave func()) { leave(); m.join("wrong/2", time.Hour) },
		"a reboot":              func(m *minutes, leave func()) { leave(); m.join("wrong after its reboot", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				m := everyMinute(t, a, nil)
				here, there := m.join("here", 0), m.join("there", 0)
				m.until(2)
				here()
				there()
				leave := m.join("wrong/1", time.Hour) // it runs the next tick
				m.until(3)
				more(m, leave)
				m.until(6)
				m.join("here", 0)
				m.until(8)
				m.want("1 2 3 4 5 6 7 8")
			})
		})
	}
}

// Two machines with the same wrong clock set the time of the job. When two others have set it back,
// the ticks in between run when they are due. Those that were run ahead do not run again.
func TestRun_ATickOfTheFutureBlocksNone(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, nil)
		leave := m.join("here", 0)
		m.until(2)
		leave()
		wrong := []func(){m.join("wrong", 10*time.Minute), m.join("wrong, too", 10*time.Minute)}
		m.until(5)
		m.want("1 2 3 13- 14- 15-") // at 3, the one confirms the other's finding
		wrong[0]()
		wrong[1]()
		m.join("here", 0)
		m.join("there", 0)
		m.until(20)
		// At 6 one of the two finds that the time is wrong, and the other one sets it back.
		m.want("1 2 3 13- 14- 15- 16- 6 7 8 9 10 11 12 17 18 19 20")
		if n := m.runs[7].Missed; n != 2 {
			t.Errorf("tick 6 after %d missed ones, want 4 and 5", n)
		}
	})
}

// The time is set forward twice before it is set back.
func TestRun_SetForwardTwice(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, nil)
		leave := m.join("here", 0)
		m.until(2)
		for i, ahead := range []time.Duration{10 * time.Minute, 30 * time.Minute} {
			leave()
			one, two := m.join(fmt.Sprint("one", i), ahead), m.join(fmt.Sprint("two", i), ahead)
			leave = func() { one(); two() }
			m.until(4 + 2*i)
		}
		leave()
		m.join("here", 0)
		m.join("there", 0)
		m.until(39)
		m.want("1 2 3 13- 14- 15- 35- 36- 37- 7 8 9 10 11 12" +
			" 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 38 39")
	})
}

// The wrong clocks stay, and the time of the job is set again and again, but not without a pause.
func TestRun_TheTimeIsSetToAndFro(t *testing.T) {
	for name, all := range map[string][]string{
		"two against two":            {"a", "b", "wrong a", "wrong b"},
		"two machines have one name": {"a/1", "a/2"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				var out bytes.Buffer
				m := everyMinute(t, a, &periodic.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
				for i, by := range all {
					m.join(by, time.Duration(i*2/len(all))*10*time.Minute)
				}
				m.until(20)
				m.stop()
				m.once()
				if n := strings.Count(out.String(), "the time of a periodic job was set"); n > 4*20 {
					t.Errorf("the time was set %d times in 20 minutes", n)
				}
			})
		})
	}
}

// once reports ticks that were run twice, and returns which were run.
func (m *minutes) once() map[int]bool {
	m.t.Helper()
	seen := make(map[int]bool)
	for _, r := range m.runs {
		minute := int(r.Due.Sub(m.began) / time.Minute)
		if seen[minute] {
			m.t.Errorf("%d was run twice: %s", minute, m.ticks())
		}
		seen[minute] = true
	}
	return seen
}

// A tick that is too late for Late is not run when the time is set forward, but when that is taken
// back.
func TestRun_SetForwardToBetweenTicks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, &periodic.Options{Late: 10 * time.Second})
		leave := m.join("here", 0)
		m.until(2)
		leave()
		wrong := []func(){
			m.join("wrong", 10*time.Minute+45*time.Second),
			m.join("wrong, too", 10*time.Minute+45*time.Second),
		}
		m.until(4)
		wrong[0]()
		wrong[1]()
		m.join("here", 0)
		m.join("there", 0)
		m.until(17)
		m.want("1 2 3 14- 15- 16- 6 7 8 9 10 11 12 13 17")
	})
}

// The clock of the only machine is set: it needs no second one, as there may be none.
func TestRun_TheOnlyMachinesClockIsSet(t *testing.T) {
	for _, again := range []string{"machine/1", "machine/2"} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			m := everyMinute(t, a, nil)
			leave := m.join("machine/1", 5*time.Minute)
			m.until(2)
			leave()
			m.join(again, 0)
			m.until(9)
			m.want("6- 7- 3 4 5 8 9")
		})
	}
}

// The only machine is one after its reboot, too: its clock may be set then as before.
func TestRun_TheOnlyMachinesClockIsSetAfterItsReboot(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, nil)
		leave := m.join("machine", 5*time.Minute)
		m.until(2)
		leave()
		leave = m.join("machine after its reboot", 5*time.Minute)
		m.until(4)
		leave()
		m.join("machine after its reboot/2", 0)
		m.until(11)
		m.want("6- 7- 8- 9- 5 10 11")
	})
}

// A store that loses the last record loses no tick that was run after the time was set back.
func TestRun_ALostRecordAfterTheTimeWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		store := &forgetful{}
		m := everyMinute(t, a, &periodic.Options{Store: store})
		leave := m.join("machine", 5*time.Minute)
		m.until(2)
		leave()
		m.join("machine", 0)
		m.until(4)
		store.forget()
		m.until(9)
		m.want("6- 7- 3 4 5 8 9")
		if n := m.runs[4].Missed; n != 0 {
			t.Errorf("tick 5 after %d missed ones: 4 was run", n)
		}
	})
}

// forgetful is a store that forgets the records of the last holder.
type forgetful struct {
	mu   sync.Mutex // protects the fields below
	kept []coord.Shared
	at   []time.Time
}

func (f *forgetful) Get(context.Context, string) (coord.Shared, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.kept) - 1
	if n < 0 {
		return coord.Shared{}, nil
	}
	r := f.kept[n]
	r.Age = time.Since(f.at[n])
	return r, nil
}

func (f *forgetful) Put(_ context.Context, _ string, value []byte, fence uint64, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, coord.Shared{Value: value, Fence: fence})
	f.at = append(f.at, time.Now())
	return nil
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.kept) - 1
	for last := f.kept[n].Fence; f.kept[n].Fence == last; n-- {
	}
	f.kept, f.at = f.kept[:n+1], f.at[:n+1]
}

// Where another machine's clock has said the same, the one that was set is the wrong one.
func TestRun_AClockIsSetWrong(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, nil)
		here := m.join("here", 0)
		m.until(1)
		there := m.join("there", 0)
		m.until(2) // one of them runs the tick, and the other one says the same
		here()
		there()
		m.join("here/2", 10*time.Minute)
		m.until(5)
		m.want("1 2 3 4 5")
	})
}

// The log says whose clock differs, and from whose; and by how much the time was set.
func TestRun_LogsWhoseClockDiffers(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var out bytes.Buffer
		m := everyMinute(t, a, &periodic.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		leave := m.join("first", 5*time.Minute)
		m.until(1)
		leave()
		leave = m.join("second", 0)
		m.until(2)
		leave()
		m.work.Wait()
		want := `level=ERROR msg="holdfast: the clock of this process differs from that of the last run of a periodic job"` +
			` job=report differs=-5m0s host=second of=first`
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nlacks %s", out.String(), want)
		}
		m.join("second", 0)
		m.join("third", 0)
		m.until(4)
		m.stop()
		found := regexp.MustCompile(`level=WARN msg="holdfast: the time of a periodic job was set, as the clock of this process says"`+
			` job=report by=-5m0s host=(second|third) of=first`).FindAllString(out.String(), -1)
		if len(found) != 1 {
			t.Errorf("%s\nsays %d times that the time was set", out.String(), len(found))
		}
	})
}

// While a wrong clock has set the time back, no tick is due for long. Others set it right all the
// same.
func TestRun_SetBackByWrongClocks(t *testing.T) {
	for name, firm := range map[string]bool{"by two machines": true, "by the only one": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				m := everyMinute(t, a, nil)
				leave := m.join("here", 0)
				m.until(40)
				leave()
				wrong := []func(){m.join("here/2", -30*time.Minute)}
				if firm {
					wrong = append(wrong, m.join("wrong", -30*time.Minute))
				}
				m.until(42)
				for _, end := range wrong {
					end()
				}
				m.join("here/3", 0)
				if firm {
					m.join("there", 0)
				}
				m.until(48)
				m.stop()
				seen := m.once()
				for _, minute := range []int{46, 47, 48} {
					if !seen[minute] {
						t.Errorf("%d was not run: %s", minute, m.ticks())
					}
				}
			})
		})
	}
}

// anyClocks is how many random cases TestRun_AnyClocks tries.
const anyClocks = 3

// Whatever clocks come and go: no tick is run twice, and when two right ones are left, none is
// missed. In every third case, processes of the release before run beside.
func TestRun_AnyClocks(t *testing.T) {
	for seed := uint64(2); seed < 2+anyClocks; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				random := rand.New(rand.NewPCG(seed, 1))
				m := everyMinute(t, a, nil)
				before := seed%3 == 2
				minute, leave := 0, func() {}
				for phase := range 1 + random.IntN(4) {
					skew := time.Duration(random.IntN(60)-20) * time.Minute
					var ends []func()
					for i := range 1 + random.IntN(3) {
						apart := time.Duration(random.IntN(500)) * time.Millisecond
						m.opts = nil
						if before && i == 0 {
							m.opts = &periodic.Options{Store: releaseBefore(t, m.nodes[0])}
						}
						ends = append(ends, m.join(fmt.Sprint(phase, " ", i), skew+apart))
					}
					leave()
					leave = func() {
						for _, end := range ends {
							end()
						}
					}
					minute += 1 + random.IntN(9)
					m.until(minute)
				}
				m.opts = nil
				m.join("right", 0)
				m.join("right, too", 0)
				leave()
				m.until(minute + 40)
				m.stop()
				seen := m.once()
				for i := minute + 5; i <= minute+40; i++ {
					if !seen[i] && !before {
						t.Errorf("%d was not run: %s", i, m.ticks())
					}
				}
			})
		})
	}
}

// before is a store as the release before sees it.
type before struct{ coord.ShareStore }

func releaseBefore(t *testing.T, c *coord.Coordinator) coord.ShareStore {
	results, err := c.Results()
	if err != nil {
		t.Fatal(err)
	}
	return before{results}
}

func (b before) Get(ctx context.Context, key string) (coord.Shared, error) {
	r, err := b.ShareStore.Get(ctx, key)
	r.Value = without(r.Value)
	return r, err
}

func (b before) Put(ctx context.Context, key string, value []byte, fence uint64, keep time.Duration) error {
	return b.ShareStore.Put(ctx, key, without(value), fence, keep)
}

// without returns the record with the fields that the release before knows.
func without(value []byte) []byte {
	var r struct {
		Due     time.Time     `json:"due"`
		At      time.Time     `json:"at"`
		Ran     time.Duration `json:"ran"`
		Done    bool          `json:"done"`
		Differs time.Duration `json:"differs,omitempty"`
		By      string        `json:"by,omitempty"`
	}
	if json.Unmarshal(value, &r) != nil {
		return value
	}
	value, _ = json.Marshal(r)
	return value
}

// A finding of a process of the release before does not count: it may be on the same machine.
func TestRun_TheReleaseBeforeHasNoVote(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		m := everyMinute(t, a, nil)
		leave := m.join("here", 0)
		m.until(2)
		leave()
		m.opts = &periodic.Options{Store: releaseBefore(t, m.nodes[0])}
		m.join("wrong/1", time.Hour)
		m.opts = nil
		m.join("wrong/2", time.Hour)
		m.until(12)
		m.want("1 2 3 4 5 6 7 8 9 10 11 12")
	})
}

// Processes with one boot id are on one machine; without one, those with one name.
func TestMachineBy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(file, []byte("53b4d16d-1e2a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := func() (string, error) { return "web-1", nil }
	nameless := func() (string, error) { return "", os.ErrNotExist }
	for _, x := range []struct {
		file     string
		hostname func() (string, error)
		id, host string
	}{
		{file, named, "53b4d16d-1e2a", "web-1"},
		{file, nameless, "53b4d16d-1e2a", "unknown"},
		{file + "x", named, "web-1", "web-1"},
		{file + "x", nameless, "unknown", "unknown"},
	} {
		if id, host := periodic.MachineBy(x.file, x.hostname); id != x.id || host != x.host {
			t.Errorf("%+v: got %q, %q", x, id, host)
		}
	}
}
