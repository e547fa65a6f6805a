package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// A naming is the arbiter's word to a reader that nothing but an earlier request is in its way. No
// caller may have that request any more: the arbiter's queue has it until its process takes it out,
// or its session is known to be dead.
type naming struct {
	reader    string // its session
	ahead     fallback.Identity
	by        *start    // the process that has made that request
	since, at time.Time // when it was named first, and last
	gone      time.Time // when it was named first though its process had gone
}

// opens notes which process has a session.
func (h *judge) opens(session string, by *start) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tasks.sessions == nil {
		h.tasks.sessions = make(map[string]*start)
	}
	h.tasks.sessions[session] = by
}

// names notes the request that a reader waits behind, as the arbiter names it.
func (h *judge) names(name string, a fallback.LockAnswer, reader string) {
	if !a.Behind {
		return
	}
	key, _ := fallback.Split(name)
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tasks.named == nil {
		h.tasks.named = make(map[string][]*naming)
	}
	all := h.tasks.named[key]
	i := slices.IndexFunc(all, func(x *naming) bool { return x.reader == reader && x.ahead == a.Ahead.Identity })
	if i < 0 {
		i, all = len(all), append(all, &naming{reader: reader, ahead: a.Ahead.Identity, by: h.tasks.sessions[a.Ahead.Session], since: now})
		h.tasks.named[key] = all
	}
	x := all[i]
	x.at = now
	if x.gone.IsZero() && x.by != nil && (x.by.dead.Load() || x.by.leaving.Load()) {
		x.gone = now
	}
}

// remains reports whether the request may be there though no caller has it: its process has gone,
// and its session may not be known to be dead, as in a Grace of the table; the process did not
// reach the arbiter; or its release may be under way. One of a process that lives, and reaches the
// arbiter, is not to remain for long.
func (x *naming) remains(now time.Time, ttl time.Duration) bool {
	switch {
	case x.by == nil:
		return false
	case !x.gone.IsZero():
		return now.Sub(x.gone) < 3*ttl // the lease, Grace, and a look, by slow clocks
	case x.by.client.wasRough(x.since):
		return true
	}
	return now.Sub(x.since) < ttl*4/10
}

// behindRest reports whether the arbiter has told a session, not before the time, that a reader of
// it waits behind such a request.
func (h *judge) behindRest(key, session string, from time.Time) bool {
	return slices.ContainsFunc(h.tasks.named[key], func(x *naming) bool {
		return x.reader == session && !x.at.Before(from) && x.remains(time.Now(), h.ttl)
	})
}

// named returns the last namings of a key as text, with times counted from a time.
func (h *judge) named(key string, from time.Time) string {
	var text strings.Builder
	all := h.tasks.named[key]
	for _, x := range all[max(0, len(all)-5):] {
		fmt.Fprintf(&text, " %v of %v before a reader of %.4s from %v until %v", x.ahead, x.by, x.reader, x.since.Sub(from), x.at.Sub(from))
		if !x.gone.IsZero() {
			fmt.Fprintf(&text, ", its process gone by %v", x.gone.Sub(from))
		}
	}
	return "the arbiter named:" + text.String()
}
