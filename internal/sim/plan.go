package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// kind is the kind of a fault.
type kind string

const (
	cut      kind = "cut"      // a link between two nodes
	alone    kind = "alone"    // a node from all others
	away     kind = "away"     // a node from the arbiter
	lossy    kind = "lossy"    // requests, answers and messages of a node
	slow     kind = "slow"     // the arbiter, for a node
	crash    kind = "crash"    // a process, as by SIGKILL
	leave    kind = "leave"    // a process, in an orderly way
	still    kind = "still"    // a process, as by SIGSTOP
	failover kind = "failover" // the arbiter, to an earlier state
	empty    kind = "empty"    // the arbiter, to nothing
	down     kind = "down"     // the arbiter
	reset    kind = "reset"    // the connections between two nodes
	shard    kind = "shard"    // a node from some partitions
	late     kind = "late"     // the network
	forge    kind = "forge"    // messages to all nodes, as by a stranger that may publish
	part     kind = "part"     // the server of some partitions, to an earlier state
	again    kind = "again"    // a process, and it starts again at the same address under the same name
	wall     kind = "wall"     // the wall clock of a process's host, alone
	tick     kind = "tick"     // the clocks of all servers, to the fault's Ahead
	ask      kind = "ask"      // an operator's questions
	breaks   kind = "break"    // an operator's Break of a key
	rotate   kind = "rotate"   // an operator's RotateSecret
	drain    kind = "drain"    // an operator's Drain
	rewind   kind = "rewind"   // the arbiter, to earlier data under the same identity; never drawn: see docs/simulation.md
)

// kinds are the pool that the plan is drawn from: a kind that is there twice comes twice as often.
var kinds = []kind{cut, cut, alone, away, away, lossy, slow, crash, leave, still, still, failover, empty, down, reset, shard, late, forge, part, part}

// Fault is something that is done to nodes, network or arbiter. Which of its fields count depends
// on its kind.
type Fault struct {
	At    time.Duration // since the beginning
	Kind  kind
	Node  int
	Other int           // node
	For   time.Duration // then it is mended
	Late  time.Duration // latency, at most; how old the state is that a failover goes to; how late requests are executed again, at most
	Share float64       // that gets lost
	Both  bool          // ways
	Some  [8]bool       // partitions, or nodes
	Reads int           // of the clock until the node stands still; 0: at once
	Ahead time.Duration // the clock of the server that takes over, of that of the world; by how much a wall clock steps
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s: ", f.Kind)
	switch f.Kind {
	case cut:
		s += fmt.Sprintf("node %d and %d for %v, both ways %v", f.Node, f.Other, f.For, f.Both)
	case alone:
		s += fmt.Sprintf("node %d is cut from all others for %v", f.Node, f.For)
	case away:
		s += fmt.Sprintf("node %d does not reach the arbiter for %v", f.Node, f.For)
	case lossy:
		s += fmt.Sprintf("node %d loses %.0f%% at the arbiter for %v, and as much is executed again up to %v later", f.Node, 100*f.Share, f.For, f.Late)
	case slow:
		s += fmt.Sprintf("node %d waits up to %v for the arbiter for %v", f.Node, f.Late, f.For)
	case crash, leave:
		s += fmt.Sprintf("node %d, and starts again after %v", f.Node, f.For)
	case tick:
		s += fmt.Sprintf("the servers' clocks step: they are %v ahead now", f.Ahead)
	case ask:
		s += fmt.Sprintf("node %d is asked, also about node %d", f.Node, f.Other)
	case breaks:
		s += fmt.Sprintf("a key is broken at node %d", f.Node)
	case rotate:
		s += fmt.Sprintf("the secret is rotated at node %d", f.Node)
	case drain:
		s += fmt.Sprintf("node %d is drained, or asks node %d for it: %v; it ends after %v: %v", f.Node, f.Other, f.Both, f.For, f.Some[0])
	case wall:
		s += fmt.Sprintf("the wall clock of node %d by %v", f.Node, f.Ahead)
		if f.Both {
			s += fmt.Sprintf(", and back after %v", f.For)
		}
	case again:
		s += fmt.Sprintf("node %d, and starts again at once; closed %v, connections are reset %v", f.Node, f.Both, f.Some[0])
	case still:
		s += fmt.Sprintf("node %d stands still for %v", f.Node, f.For)
		if f.Reads > 0 {
			s += fmt.Sprintf(" when it has read its clock %d times more", f.Reads)
		}
	case failover:
		s += fmt.Sprintf("the arbiter will go back to what it is now in %v; the deposed one still answers some%s%s", f.Late, f.calls(), f.ahead())
	case part:
		s += fmt.Sprintf("the server of some partitions will go back to what it is now in %v; the deposed one still answers some%s%s", f.Late, f.calls(), f.ahead())
	case rewind:
		s += fmt.Sprintf("the arbiter will have the data of now in %v, under the same identity", f.Late)
	case empty:
		s += "the arbiter has lost everything" + f.ahead()
	case down:
		s += fmt.Sprintf("the arbiter for %v", f.For)
	case reset:
		s += fmt.Sprintf("connections between node %d and %d", f.Node, f.Other)
	case shard:
		s += fmt.Sprintf("node %d does not reach partitions %v for %v", f.Node, f.some(), f.For)
	case forge:
		s += fmt.Sprintf("all nodes are told for %v that holds are released and partitions are wanted", f.For)
	case late:
		s += fmt.Sprintf("the network by up to %v for %v", f.Late, f.For)
	}
	return s
}

// calls returns " calls" if the deposed server gets only some calls of misled nodes, else nothing:
// the new one gets the others.
func (f Fault) calls() string {
	if f.Both {
		return " calls"
	}
	return ""
}

// ahead returns a failover's text about the new server's clock, empty if that is not ahead.
func (f Fault) ahead() string {
	if f.Ahead == 0 {
		return ""
	}
	return fmt.Sprintf("; the new server's clock is %v ahead", f.Ahead)
}

func (f Fault) some() (list []int) {
	for i, x := range f.Some[:partitions] {
		if x {
			list = append(list, i)
		}
	}
	return list
}

// plan draws the faults of a run. It depends on the seed only, not on the effects of the faults.
func (cfg Config) plan() []Fault {
	all := cfg.drawn()
	for i, x := range extra {
		all = append(all, cfg.more(rand.New(rand.NewPCG(cfg.Seed, 5+uint64(i))), x)...)
	}
	all = cfg.differ(all)
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

func (cfg Config) drawn() (all []Fault) {
	r := rand.New(rand.NewPCG(cfg.Seed, 0))
	between := func(a, b time.Duration) time.Duration {
		return cfg.t(a) + time.Duration(r.Int64N(int64(cfg.t(b-a))))
	}
	end := time.Duration(cfg.Length) * cfg.TTL
	for at := time.Duration(0); ; {
		if at += between(100*time.Millisecond, 12*time.Second); at >= end {
			return all
		}
		f := Fault{
			At: at, Kind: kinds[r.IntN(len(kinds))], Node: r.IntN(cfg.Nodes), For: between(500*time.Millisecond, 25*time.Second),
			Share: r.Float64() / 3, Both: r.IntN(2) == 0,
		}
		f.Other = (f.Node + 1 + r.IntN(cfg.Nodes-1)) % cfg.Nodes
		for i := range f.Some {
			f.Some[i] = r.IntN(3) == 0
		}
		switch f.Kind {
		case lossy:
			f.Late = between(100*time.Millisecond, 10*time.Second)
		case slow:
			f.Late = between(20*time.Millisecond, 3*time.Second)
		case failover, part:
			f.Late = between(time.Millisecond, 3*time.Second)
		case late:
			f.Late = between(5*time.Millisecond, 400*time.Millisecond)
		case still:
			if r.IntN(2) == 0 {
				f.Reads = 1 + r.IntN(40)
			}
			if r.IntN(3) == 0 {
				f.For /= 20
			}
		}
		if f.Kind == empty && r.IntN(3) > 0 || f.Kind == still && !wire.Clocks {
			continue
		}
		all = append(all, f)
	}
}
