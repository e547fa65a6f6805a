package mysql

import (
	"fmt"
	"sync"
	"time"
)

// differs refuses a mark of processes with another Options.Durable. If each wrote its own, the
// namespaces would be in Grace again and again, or for good. A process that has seen its own mark
// takes it back, over one Grace: an earlier release writes its mark over any, even a command that
// looks once. A process at work would lose all its locks to it.
func (s *store) differs(server string) error {
	theirs, ours, do := "without Options.Durable", "sets it", "leave it out"
	if server == durable {
		theirs, ours, do = "with Options.Durable", "does not set it", "set it, too (holdfast: durable=true in the URL)"
	}
	return refusal("processes use the table %s %s, and this one %s: %s; to change it, stop all processes that use the table, and DELETE FROM %s WHERE name = '%s'",
		s.opts.Table, theirs, ours, do, s.opts.Table, markName)
}

// rivals are the marks of processes with another Options.Durable that this one, at work, has found
// in the place of its own.
type rivals struct {
	mu      sync.Mutex // protects the fields below
	version int64      // of the last one
	last    time.Time  // when it was found
	before  time.Time  // when another one was found before
}

// rivalsFor is for how long a rival counts. One that runs takes the mark with each look, which it
// has every few seconds.
const rivalsFor = time.Minute

func (r *rivals) saw(version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version != r.version {
		r.version, r.last, r.before = version, time.Now(), r.last
	}
}

// atWork reports whether marks were found again and again: an older command that looks leaves one.
func (r *rivals) atWork() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.before.IsZero() && time.Since(r.before) < rivalsFor
}

// adviseOnRivals tells of processes with another Options.Durable that run beside this one. To
// refuse them here would end all locks of this process, for an older command that looks again and
// again.
func (s *store) adviseOnRivals() []string {
	if !s.rivals.atWork() {
		return nil
	}
	ours, theirs := "without", "with"
	if s.opts.Durable {
		ours, theirs = theirs, ours
	}
	return []string{fmt.Sprintf("this process uses the table %s %s Options.Durable, and others run that use it %s: each takes the mark from the others, "+
		"and all namespaces of the table are in Grace meanwhile: stop the processes that have it wrong, an older holdfast, too", s.opts.Table, ours, theirs)}
}
