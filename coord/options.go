package coord

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [New]. The zero value of each field means its default, and a nil
// *Options means all defaults.
type Options struct {
	// Namespace separates the locks of one application from those of others on the same arbiter.
	// Default "holdfast". All processes that are to exclude each other use the same namespace, with
	// the same Partitions.
	Namespace string

	// Name names this process in logs, at the arbiter, and in [NodeInfo]. It need not be unique:
	// NodeInfo.ID is. In a cluster a restarted process gets its share of the keys back, if its Name
	// is as before and no other process has it. At most 100 printable ASCII characters, without
	// spaces. Default: the host's name, which in Kubernetes is the pod's, and stays the same for a
	// replica of a StatefulSet.
	Name string

	// Partitions is the number of shares that the keys are divided into, fixed when the namespace
	// is first used: with another number New fails with [fallback.ErrMismatch]. docs/operations.md
	// says how to change it. Default 1021, at most 65,536. In a cluster each is taken and given by
	// calls of its own: on a server that is slow at scripts, such as one that is embedded in a test
	// (miniredis: a millisecond or more for each), fewer make a faster start; 31 will do.
	Partitions int

	// SessionTTL (T) is for how long the arbiter keeps a process's locks after its last renewal:
	// the locks of a crashed process are free after that, or in a cluster after Cluster.Takeover.
	// Default 10 s; at least 2 s is sensible. A process that stands still, or is cut off from the
	// arbiter, keeps its locks for at least this time: SessionTTL - Margin - 1.05 RenewEvery
	// (6.3 s). In a cluster it loses those of other nodes' keys half a second earlier. It loses all
	// a Margin earlier (5.3 s) if it finds another server then, and a CallTimeout earlier where
	// packets vanish. In a cluster one that stands still loses them after 0.57 of Cluster.Takeover
	// (1.7 s) at the earliest. At least 1 ms, like the four times that follow, and at most a year.
	// Processes of a namespace may have different ones: change it by a rolling deployment;
	// docs/operations.md describes the time in between.
	SessionTTL time.Duration

	// RenewEvery (R) is how often the session is renewed and the locks held are verified: one
	// renewal, one read per partition with locks held at the arbiter, and one per 256 partitions
	// owned. Default a quarter of SessionTTL, at most 2.5 s. With redisarbiter.Options.AllReplicas
	// a session is renewed every half of Margin at least, or of half a second if that is more.
	RenewEvery time.Duration

	// RetryEvery is how often a call that failed is tried again. Default a fifth of RenewEvery. A
	// renewal is tried again after a twentieth of RenewEvery, if that is sooner.
	// RenewEvery + 3 RetryEvery must be less than SessionTTL - 2 Margin.
	RetryEvery time.Duration

	// CallTimeout is for how long one call of the arbiter may take. Default a tenth of SessionTTL.
	// A call that keeps this process's locks alive, such as a renewal, is made again after that.
	// The answer to the first call counts for three CallTimeouts more: on a busy machine it may
	// still come. If the partitions are on several servers (Redis Cluster), only a renewal's does.
	CallTimeout time.Duration

	// Margin (M) is how much earlier than the arbiter a process considers its locks expired. It
	// must cover the drift between the clocks of the two within SessionTTL, and differences between
	// the clocks of the arbiter's servers. Default a tenth of SessionTTL; a third of it at most.
	Margin time.Duration

	// Grace (Q) is for how long nothing new is granted after the arbiter failed over or lost its
	// data, while holders of locks reclaim them. It must be more than SessionTTL + Margin, of every
	// process in the namespace, plus the time that a deposed primary may still answer. That time
	// must not be longer than Margin. Grace is at least 2 s. Default 1.2 SessionTTL; 12 s.
	// Processes of a namespace may have different ones: all use the longest that one of them needs.
	// New waits until the others use this one. Change it by a rolling deployment:
	// docs/operations.md.
	Grace time.Duration

	// Handoff is for how long a process may keep a key that it is using.
	Handoff Handoff

	// Cluster makes the processes share out the partitions and lock from memory. Nil: every key is
	// locked at the arbiter.
	Cluster *Cluster

	// StartUnavailable makes New return at once, without waiting for the arbiter. Locks are granted
	// as soon as the arbiter can be reached. An error that New would have returned is logged.
	// Default: New waits for the arbiter.
	StartUnavailable bool

	// LongWait is how long a caller waits for a key before a record says so, once per wait, with
	// the key and its holder. Waits are looked at four times in that time, so the record may be
	// late by half of it. Default 10 s; at least 1 ms; negative: no such records.
	LongWait time.Duration

	// LongHold is the same for how long a lock is held. Default 1 min; at least 1 ms; negative: no
	// such records.
	LongHold time.Duration

	// DeadlockAfter is how long a caller that has locks waits before the processes look for a
	// circle of callers that wait for each other. They look again a quarter of it later: if the
	// circle is still there, the youngest of its callers gets a [*DeadlockError]. A good value is
	// one second; at least 1 ms. Default 0: no process looks; negative: the same.
	//
	// A caller has the locks that the context of its call carries: the one that Do gave, that of
	// [Lock.Context], [ReadLock.Context], or of [WithLocker]; within LockAll, and its variants,
	// those that it has got so far; and a flight of [Share] those of the callers that wait for it.
	// A caller must not give one of them back before its wait is over, or a circle may be told that
	// was none. Permits of a semaphore are left out: a circle in which a caller waits for permits
	// is not found.
	//
	// Other processes are asked by the streams of the cluster. Without one only circles within the
	// process are found, and none with a process that does not look.
	//
	// A reader of a key that no node owns may be told of a circle that would have ended by itself:
	// it waits behind a writer's request as long as the arbiter has that, which is for SessionTTL,
	// and Grace, if its process was killed.
	DeadlockAfter time.Duration

	// LogCallers makes the records of long waits and long holds tell the place in the program that
	// called. Each Lock costs several times as much then. Default: no.
	LogCallers bool

	// Unbreakable makes this process refuse [Coordinator.Break] of locks of its own, and
	// [Coordinator.DrainNode]. Default: any process of the namespace may do both.
	Unbreakable bool

	// Observe makes a coordinator that only looks: for commands, pages and exporters. It takes no
	// locks ([ErrObserver]), has no session, is no node of the cluster, and listens on no port.
	// Inspect, Held, Top, Nodes, Processes, Partitions, Report, Break and DrainNode work. It needs
	// to write to the arbiter: it publishes a key for some seconds, so that nodes can tell it from
	// strangers. Partitions and Grace are the namespace's own where the arbiter is a
	// [fallback.Describer]; the namespace has to exist then. Of Cluster only PeerTLS and PeerKeys
	// count, which may be nil. New waits for the streams to the nodes for a CallTimeout at most. A
	// node answers 16 observers at a time. Default: no.
	Observe bool

	// Logger gets the records that docs/logs.md lists: events of interest to an operator, such as a
	// session or lock lost, or the arbiter unreachable. All have the attribute process, which is
	// Name. Nil: silent. A client library has a logger of its own: see docs/redis.md for that of
	// go-redis.
	Logger *slog.Logger

	// Trace is called at events of single locks. Nil: none.
	Trace *Trace
}

// Handoff limits for how long a process keeps a key. The zero value means the defaults.
type Handoff struct {
	// MaxTurns is how many locks of a key may begin in this process after another process has asked
	// for it, the lock in force included. A caller of this process that waits to write counts as
	// another process where readers of it have the key. So does one that waits to read where a
	// writer has it. Default, and negative: not limited by number.
	MaxTurns int

	// MaxHold is for how long locks of a key may begin in this process after another process has
	// asked for the key, as for MaxTurns. Default 5 ms; at least 1 µs. Negative: not limited by
	// time.
	MaxHold time.Duration

	// Linger is for how long this process keeps a key that is not locked, while no other process
	// asks for the key. Default 5 ms; at least 1 µs. Negative: the key is given back at once. An
	// owner keeps the last six keys of each of its partitions, whatever the time, if this is not
	// negative.
	Linger time.Duration
}

// limits returns filled options for the queues, with 0 in the place of each negative number.
func (h Handoff) limits() handoff.Limits {
	return handoff.Limits{MaxTurns: max(h.MaxTurns, 0), MaxHold: max(h.MaxHold, 0), Linger: max(h.Linger, 0)}
}

// filled returns a copy with the defaults filled in.
func (o *Options) filled() Options {
	f := Options{}
	if o != nil {
		f = *o
	}
	setDefault(&f.Namespace, "holdfast")
	setDefault(&f.Partitions, 1021)
	setDefault(&f.SessionTTL, 10*time.Second)
	f.SessionTTL = wholeMillis(f.SessionTTL)
	setDefault(&f.RenewEvery, min(f.SessionTTL/4, maxRenewEvery))
	setDefault(&f.RetryEvery, f.RenewEvery/5)
	setDefault(&f.CallTimeout, f.SessionTTL/10)
	setDefault(&f.Margin, f.SessionTTL/10)
	setDefault(&f.Grace, f.SessionTTL*6/5)
	f.Grace = wholeMillis(f.Grace)
	setDefault(&f.Handoff.MaxHold, 5*time.Millisecond)
	setDefault(&f.Handoff.Linger, 5*time.Millisecond)
	setDefault(&f.Name, hostName())
	setDefault(&f.LongWait, 10*time.Second)
	setDefault(&f.LongHold, time.Minute)
	if f.Observe && f.Cluster == nil {
		f.Cluster = new(Cluster)
	}
	f.Cluster = f.Cluster.filled(f.SessionTTL)
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	f.Logger = f.Logger.With("process", f.Name)
	if f.Trace == nil {
		f.Trace = &Trace{}
	}
	return f
}

// maxRenewEvery is the longest default of RenewEvery: with a longer SessionTTL the arbiter may be
// away for longer, and the time since the last renewal does not count against that.
const maxRenewEvery = 5 * time.Second / 2

// maxSessionTTL is the longest SessionTTL. The other times that a session depends on are bounded by
// it, or twice that, so that no sum of them overflows.
const maxSessionTTL = 365 * 24 * time.Hour

// maxProcessName is the length of the longest Name: with a random text after it it has to fit into
// a node's name.
const maxProcessName = 100

// hostName returns the host's name as a Name, with a dash for each character that a Name cannot
// have.
var hostName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	name = strings.Map(func(r rune) rune {
		if nameless(r) {
			return '-'
		}
		return r
	}, name)
	return name[:min(len(name), maxProcessName)]
})

// nameless reports whether a Name cannot have the character.
func nameless(r rune) bool { return r <= ' ' || r > '~' }

// wholeMillis returns d as the arbiter has it, in milliseconds, and not less. A value that is too
// short or too long stays.
func wholeMillis(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Millisecond); whole < d && whole > 0 && d <= 2*maxSessionTTL {
		return whole + time.Millisecond
	}
	return d
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// lease is how long a process may rely on an acknowledgement of the arbiter, from the moment it
// asked (rule 1).
func (o *Options) lease() time.Duration { return o.SessionTTL - o.Margin }

// validate checks filled options against each other. Each error says which inequality does not
// hold, and why it has to.
func (o *Options) validate() error {
	for _, d := range []struct {
		name        string
		value, most time.Duration
	}{
		{"SessionTTL", o.SessionTTL, maxSessionTTL}, // first: defaults of the others derive from it
		{"RenewEvery", o.RenewEvery, maxSessionTTL}, {"RetryEvery", o.RetryEvery, maxSessionTTL},
		{"CallTimeout", o.CallTimeout, maxSessionTTL}, {"Margin", o.Margin, maxSessionTTL}, {"Grace", o.Grace, 2 * maxSessionTTL},
	} {
		if d.value < time.Millisecond || d.value > d.most {
			return fmt.Errorf("coord: Options.%s is %v, must be at least 1ms and at most %v", d.name, d.value, d.most)
		}
	}
	for _, d := range []struct {
		name         string
		value, least time.Duration
		usual        string
	}{
		{"LongWait", o.LongWait, time.Millisecond, "10 * time.Second"}, {"LongHold", o.LongHold, time.Millisecond, "time.Minute"},
		{"DeadlockAfter", o.DeadlockAfter, time.Millisecond, "2 * time.Second"},
		{"Handoff.MaxHold", o.Handoff.MaxHold, time.Microsecond, "5 * time.Millisecond"},
		{"Handoff.Linger", o.Handoff.Linger, time.Microsecond, "5 * time.Millisecond"},
	} {
		if err := unit.Check("coord: Options."+d.name, d.value, d.least, d.usual); err != nil {
			return err
		}
	}
	if len(o.Name) > maxProcessName || strings.ContainsFunc(o.Name, nameless) {
		return fmt.Errorf("coord: Options.Name %s must be at most %d printable ASCII characters, without spaces", quoted(o.Name), maxProcessName)
	}
	if o.Partitions < 0 || o.Partitions > 65536 {
		return fmt.Errorf("coord: Options.Partitions is %d, must be 1 to 65,536", o.Partitions)
	}
	if need := o.RenewEvery + 3*o.RetryEvery; need >= o.lease() {
		return fmt.Errorf("coord: Options.RenewEvery %v + 3 * RetryEvery %v is %v, must be less than SessionTTL %v - Margin %v: "+
			"a session must survive three failed renewals", o.RenewEvery, o.RetryEvery, need, o.SessionTTL, o.Margin)
	}
	if o.CallTimeout >= o.lease()-o.RenewEvery {
		return fmt.Errorf("coord: Options.CallTimeout %v must be less than SessionTTL %v - Margin %v - RenewEvery %v: "+
			"a call that takes longer cannot be tried again in time", o.CallTimeout, o.SessionTTL, o.Margin, o.RenewEvery)
	}
	validate := o.Cluster.validate
	if o.Observe {
		validate = o.Cluster.validateObserver
	}
	if err := validate(o); err != nil {
		return err
	}
	if o.Grace < 2*time.Second {
		return fmt.Errorf("coord: Options.Grace is %v, must be at least 2s: tokens rise over lost data because epochs count seconds", o.Grace)
	}
	if o.Grace <= o.SessionTTL+o.Margin {
		return fmt.Errorf("coord: Options.Grace %v must be more than SessionTTL %v + Margin %v: "+
			"locks granted before a failover must have lapsed when it ends", o.Grace, o.SessionTTL, o.Margin)
	}
	// Delta is Margin where the namespace's Grace is long enough, which another process may raise.
	if need := o.RenewEvery + 3*o.RetryEvery; need >= o.lease()-o.Margin {
		return fmt.Errorf("coord: Options.RenewEvery %v + 3 * RetryEvery %v is %v, must be less than SessionTTL %v - Margin %v - Margin, for which a server may "+
			"answer after another one has taken over: a session must survive a failover after three failed renewals",
			o.RenewEvery, o.RetryEvery, need, o.SessionTTL, o.Margin)
	}
	if o.Margin > o.SessionTTL/3 {
		return fmt.Errorf("coord: Options.Margin %v must be at most a third of SessionTTL %v: "+
			"a session must be longer than a server may answer after another one has taken over", o.Margin, o.SessionTTL)
	}
	return nil
}

func (o *Options) settings() fallback.Settings {
	return fallback.Settings{Namespace: o.Namespace, Partitions: o.Partitions, Grace: o.Grace, Lease: o.SessionTTL + o.Margin}
}
