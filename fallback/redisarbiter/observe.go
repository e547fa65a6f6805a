package redisarbiter

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// An observer judges by its own clock the times that the server's clock tells elsewhere
// (Options.ObserverClock). A session's entry has a beat in the place of an expiry, which each
// renewal replaces. A Grace has a name in the place of its end. For as long as an observer sees the
// same one, it counts, from its first look at it. Its conclusion takes effect in a script that
// compares it with the present state. Rules and guards are in internal/model (Observed,
// ObservedGrace).
//
// A nil observer is that of a namespace in which the server's clock counts.
type observer struct {
	began time.Time

	mu      sync.Mutex // protects the fields below
	members map[string]sighting
	graces  map[string]sighting // by the Redis key of the record in Grace
	mine    map[string]lease    // sessions that were renewed here
	last    int64               // beat that was given to a renewal
}

// A sighting is a beat, since when it was seen by the observer's clock, and how long it counts. All
// are milliseconds.
type sighting struct{ beat, since, ttl int64 }

// A lease is the last answer to a session: its beat, and when it expires by the observer's clock.
type lease struct{ beat, expiry int64 }

const (
	sightingsAtOnce = 256 // entries that a renewal's answer tells of
	sightingsKept   = 1000
	renewLen        = 11 // of a renewal's answer, without entries
	listLen         = 2  // of a list's answer, without sessions
)

func newObserver() *observer {
	return &observer{began: time.Now(), members: make(map[string]sighting), graces: make(map[string]sighting), mine: make(map[string]lease)}
}

// now is the observer's clock. It is set by the wall clock once, and goes on by the monotonic one.
func (o *observer) now() int64 {
	if o == nil {
		return 0
	}
	return o.began.UnixMilli() + time.Since(o.began).Milliseconds()
}

// renews returns the beat of a renewal that is about to be sent, and the last answer to the
// session, for the script to compare: its beat; 1 if this process does not know it; 0 if it has
// expired. seen is the expiry that the caller was told.
func (o *observer) renews(session string, seen int64) (beat, told int64) {
	if o == nil {
		return 0, seen
	}
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last+1, 1000*now)
	if seen > now {
		told = 1
		if x, ok := o.mine[session]; ok && now < x.expiry {
			told = x.beat
		}
	}
	return o.last, told
}

// renewed notes the answer to a renewal.
func (o *observer) renewed(session string, x lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x.beat > o.mine[session].beat {
		o.mine[session] = x
	}
	if now := o.now(); len(o.mine) > sightingsKept {
		maps.DeleteFunc(o.mine, func(_ string, x lease) bool { return x.expiry <= now })
	}
}

// see notes a look at an entry, and returns when the session expires by it. The caller has o.mu.
func (o *observer) see(id string, beat, ttl int64) (expiry int64) {
	x, ok := o.members[id]
	if !ok || x.beat != beat || x.ttl != ttl {
		x = sighting{beat, o.now(), ttl}
		o.members[id] = x
	}
	return x.since + ttl
}

// alive returns for how long a session is not declared dead after a look at it.
func (o *observer) alive(id string, beat, ttl int64) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Duration(max(1, o.see(id, beat, ttl)-o.now())) * time.Millisecond
}

// left returns the time left of a session with that time to live. The session may not have been
// seen.
func (o *observer) left(id string, ttl time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x, ok := o.members[id]; ok {
		ttl = time.Duration(max(1, x.since+x.ttl-o.now())) * time.Millisecond
	}
	return ttl
}

// overdue returns the beat of a session that was seen for as long as its time to live; 0: it was
// not.
func (o *observer) overdue(id string) int64 {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if x, ok := o.members[id]; ok && x.ttl > 0 && o.now() >= x.since+x.ttl {
		return x.beat
	}
	return 0
}

// grace returns the time left of the Grace of that name, in milliseconds; 0 or less: it is over.
// That of a lost table has not begun.
func (o *observer) grace(key string, name, length int64) int64 {
	if name < 0 {
		return length
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x, ok := o.graces[key]
	if !ok || x.beat != name {
		x = sighting{beat: name, since: o.now()}
		o.graces[key] = x
	}
	return x.since + length - o.now()
}

// graceOf is grace of a record, in a namespace without a clock.
func (n *redisSpace) graceOf(key string) func(name int64) int64 {
	if n.observer == nil {
		return nil
	}
	return func(name int64) int64 { return n.observer.grace(key, name, n.Grace().Milliseconds()) }
}

// list reads the sessions in the answer of list.lua that have not expired, in Grace all that were
// not declared dead.
func (o *observer) list(r *reader) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]string, len(r.v)/4)
	inGrace := r.num(1) != 0
	for i := listLen; i+3 < len(r.v); i += 4 {
		id, ttl := r.str(i), r.num(i+3)
		if expiry := o.see(id, r.num(i+2), ttl); ttl > 0 && (inGrace || o.now() < expiry) {
			all[id] = r.str(i + 1)
		}
	}
	return all
}

// look reads the entries that a renewal was told of, and returns those to be swept: sessions, each
// with its beat. sessions is how many there are.
func (o *observer) look(entries []any, sessions int, grace int64) (swept []any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.members) > 4*sessions+sightingsKept {
		clear(o.members) // and begin anew
	}
	r := reader{v: entries}
	now := o.now()
	for i := 0; i+1 < len(entries); i += 2 {
		id, ok := strings.CutPrefix(r.str(i), "s:")
		if !ok {
			continue
		}
		first, rest, _ := strings.Cut(r.str(i+1), " ")
		life := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		beat, err := strconv.ParseInt(first, 10, 64)
		ttl, err2 := strconv.ParseInt(life, 10, 64)
		if err != nil || err2 != nil {
			continue
		}
		expiry := o.see(id, beat, ttl)
		if ttl == 0 {
			expiry += grace
		}
		if now >= expiry && len(swept) < 2*sightingsAtOnce {
			swept = append(swept, id, beat)
		}
	}
	return swept
}

// watch looks at the entries that a renewal was told of, and declares those dead that have stood
// still.
func (n *redisSpace) watch(ctx context.Context, entries []any, a fallback.Renewal) {
	swept := n.observer.look(entries, a.Sessions, n.Grace().Milliseconds())
	if len(swept) > 0 && a.Grace == 0 {
		_, _ = n.runOnce(ctx, call{scriptSweep, []string{n.sessions()}, append([]any{0, 0}, swept...)}) // the next renewal sees them, too
	}
}

// graceAt is the index of the time left of Grace in a script's answer; 0: nowhere.
func (s script) graceAt() int {
	switch s {
	case scriptLock, scriptVerify, scriptAcquire, scriptDemote, scriptWitness, scriptRestore, scriptOwner:
		return 3
	case scriptRenew:
		return 2
	case scriptDead, scriptBury, scriptList:
		return 1
	}
	return 0
}

// settled reads the answer of a script that was executed by do. Where it says that Grace is over,
// Grace is ended, and the script executed again.
func (n *redisSpace) settled(ctx context.Context, c call, v any, do func(context.Context, call) (any, error)) (any, error) {
	over, end := n.counted(c, v)
	if !over {
		return v, nil
	}
	if _, err := n.runOnce(ctx, end); err != nil {
		return v, nil // it says that Grace ends in a moment
	}
	v, err := do(ctx, c)
	n.counted(c, v)
	return v, err
}

// settleAll is settled of scripts that were executed in one go.
func (n *redisSpace) settleAll(ctx context.Context, batch []call, all []outcome) []outcome {
	if n.observer == nil {
		return all
	}
	var again, ends []call
	var of []int
	for i, o := range all {
		if over, end := n.counted(batch[i], o.v); o.err == nil && over {
			again, ends, of = append(again, batch[i]), append(ends, end), append(of, i)
		}
	}
	if len(again) == 0 {
		return all
	}
	n.runAllOnce(ctx, ends)
	for i, o := range n.runAllOnce(ctx, again) {
		n.counted(again[i], o.v)
		all[of[i]] = o
	}
	return all
}

// counted puts the time left of Grace, a millisecond at least, in the place of its name in an
// answer. over says that it was seen for long enough; end is the call that ends it then.
func (n *redisSpace) counted(c call, v any) (over bool, end call) {
	answer, at := list(v), c.script.graceAt()
	if at == 0 || at >= len(answer) {
		return false, call{}
	}
	name, ok := answer[at].(int64)
	if !ok || name == 0 || at == 1 && answer[0] != "in grace" {
		return false, call{}
	}
	length := n.Grace().Milliseconds()
	left := n.observer.grace(c.keys[0], name, length)
	answer[at] = max(1, left)
	end = call{scriptOver, c.keys[:1], []any{"", name, length}}
	if at != 3 {
		end = call{scriptSweep, c.keys[:1], []any{name, length}}
	}
	return left <= 0, end
}
