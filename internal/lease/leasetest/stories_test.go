package leasetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// tick is the duration of a tick of the model here.
const tick = 5 * time.Second

// A replay executes a story of package model on the core.
type replay struct {
	*World
	cutS, cutP map[string]bool // nodes that do not reach the arbiter's slot of the sessions, of the partition
	replica    *fallback.Partition
}

// newReplay returns a world with the model's times: sessions last two ticks, or three if the
// arbiter's clock may run ahead by one.
func newReplay(drift bool) *replay {
	x := Times{TTL: 2 * tick, Grace: 3 * tick}
	if drift {
		x = Times{TTL: 3 * tick, Margin: tick, Grace: 5 * tick}
	}
	w := NewWith(x, "a", "b")
	w.Quiet, w.newest, w.keeper = true, make(map[string]uint64), w.server
	w.table = &fallback.Sessions{Members: make(map[string]fallback.Member)}
	w.table.Mark(w.moment(), "mark", x.Grace.Milliseconds())
	for _, n := range w.Nodes {
		w.table.Open(w.moment(), n.session.ID, x.TTL.Milliseconds(), "")
	}
	return &replay{World: w, cutS: make(map[string]bool), cutP: make(map[string]bool)}
}

// want lets a caller of a node wait for the key, if there is none.
func (r *replay) want(name string) {
	if n := r.node(name); len(n.waiters["k"]) == 0 && n.turns["k"].t == nil {
		r.run(name + " lock k")
	}
}

// sessions is a moment at the server of the sessions.
func (r *replay) sessions() fallback.Moment {
	m := r.moment()
	m.Server = r.keeper
	return m
}

// tick passes: lapsed holds end, and nodes that reach the arbiter renew, verify, and ping.
func (r *replay) tick() {
	r.now = r.now.Add(tick)
	for _, n := range r.Nodes {
		r.run(n.Name + " watch k")
	}
	for _, n := range r.Nodes {
		id := n.session.ID
		if !r.cutS[n.Name] && !n.dead {
			if x, _ := r.table.Renew(r.sessions(), id, r.Times.TTL.Milliseconds(), ""); x.Alive && n.session.Deadline().After(r.now) {
				n.session.Extend(r.now.Add(r.Times.lease()))
			}
		}
		if !r.cutP[n.Name] && !n.dead {
			r.run(n.Name + " send verify") // and reclaims in a step of its own
			r.run(n.Name + " execute verify")
			r.run(n.Name + " answer verify")
		}
	}
	r.pairs(func(a, b *Node) { // an answer does not overtake the frames on their way
		if e, back := a.ends[b.Name], b.ends[a.Name]; len(e.sending)+len(back.sending) == 0 {
			r.ping(a, b)
			r.deliver(a, b, false)
			r.deliver(b, a, false)
		}
	})
}

// inCore names nodes of the model.
var inCore = strings.NewReplacer("1", "a", "2", "b")

// step executes one action of the model.
func (r *replay) step(t *testing.T, line string) {
	t.Helper()
	for _, x := range actions {
		if m := x.story.FindStringSubmatch(line); m != nil {
			m = append(m, "", "")
			x.does(r, inCore.Replace(m[1]), inCore.Replace(m[2]))
			return
		}
	}
	t.Fatalf("the core knows no action of the model %q", line)
}

// follow executes a story of the model, and returns the core's violation, "" for none.
func follow(t *testing.T, story string) string {
	t.Helper()
	r := newReplay(strings.Contains(story, "the arbiter's clock runs ahead"))
	for _, line := range strings.Split(strings.TrimSpace(story), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if r.step(t, line); r.broken != "" {
			return fmt.Sprintf("%s, by %q", r.broken, line)
		}
	}
	return ""
}

// stories returns those of package model: how it comes to a violation without each of its guards.
func stories(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../model/testdata/stories/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d stories: %v", len(files), err)
	}
	all := make(map[string]string)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".txt")] = string(text)
	}
	return all
}

// TestModelStories replays each on the core, which has all guards: nothing comes of them.
func TestModelStories(t *testing.T) {
	for name, story := range stories(t) {
		t.Run(name, func(t *testing.T) {
			if broken := follow(t, story); broken != "" {
				t.Errorf("%s\n%s", broken, story)
			}
		})
	}
}
