package fallback

import (
	"context"
	"time"
)

// An Arbiter is a store that can be asked for the truth about a namespace.
//
// An Arbiter must be safe for concurrent use, and one Arbiter may serve several namespaces.
type Arbiter interface {
	// Attach checks that the store can be trusted, formats the namespace if it is new, and returns
	// it.
	//
	// It blocks for some round trips, until ctx ends at most. Errors: [ErrRefused] if the server is
	// not fit to be an arbiter or refuses this process; the text names the setting. [ErrMismatch]
	// if the namespace was formatted with other settings. Any other error means that the store
	// could not be reached, and Attach may be called again.
	Attach(ctx context.Context, s Settings) (Namespace, error)
}

// Settings must be the same for every process that uses a namespace, except for Lease and Observes,
// and for Grace as Lease says. Attach checks that they are.
type Settings struct {
	Namespace  string        // 1 to 128 characters, without braces, spaces and control characters
	Partitions int           // number of partitions, 1 to 65,536
	Grace      time.Duration // Q, for how long nothing is taken after a failover

	// Lease is T + M: that long after its last renewal the session is over by every clock. (Its
	// process relies on it for T - M.) 0: Grace has to be the same for all processes. Else each has
	// its own, which is longer than Lease, and all use the longest that a session needs: see
	// [Namespace.Grace].
	Lease time.Duration

	// Observes says that the process takes nothing: its sessions need no Grace. It uses that of the
	// others.
	Observes bool
}

// Needs returns the Grace that a session of the process needs, in milliseconds: see [Terms].
func (s Settings) Needs() int64 {
	if s.Observes {
		return 0
	}
	return s.Grace.Milliseconds()
}

// A Namespace is the set of operations on one namespace of an arbiter. docs/protocol.md has the
// rules and invariants cited here.
//
// Contract of every operation, unless its comment says otherwise:
//
//   - It is atomic, touches one slot, and is one round trip that blocks until ctx ends at most.
//   - It is idempotent for the same session, request and epoch: a client library may retry after a lost reply.
//   - Its error, if not nil, says that it is unknown whether the operation was executed, except for
//     [ErrRefused] and [ErrNotSent] (it was not). An operation's decision is in its answer, never
//     in its error.
//   - It first compares the identity of the server with that of the server that wrote the data that
//     it reads. If they differ, or if data that should be there are missing, Grace begins. For
//     [Settings.Grace] no key and no partition may be taken (I7). Meanwhile owners and holders
//     reclaim the records and rows that the new server lacks.
//
// Times in answers are durations left at the moment of execution, by the arbiter's clock. A caller
// counts deadlines from the moment it sent the request (rule 1), by its own clock.
//
// All methods are safe for concurrent use.
type Namespace interface {
	SessionStore
	PartitionStore
	HoldStore

	// Listen delivers the messages for a session to handle, one at a time and in order. handle runs
	// in a goroutine of its own until stop is called. Listen returns once the subscription is in
	// force: a message sent after that is delivered, or a message of kind [Gap] is, as soon as
	// messages can be received again. stop waits for a running handle and may be called more than
	// once, but not from handle.
	Listen(ctx context.Context, session string, handle func(Message)) (stop func(), err error)

	// Guarded reports whether a failover of the store would be noticed. If not, the process
	// believes a server that lost its last writes.
	Guarded() bool

	// Grace is the Q that this process uses now: the longest that a session of the namespace needs,
	// or a longer one. It changes with Open and Renew.
	Grace() time.Duration

	// Close ends the goroutines and connections that Attach started. It does not close the client
	// that the caller brought, and it gives nothing back.
	Close() error
}

// A Prompter is a Namespace that reports whether a Lock with [LockRequest.Inline] ends at its
// context's deadline without another goroutine.
type Prompter interface {
	Prompt() bool
}

// A Queuer is a Namespace in which lock calls may have to wait for a connection before they are
// sent. Lock heeds [LockRequest.Limit].
type Queuer interface {
	Queues() bool
}

// A Spreader is a Namespace that reports whether its partitions are on several servers: one of them
// may be silent while others answer.
type Spreader interface {
	Spread() bool
}

// A Mute is a Namespace that reports whether it delivers no messages at all, because its store has
// none: callers that wait ask again by their timers. Listen calls handle once then, with a [Gap].
type Mute interface {
	Mute() bool
}

// A Courier is a [Mute] Namespace whose transitions run in this process, so that it knows which
// messages its calls cause. There may be another way than the store's to the processes that they
// are for.
type Courier interface {
	// Carry has messages handed to send from now on: each after the transition that causes it has
	// taken effect, in the goroutine of the call. send must not block.
	Carry(send Sender)
}

// Sender delivers a message to a session, or loses it.
type Sender func(session string, m Message)

func (send Sender) to(session string, m Message) {
	if send != nil {
		send(session, m)
	}
}

// A Burier is a Namespace that keeps the guardians of a session, and buries it on their votes:
// docs/takeover.md has the rules. In another Namespace a session ends by its expiry only.
type Burier interface {
	// Bury ends the session, as if it had expired. version has to be the recorded version of its
	// guardians, and enough members of that set have to be among voters. Never in Grace. A session
	// that is dead already is answered as Dead. Errors: [ErrRefused] if voters has a malformed
	// name.
	Bury(ctx context.Context, session string, version uint32, voters []string) (Burial, error)
}

// Burial is the answer to Bury.
type Burial struct {
	Dead    bool
	Version uint32        // if alive: the recorded version of its guardians
	Left    time.Duration // if alive: until it expires, unless it is renewed
	Grace   time.Duration // left of the session table's Grace, 0 outside
}

// SessionStore is the table of sessions. A session is one life of a process: it begins with the
// process, or after the session before has died. Its ID is random and never used again.
// Liveness belongs to it: one renewal keeps alive whatever the session holds.
type SessionStore interface {
	// Open creates the session, or renews it if it exists. The answer is as Renew's. Errors:
	// [ErrWait] if other sessions use a shorter Grace than this one needs.
	Open(ctx context.Context, session string, r Registration) (Renewal, error)

	// Renew extends the session if it exists and has not expired; in Grace it recreates it. Not
	// Alive means that it has expired for ever.
	Renew(ctx context.Context, session string, r Registration) (Renewal, error)

	// Dead asks whether a session has expired. Only its word may be used to evict a session (rule
	// 2). Never dead in Grace. by is the caller's own session, as Registration.Seen: a table that
	// has older data of it is in Grace.
	Dead(ctx context.Context, session string, by Stamp) (Liveness, error)

	// List returns the sessions that have not expired, each with its Info. In Grace it also returns
	// those that expired less than [Settings.Grace] before Grace began: their nodes may be alive.
	// Others may be missing then, so the answer says so, in the same step.
	List(ctx context.Context) (Listing, error)

	// Rotate makes a new secret the first of the namespace's. Two earlier ones are kept.
	Rotate(ctx context.Context) error

	// CloseSession deletes the session. To be called only when its partitions were demoted and its
	// holds released.
	CloseSession(ctx context.Context, session string) error
}

// Registration is a session's data for the table of sessions.
type Registration struct {
	TTL  time.Duration // the session expires this long after Open or Renew
	Info string        // published in List; the arbiter does not look at it

	// Guardians replace the recorded ones if their version is later, in a Namespace that is a
	// [Burier]. A session that is recreated in Grace has these.
	Guardians Guardians

	// Seen is the Expiry of the session's last Renewal, 0: none. A table in which the session
	// expires much sooner has older data under the identity of the present server, as from a
	// backup. Then Grace begins.
	Seen int64

	Round RoundCall // in a Namespace that is a [Rounder]
}

// Guardians are sessions that promise not to declare another session dead, for a while after each
// of its pings. The zero Guardians is none: only its expiry ends the session then.
type Guardians struct {
	Version uint32   // rises with each change of Set; no version is used for two sets
	Set     []string // sessions, five at most, without blanks and commas
}

// A Stamp is a session with the expiry that the table of sessions told it last.
type Stamp struct {
	Session string
	Seen    int64 // as Registration.Seen
}

// Renewal is the answer to Open and Renew.
type Renewal struct {
	Alive  bool
	Server string        // identity of the server that answered; empty if the arbiter is not guarded. Another one: Grace began
	Missed bool          // of Renew, if Alive: the table did not have the session. The server's data are lost, or older. For logs only
	Grace  time.Duration // left of the session table's Grace, 0 outside

	// Sessions is how many there are, if Alive, those that have expired among them until they are
	// swept, as by Open and List. A caller that has seen as many need not List them.
	Sessions int

	Secrets Secrets // of the namespace, if Alive

	Version uint32 // if Alive: the recorded version of the session's Guardians, 0 if it has none

	Length int64 // the namespace's Grace in milliseconds, which all processes are to use. Namespaces heed it by themselves

	// Expiry is when the session expires, if Alive, by the arbiter's clock. It is for
	// Registration.Seen and Stamp only.
	Expiry int64

	Round Round // of the table, if Alive, in a Namespace that is a [Rounder]
}

// Listing is the answer to List.
type Listing struct {
	Sessions map[string]string // the Info of each session

	// Grace is what is left of the session table's Grace, 0 outside. A table that is lost is in
	// Grace, for it is about to be.
	Grace time.Duration
}

// Liveness is the answer to Dead.
type Liveness struct {
	Dead  bool
	Left  time.Duration // if alive: until it expires, unless it is renewed
	Grace time.Duration // left of the session table's Grace, 0 outside
}

// PartitionStore is the ownership of partitions.
type PartitionStore interface {
	// Load reads the record.
	Load(ctx context.Context, p uint32) (Record, error)

	// Acquire makes me the owner if the record is still at the expected epoch. It must be Shared,
	// or Owned by the expected owner, which the caller has seen dead. The answer carries all rows,
	// which the new owner must respect. Verdicts: Granted, Conflict, InGrace.
	Acquire(ctx context.Context, p uint32, me string, expect Expect) (Acquisition, error)

	// Demote ends my ownership: the record becomes Shared, and the rows are replaced by the owner's
	// table of holds. Verdicts: Granted, Stale, InGrace.
	Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]Row) (Demotion, error)

	// DemoteUnserved is Demote for a record that names me although I do not serve it: it keeps the
	// rows (rule 6).
	DemoteUnserved(ctx context.Context, p uint32, me string, epoch uint32) (Demotion, error)

	// Witness tells of a token, or with its number 0 of an epoch, that the caller has seen in the
	// partition: in an answer that came before this call was made. A record that is below it is old
	// data under the identity of the present server, as from a backup. Then Grace begins, and the
	// record is raised, so that tokens rise. The answer is the record afterwards. No partition is
	// in Grace for longer because others tell of it, too.
	Witness(ctx context.Context, p uint32, seen Token) (Record, error)

	// Revoke asks the owner of that epoch to demote, by a mark in the record and a message. by is
	// for the owner's log.
	Revoke(ctx context.Context, p uint32, epoch uint32, by string) error
}

// Expect is the record as the caller of Acquire has seen it.
type Expect struct {
	Epoch     uint32
	Owner     string // empty: the record was Shared
	OwnerDead bool   // Dead said so
}

// Acquisition is the answer to Acquire.
type Acquisition struct {
	Verdict Verdict
	Record  Record
	Rows    map[string]Row // by name; only if Granted
}

// Demotion is the answer to Demote and DemoteUnserved.
type Demotion struct {
	Verdict Verdict
	Record  Record
}

// HoldStore is the holds of single keys.
type HoldStore interface {
	// Lock takes the key for a session. Verdicts: Granted, Held, Promised, Owned, InGrace.
	//
	// Granted comes with a block of fencing tokens. On Held and Promised a caller that waits is
	// queued, in order of arrival; it will get one message of kind [Wake] when its turn has come,
	// and has to call Lock again, with the same request, within [PromiseFor]. Messages get lost: it
	// should also call again by a timer. On Held the holder gets a message of kind [Ask].
	Lock(ctx context.Context, r LockRequest) (LockAnswer, error)

	// Unlock removes exactly the rows named, whatever the state of their partitions, and takes the
	// same requests out of the queues; where this frees a key it wakes the first waiter, and the
	// partition's owner, if there is one, gets a [Freed]. A row or waiter that does not exist is no
	// error. The releases are sent in one go, but each is atomic only by itself. Each has an error
	// of its own, in the order of the releases. Nil: all were executed.
	Unlock(ctx context.Context, releases []Release) []error

	// Restore writes the rows of holds that are in force, unless they are there already. Each
	// Claims is sent in one go with the others. It is atomic by itself up to [MaxClaims] holds,
	// beyond that in parts, and has an error of its own. There is one Restored for each Claims, in
	// the same order. Verdicts: Granted, Lost.
	Restore(ctx context.Context, claims []Claims) []Restored

	// ReclaimOwners restores, in Grace, records of an owner. Each is atomic by itself, and has an
	// error of its own. There is one Reclaimed for each Ownership, in the same order. Verdicts:
	// Granted, Lost.
	ReclaimOwners(ctx context.Context, me string, owned []Ownership) []Reclaimed

	// Verify reads records, and rows in them, in one go. Each partition is atomic by itself, and
	// has an error of its own. There is one State for each Read, in the same order.
	Verify(ctx context.Context, reads []Read) []State
}

// LockRequest is the argument of Lock.
type LockRequest struct {
	Partition uint32
	Key       string
	Me        Identity
	Block     uint32   // number of tokens wanted, at least 1
	Wait      bool     // queue me if I cannot have it
	Evict     Identity // remove this hold first: its session was seen dead; zero: none
	Gone      string   // a session that was seen dead: remove its requests from the key's queue, by any name, first; "": none

	// Limit is how long the call may take once it is sent, apart from a wait for a connection, if
	// the namespace is a [Queuer]. 0: until ctx ends.
	Limit time.Duration

	// Inline says that the call is to be made in the caller's goroutine if the namespace is a
	// [Prompter]. A call that its context's deadline ends may cost the connection.
	Inline bool
}

// LockAnswer is the answer to Lock.
type LockAnswer struct {
	Verdict   Verdict
	Record    Record
	Token     Token         // Granted: the first of the block
	Contended bool          // Granted: a session waits that has to wait for this hold, by its mode
	Holder    Row           // Held: its holder. Promised: the waiter that it is for, without a token
	Retry     time.Duration // Promised: until the promise lapses
	Size      uint32        // Held: how many permits the key has by a hold in the way, if the request says another number
	Behind    bool          // Held: no hold is in the request's way, but one that came before it waits for holds
	Ahead     Release       // Behind: that one. If its session is dead, it is to be removed: LockRequest.Gone
}

// Release names a hold, or a waiter, to be removed.
type Release struct {
	Partition uint32
	Key       string
	Identity
}

// Read is a partition to be read by Verify, and the keys of the rows that are wanted.
type Read struct {
	Partition uint32
	Keys      []string
	Busy      int // for so many of Keys, the first ones, State.Wanted is told
}

// State is a partition as Verify found it.
type State struct {
	Record Record
	Rows   []Row  // as Read.Keys; zero where there is no row
	Wanted []bool // for the first Read.Busy of them: a session waits that has to wait for a hold of that name, by its mode
	Err    error  // why there is nothing of the above
}

// MessageKind is the subject of a message.
type MessageKind byte

// Kinds of messages.
const (
	Wake    MessageKind = 'w' // the key is free and promised to Request
	Ask     MessageKind = 'a' // a session waits for the key, which the arbiter says Request holds: hand over, or deny it (rule 13)
	Revoked MessageKind = 'r' // the partition's owner is asked to demote
	Freed   MessageKind = 'f' // a hold in a partition of the session's was released here: of Session and Request (rule 9)
	Changed MessageKind = 'c' // news of the key was announced: see Announcer
	Changes MessageKind = 'o' // the round of the table of sessions is another one, or Graces have ended: see Rounder
	Gap     MessageKind = 'g' // messages may have been lost before this one
)

// A Message is a hint for one session. Nothing about safety rests on it.
type Message struct {
	Kind      MessageKind
	Key       string // Wake, Ask, Freed, Changed
	Request   uint64 // Wake, Ask, Freed
	Session   string // Freed
	Partition uint32 // Revoked
	Epoch     uint32 // Revoked
}
