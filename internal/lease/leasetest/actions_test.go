package leasetest

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// An action of the model, and its execution by the core. A node of the story is $1, another one $2.
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
	doing(`(\d)'s late (.*) is executed, and answered`, func(r *replay, a, call string) { r.late(a, call, true) }),
	doing(`(\d)'s late (.*) is executed, and the answer is lost`, func(r *replay, a, call string) { r.late(a, call, false) }),
	by(`(\d) finds itself named as owner`, "$a fail demote; $a look"), // and gives up waiting for the answer
	by(`(\d)'s timer ends its ownership`, "$a watch k"),
	by(`(\d) reclaims its ownership`, "$a verify"),
	by(`(\d) adopts its hold`, "$a adopt"),
	by(`(\d) cannot adopt`, "$a adopt"),
	by(`(\d)'s adopt of token .* is late`, "$a send adopt"),
	by(`(\d)'s adopt of token .* is executed, but the answer is late`, "$a send adopt; $a execute adopt"),
	by(`(\d)'s acquire, expecting epoch .*, is late`, "$a send acquire"),
	by(`(\d)'s demote-unserved .* is late`, "$a send look"),
	by(`(\d)'s release is late`, "$a send release"),
	by(`(\d) freezes epoch .*, and demotes it, but the answer is lost`, "$a send demote; $a execute demote; $a fail demote"),
	by(`(\d) (reclaims its row|cannot reclaim)`, "$a verify"),
	by(`(\d) sees that`, "$a send verify; $a execute verify; $a answer verify"),
	by(`(\d)'s release reaches owner (\d)`, "deliver $a $b"),
	by(`owner (\d) asks (\d), which has not got the key`, "$a doubt; deliver $a $b; deliver $b $a"),
	doing(`(\d) (gets a grant again|gets the grant of token .*, and does not want it|is told of a hold)`, func(r *replay, a, _ string) {
		r.run("deliver " + r.other(a) + " " + a + " 1")
	}),
	doing(`(\d) answers a ping of (\d)`, func(r *replay, a, b string) { // the answer goes behind the frames sent before
		x, y := r.node(b), r.node(a)
		if len(x.ends[a].sending) == 0 {
			r.ping(x, y)
			r.deliver(x, y, false)
		}
	}),
	by(`(\d) gets a late answer of (\d) to a ping`, "deliver $b $a 1"),
	by(`(\d)'s release reaches the arbiter`, "$a release"),
	doing(`(\d)'s lock is executed, .* but the answer is late`, func(r *replay, a, _ string) {
		r.owner = ""
		r.want(a)
		r.run(a + " send contend k")
		r.run(a + " execute contend k")
	}),
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

// other returns the other one of two nodes.
func (r *replay) other(name string) string {
	if name == "a" {
		return "b"
	}
	return "a"
}

// kinds are the calls of the core, by their names in the model.
var kinds = map[string]string{
	"acquire": "acquire", "demote": "demote", "demote-unserved": "look", "lock": "contend", "adopt": "adopt", "release": "release",
	"reclaim of its row": "reclaim", "reclaim of its ownership": "reclaim",
}

// late lets the arbiter execute a call that is under way. The answer arrives, or is lost.
func (r *replay) late(name, what string, answered bool) {
	kind, key := kinds[what], ""
	if kind == "contend" {
		key = "k"
	}
	n := r.node(name)
	if n.find(kind, key) == nil {
		n.late()
		return
	}
	n.execute(kind, key)
	switch {
	case answered:
		n.answered(kind, key)
	case kind != "demote": // which is sent until it is answered
		n.fail(kind, key)
	}
}
