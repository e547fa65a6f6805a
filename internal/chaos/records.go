//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A record is a line of the history as internal/history/judge reads it. The judge is a module of
// its own, because of its dependencies: its Record explains the fields.
type record struct {
	Process string `json:"process"`
	ID      uint64 `json:"id"`
	Client  int    `json:"client"`
	Op      string `json:"op"`
	Key     string `json:"key,omitempty"`
	Hold    uint64 `json:"hold,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	Permits int    `json:"permits,omitempty"`
	Of      int    `json:"of,omitempty"`
	Call    moment `json:"call"`
	Return  moment `json:"return"`
	Unknown bool   `json:"unknown,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// records puts events together to [record] values, and adds the faults of the processes.
func records(events []event, bands []*band, end moment) []record {
	var all []record
	hold := make(map[clientID]uint64)
	lives := make(map[string][]life)
	put := func(r record) {
		r.ID = uint64(len(all)) + 1
		all = append(all, r)
	}
	called := make(map[clientID]int) // the last call of a client
	for _, e := range events {
		at, process := moment(e.At), fmt.Sprintf("%s/%d", e.Node, e.Life)
		lives[e.Node] = live(lives[e.Node], process, e)
		id := clientID{e.Node, e.Life, e.Client}
		base := record{Process: process, Client: e.Client, Key: e.Key, Call: at, Return: at, Hold: hold[id]}
		switch e.Op {
		case opLock:
			base.Op, base.Unknown, base.Hold = lockOps[e.Mode], true, 0
			if base.Permits = e.N; e.N > 0 {
				base.Of = semaphorePermits
			}
			called[id] = len(all)
			put(base)
		case opDowngrade:
			base.Op, base.Unknown = "downgrade", true
			called[id] = len(all)
			put(base)
		case opKept:
			r := &all[called[id]]
			r.Return, r.Unknown, r.Refused = at, false, true
		case opGranted, opFailed:
			r := &all[called[id]]
			r.Return, r.Unknown, r.Fence, r.Refused = at, false, e.Fence, e.Op == opFailed
			hold[id] = r.ID
		case opHeld:
			base.Op, base.Call = "seen", moment(e.Valid)
			put(base)
		case opLost:
			base.Op = "lost"
			put(base)
		case opUnlock:
			base.Op, base.Unknown = "unlock", true
			called[id] = len(all)
			put(base)
		case opUnlocked:
			r := &all[called[id]]
			r.Return, r.Unknown, r.Refused = at, false, e.Text != ""
		}
	}
	for _, of := range lives {
		for i, l := range of {
			until := end
			if i+1 < len(of) {
				until = of[i+1].from
			}
			if !l.closed {
				put(record{Process: l.process, Op: "gone", Call: l.to, Return: until})
			}
			for _, b := range bands {
				// A process notices the lost time when its clocks are looked at next.
				if strings.Contains(b.Fault, "stopped") && slices.Contains(b.Hosts, l.node) && b.Begin < until && b.End > l.from {
					put(record{Process: l.process, Op: "paused", Call: b.Begin, Return: b.End.add(time.Second)})
				}
			}
		}
	}
	return all
}

// lockOps are the operations of a call of Lock in each mode.
var lockOps = map[mode]string{writing: "lock", reading: "rlock", counted: "acquire"}

// life is one start of a node's process.
type life struct {
	node, process string
	from, to      moment
	closed        bool // in order
}

func live(all []life, process string, e event) []life {
	at := moment(e.At)
	if len(all) == 0 || all[len(all)-1].process != process {
		all = append(all, life{node: e.Node, process: process, from: at})
	}
	l := &all[len(all)-1]
	l.to, l.closed = max(l.to, at), l.closed || e.Op == opClosed
	return all
}

func writeRecords(path string, all []record) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	out := json.NewEncoder(w)
	for _, r := range all {
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
