package election

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// ErrNoLeader: no leader has published itself.
var ErrNoLeader = errors.New("election: no leader")

// MaxName is the length of the longest name, in bytes.
const MaxName = 512

// Options are the options of [New]. The zero value of each field means its default, and a nil
// *Options means all defaults.
type Options struct {
	// ID names this candidate. Two candidates never have the same one. At most 256 bytes of UTF-8.
	// Default: the host's name and a random text.
	ID string

	// Value is published with each term, until [Term.Publish] changes it: the leader's address, as
	// a rule. At most 64 KiB. Default: empty.
	Value string

	// Version and Zone describe this candidate to Prefer, in 256 bytes of UTF-8 at most. Default:
	// empty.
	Version, Zone string

	// Prefer orders the candidates that wait when a leader goes. See [Order]. All candidates of an
	// election have the same one. It is a preference: where the better candidate does not take the
	// leadership, the next one does. A leader in office stays. Nil: the candidate that has waited
	// longest.
	Prefer Order

	// Keep is how long the published value lasts without the leader, which writes it again three
	// times in that time. An observer also looks by itself once per Keep, in case it missed an
	// announcement. Default 30 s; at least 100 ms. Negative values are refused.
	Keep time.Duration

	// Pause is how long [Election.Run] waits after a failure before it campaigns again, and
	// [Election.Assign] before it calls a function again that has returned. Default 1 s; at least 1
	// ms. Negative values are refused.
	Pause time.Duration

	// Store keeps the published value, and the lists of candidates and of processes that share
	// shards. Nil: the arbiter, if it keeps results, as Redis does and most others do not
	// (docs/arbiters.md). Where it does not, a leader leads and is not published, and Prefer and
	// Assign need a Store.
	Store coord.ShareStore

	// Logger gets the records that docs/logs.md lists. Nil: silent.
	Logger *slog.Logger
}

// An Election is one process's view of the election of that name. It is safe for concurrent use.
type Election struct {
	c    *coord.Coordinator
	name string
	key  string // of the lock and of the record
	opts Options

	// silent terms publish nothing by themselves: the value is there when the leader has made it.
	silent bool
}

// New returns the election of a name. It does nothing yet, and needs no end. All processes that
// take part use coordinators of one namespace. The name has 1 to 512 bytes, without "#". Its lock
// is that of the key "election/" + name.
//
// Errors: of the name and the options, which name the field.
func New(c *coord.Coordinator, name string, opts *Options) (*Election, error) {
	if c == nil {
		return nil, errors.New("election: the coordinator is nil")
	}
	if name == "" || len(name) > MaxName || strings.Contains(name, "#") {
		return nil, fmt.Errorf("election: the name %.64q must have 1 to %d bytes, without \"#\"", name, MaxName)
	}
	o, err := opts.filled()
	if err != nil {
		return nil, err
	}
	return &Election{c: c, name: name, key: "election/" + name, opts: o}, nil
}

// Limits of the published texts, in bytes.
const (
	maxID    = 256
	maxValue = 64 << 10
)

func (o *Options) filled() (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	if f.ID == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "unknown"
		}
		f.ID = strings.ToValidUTF8(host[:min(len(host), 128)], "?") + "/" + rand.Text()[:10]
	}
	if f.Keep == 0 {
		f.Keep = 30 * time.Second
	}
	if f.Pause == 0 {
		f.Pause = time.Second
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case len(f.ID) > maxID:
		return f, fmt.Errorf("election: Options.ID has %d bytes, must have %d at most", len(f.ID), maxID)
	case !utf8.ValidString(f.ID):
		return f, fmt.Errorf("election: Options.ID is %q, must be UTF-8", f.ID)
	case len(f.Value) > maxValue:
		return f, fmt.Errorf("election: Options.Value has %d bytes, must have %d at most", len(f.Value), maxValue)
	case len(f.Version) > maxID || len(f.Zone) > maxID:
		return f, fmt.Errorf("election: Options.Version and Zone must have %d bytes at most", maxID)
	case !utf8.ValidString(f.Version) || !utf8.ValidString(f.Zone):
		return f, fmt.Errorf("election: Options.Version is %q and Zone %q, must be UTF-8", f.Version, f.Zone)
	case f.Keep < 100*time.Millisecond:
		return f, fmt.Errorf("election: Options.Keep is %v, must be at least 100ms", f.Keep)
	case f.Pause < 0:
		return f, fmt.Errorf("election: Options.Pause is %v, must not be negative", f.Pause)
	}
	return f, unit.Check("election: Options.Pause", f.Pause, time.Millisecond, "2 * time.Second")
}

// ID returns the ID of this candidate.
func (e *Election) ID() string { return e.opts.ID }

// part returns an election that belongs to this one.
func (e *Election) part(suffix string) *Election {
	p := *e
	p.key += "#" + suffix
	p.opts.Value, p.opts.Prefer, p.silent = "", nil, true
	return &p
}
