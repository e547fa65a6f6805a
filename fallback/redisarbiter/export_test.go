package redisarbiter

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Unexported names for the tests.
var (
	AdviceOn      = adviceOn
	TimeoutAdvice = timeoutAdvice
	CheckInfo     = checkInfo
	ParseInfo     = parseInfo
	ParseMessage  = parseMessage
	Refused       = refused
	ErrReplica    = errReplica
	ErrDenied     = errDenied
	CompareClocks = compareClocks
)

// PlainFrom is from how many records on they are read by plain commands.
const PlainFrom = plainFrom

// EpochZero is the date from where epochs count seconds.
var EpochZero = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// Reformat formats a namespace on a Redis that was flushed, as Attach does with ColdStart.
func Reformat(ctx context.Context, n fallback.Namespace) error {
	n.(*redisSpace).secrets.Store(nil)
	if err := ResetGrace(ctx, n); err != nil {
		return err
	}
	return n.(*redisSpace).formatAs(ctx, "cold")
}

// ResetGrace makes a process use the Grace that it needs.
func ResetGrace(ctx context.Context, n fallback.Namespace) error {
	x := n.(*redisSpace)
	x.secrets.Store(nil)
	x.lengths.before = nil
	needs := time.Duration(x.lengths.agreement.Needs) * time.Millisecond
	if x.Grace() == needs {
		x.lengths.agreement.Use(needs.Milliseconds())
		return nil
	}
	return x.switchTo(ctx, needs)
}

// Adopt is n.Restore of one hold, granted at its token's epoch.
func Adopt(ctx context.Context, n fallback.HoldStore, p uint32, key string, row fallback.Row) (fallback.Verdict, error) {
	return restore(ctx, n, p, fallback.Claim{Key: key, Row: row, Owned: row.Token.Epoch()})
}

// ReclaimRow is n.Restore of one hold that rests on its row.
func ReclaimRow(ctx context.Context, n fallback.HoldStore, p uint32, key string, row fallback.Row) (fallback.Verdict, error) {
	return restore(ctx, n, p, fallback.Claim{Key: key, Row: row})
}

func restore(ctx context.Context, n fallback.HoldStore, p uint32, c fallback.Claim) (fallback.Verdict, error) {
	r := n.Restore(ctx, []fallback.Claims{{Partition: p, Holds: []fallback.Claim{c}}})[0]
	if r.Err != nil {
		return 0, r.Err
	}
	return r.Verdicts[0], nil
}

// ReclaimOwner is n.ReclaimOwners of one partition.
func ReclaimOwner(ctx context.Context, n fallback.HoldStore, p uint32, me string, epoch uint32) (fallback.Verdict, error) {
	r := n.ReclaimOwners(ctx, me, []fallback.Ownership{{Partition: p, Epoch: epoch}})[0]
	return r.Verdict, r.Err
}

// Verify is n.Verify of callers that want one error.
func Verify(ctx context.Context, n fallback.Namespace, reads []fallback.Read) ([]fallback.State, error) {
	states := n.Verify(ctx, reads)
	for _, s := range states {
		if s.Err != nil {
			return nil, s.Err
		}
	}
	return states, nil
}

// LuaFile is the text of a script's file.
func LuaFile(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// LuaFiles are the names of all.
func LuaFiles() (names []string) {
	all := make(map[string]bool)
	for _, s := range sources {
		for _, name := range s {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// ReplaceLua replaces the text of a Lua file for each Attach from now on, until undo is called.
func ReplaceLua(name, text string) (undo func()) {
	readLua = func(path string) ([]byte, error) {
		if path == "lua/"+name+".lua" {
			return []byte(text), nil
		}
		return lua.ReadFile(path)
	}
	return func() { readLua = lua.ReadFile }
}

// HasObserver reports whether the server's clock does not count.
func HasObserver(n fallback.Namespace) bool { return n.(*redisSpace).observer != nil }

// AgeGrace makes a process have seen a Grace for longer than any lasts, if it has seen it.
func AgeGrace(n fallback.Namespace, key string) {
	o := n.(*redisSpace).observer
	o.mu.Lock()
	defer o.mu.Unlock()
	if x, ok := o.graces[key]; ok {
		x.since = 0
		o.graces[key] = x
	}
}

// AgeSession makes a process have seen a beat of a session for longer than any lives.
func AgeSession(n fallback.Namespace, id string, beat, ttl int64) {
	o := n.(*redisSpace).observer
	o.mu.Lock()
	defer o.mu.Unlock()
	o.members[id] = sighting{beat, 0, ttl}
}

// Told makes a process have been told a beat of a session. 0: it knows nothing of the session.
func Told(n fallback.Namespace, id string, beat int64) {
	o := n.(*redisSpace).observer
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mine, id)
	if beat != 0 {
		o.mine[id] = lease{beat, 1 << 62}
	}
}

// EndGrace tells of a partition's Grace, or of that of the sessions if p is negative, that a
// process has seen for long enough; and of beats.
func EndGrace(ctx context.Context, n fallback.Namespace, p int, name int64, length time.Duration, beats ...any) error {
	x := n.(*redisSpace)
	c := call{scriptSweep, []string{x.sessions()}, append([]any{name, length.Milliseconds()}, beats...)}
	if p >= 0 {
		c = call{scriptOver, []string{x.part(uint32(p))}, []any{"", name, length.Milliseconds()}}
	}
	_, err := x.runOnce(ctx, c)
	return err
}

// LateRenewal is a renewal with a beat, and with the one that the process was told. entries is of
// how many fields and texts the answer tells.
func LateRenewal(ctx context.Context, n fallback.Namespace, id string, beat, told int64) (answer string, entries int, err error) {
	x := n.(*redisSpace)
	grace := x.Grace().Milliseconds()
	args := []any{id, 3600000, "renew", "", "", told, grace, grace, beat, sightingsAtOnce, "", "", "", no}
	v, err := x.runOnce(ctx, call{scriptRenew, []string{x.sessions()}, args})
	all := list(v)
	return reader{v: all}.str(0), len(all) - renewLen, err
}

// SightingsAtOnce is of how many entries the answer to a renewal tells.
const SightingsAtOnce = sightingsAtOnce
