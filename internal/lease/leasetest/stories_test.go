package leasetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// tick is how long a tick of the model is here.
const tick = 5 * time.Second

// A replay executes a story of package model on the core.
type replay struct {
	*World
	cutS, cutP map[string]bool // nodes that do not reach the arbiter's slot of the sessions, of the partition
	replica    *fallback.Partition
}

// newReplay returns a world with the model's times: sessions last two ticks, or three if the arbiter's clock may run ahead by one.
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

// An action of the model, and what the core makes of it. A node of the story is $1, another one $2.
type action struct {
	story *regexp.Regexp
	does  func(r *replay, a, b string)
}

// by returns an action that executes commands.
func by(story, commands string) action {
	return action{regexp.MustCompile("^" + story), func(r *replay, a, b string) {
		for _, line := range strings.Split(commands, "; ") {
			r.run(strings.TrimSpace(strings.NewReplacer("$a", a, "$b", b).Replace(line)))
		}
	}}
}

func doing(story string, f func(r *replay, a, b string)) action {
	return action{regexp.MustCompile("^" + story), f}
}

// actions are the model's, as its stories tell them.
var actions = []action{
	doing(`(\d) locks the key at the arbiter: it HOLDS`, func(r *replay, a, _ string) {
		r.owner = ""
		r.want(a)
		r.run(a + " contend k")
	}),
	doing(`(\d)'s lock is late`, func(r *replay, a, _ string) {
		r.owner = ""
		r.want(a)
		r.run(a + " send contend k")
		r.run(a + " fail contend k")
	}),
	doing(`(\d) asks owner (\d) for the key`, func(r *replay, a, b string) {
		r.owner = b
		r.want(a)
	}),
	doing(`(\d) grants itself the key`, func(r *replay, a, _ string) { r.want(a) }),
	by(`(\d) gives up its request`, "$a leave k"),
	by(`(\d) gives back token`, "$a unlock k"),
	by(`owner (\d) grants the key to (\d)`, "deliver $b $a"),
	by(`(\d) gets the grant of owner (\d)`, "deliver $b $a 1"),
	by(`(\d)'s hold rests on owner (\d)`, "deliver $b $a 1"),
	by(`(\d) hears that (\d) does not answer for epoch`, "deliver $b $a 1"),
	by(`owner (\d) answers for (\d)'s hold`, "offers $b 9; $b verify; deliver $b $a"),
	by(`(\d) acquires the partition`, "$a acquire"),
	by(`(\d)'s acquire is executed, .* but the answer is late`, "$a send acquire; $a execute acquire"),
	doing(`a late answer reaches (\d)`, func(r *replay, a, _ string) {
		for _, c := range r.node(a).calls {
			if c.executed {
				r.run(strings.TrimSpace(fmt.Sprintf("%s answer %s %s", a, c.kind, c.key)))
				return
			}
		}
	}),
	by(`(\d) freezes epoch .*, and demotes it$`, "$a demote"),
	by(`(\d) sends demote of epoch .*, which is late`, "$a send demote"),
	by(`(\d)'s wall clock steps forward`, "$a step; $a send demote"),
	by(`(\d)'s late (demote|adopt) is executed, and the answer is lost`, "$a execute demote; $a late"),
	by(`(\d) finds itself named as owner`, "$a fail demote; $a look"), // and gives up waiting for the answer
	by(`(\d)'s timer ends its ownership`, "$a watch k"),
	by(`(\d) reclaims its ownership`, "$a verify"),
	by(`(\d)'s adopt of token .* is late`, "$a send adopt; $a fail adopt"),
	by(`(\d)'s release reaches the arbiter`, "$a release"),
	by(`owner (\d) frees the key of session (\d), that it takes for dead`, "$a doubt"),
	doing(`owner (\d) hears that (\d) has given the key back`, func(r *replay, a, _ string) {
		id, _ := r.node(a).P.HolderOf("k")
		r.run(a + " told freed k " + identity(id))
		r.run(a + " rumors")
	}),
	doing(`(\d), which was the owner, hears that (\d) has given the key back`, func(r *replay, a, _ string) {
		r.run(a + " told freed k " + identity(r.record.Rows["k"].Identity))
		r.run(a + " release")
	}),
	by(`(\d) is asked about token`, "$a asked k"),
	by(`the stream between (\d) and (\d) breaks`, "cut $a $b"),
	by(`(\d) and (\d) are connected again`, "link $a $b"),
	doing(`(\d) is cut off from the arbiter's slot of the partition`, func(r *replay, a, _ string) { r.cutP[a] = true }),
	doing(`(\d) reaches the arbiter's slot of the partition again`, func(r *replay, a, _ string) { r.cutP[a] = false }),
	doing(`(\d) is cut off from the arbiter's slot of the sessions`, func(r *replay, a, _ string) { r.cutS[a] = true }),
	doing(`(\d) reaches the arbiter's slot of the sessions again`, func(r *replay, a, _ string) { r.cutS[a] = false }),
	doing(`(\d) opens a new session`, func(r *replay, a, _ string) {
		r.run(a + " open")
		r.table.Open(r.sessions(), r.node(a).session.ID, r.Times.TTL.Milliseconds(), "")
	}),
	doing(`(\d) looks at the partition's record`, func(r *replay, _, _ string) { r.record.Load(r.moment()) }),
	doing(`the replica stops following`, func(r *replay, _, _ string) { r.replica = r.record.Clone() }),
	doing(`FAILOVER of the partition's slot to the replica`, func(r *replay, _, _ string) {
		r.run("failover")
		r.record = *r.replica
	}),
	by(`FAILOVER of the partition's slot, everything is lost`, "failover empty"),
	by(`FAILOVER of the partition's slot, nothing is lost`, "failover"),
	doing(`FAILOVER of the sessions' slot, nothing is lost`, func(r *replay, _, _ string) { r.keeper += "'" }),
	doing(`FAILOVER of the sessions' slot, everything is lost`, func(r *replay, _, _ string) {
		r.keeper += "'"
		*r.table = fallback.Sessions{Members: make(map[string]fallback.Member)}
		r.table.Mark(r.sessions(), "mark", r.Times.Grace.Milliseconds())
	}),
	doing(`the arbiter's clock runs ahead by a tick`, func(r *replay, _, _ string) { r.ahead += tick }),
	doing(`TICK`, func(r *replay, _, _ string) { r.tick() }),
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

// tick passes: what has lapsed ends, and nodes that reach the arbiter renew, verify, and ping.
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
	r.pairs(func(a, b *Node) { // an answer does not overtake what is on its way
		if e, back := a.ends[b.Name], b.ends[a.Name]; len(e.sending)+len(back.sending) == 0 {
			r.ping(a, b)
			r.deliver(a, b, false)
			r.deliver(b, a, false)
		}
	})
}

// follow executes a story of the model, and returns what the core has violated, "" for nothing.
func follow(t *testing.T, story string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(story), "\n")
	r := newReplay(strings.Contains(story, "the arbiter's clock runs ahead"))
	names := strings.NewReplacer("1", "a", "2", "b")
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		known := false
		for _, x := range actions {
			if m := x.story.FindStringSubmatch(line); m != nil {
				m = append(m, "", "")
				x.does(r, names.Replace(m[1]), names.Replace(m[2]))
				known = true
				break
			}
		}
		if !known {
			t.Fatalf("the core knows no action of the model %q", line)
		}
		if r.broken != "" {
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
