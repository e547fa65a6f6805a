// Package lately reads what the last records of a node's log tell, as its report has them.
package lately

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Recent is for how long a loss of a session, and a death, are worth a warning.
const Recent = 5 * time.Minute

// The beginnings of records of package coord.
const (
	lost  = "session lost, and all locks with it "
	dead  = "a node was silent for too long, and its session was ended "
	ended = "a node's process has ended, and its session was ended "
)

// LostSession returns how long ago the process has last lost its session. known is false if it has
// lost none, or its report does not have that record any more.
func LostSession(r *coord.NodeReport) (ago time.Duration, known bool) {
	for _, e := range r.Events { // the newest first
		if strings.HasPrefix(e.Text, lost) {
			return r.Clock.Sub(e.Time), true
		}
	}
	return 0, false
}

// A Death is that of a session which enough of its guardians have had buried.
type Death struct {
	Session string
	Node    string // NodeInfo.ID, or the session if that was not known
	Process string // its host and PID, as host:PID; empty: not known
	Ago     time.Duration
	Ended   bool // another process of its host has seen it end
}

// Deaths returns the deaths that a node has in its report, the newest first.
func Deaths(r *coord.NodeReport) (all []Death) {
	for _, e := range r.Events {
		d := Death{Ago: r.Clock.Sub(e.Time)}
		rest, ok := strings.CutPrefix(e.Text, dead)
		if !ok {
			rest, d.Ended = strings.CutPrefix(e.Text, ended)
		}
		if !ok && !d.Ended {
			continue
		}
		for _, field := range strings.Fields(rest) { // names have no blanks
			switch name, value, _ := strings.Cut(field, "="); name {
			case "session":
				d.Session = value
			case "node":
				d.Node = value
			case "host":
				d.Process = value
			}
		}
		if d.Node != "" {
			all = append(all, d)
		}
	}
	return all
}
