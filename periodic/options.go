package periodic

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [Run]. The zero value of each field means its default, and a nil
// *Options means all defaults. All processes have the same ones, but for Logger.
type Options struct {
	// Late is how late a tick may be run: because no process was there, the job of the tick before
	// took longer, or the arbiter did not answer. A tick that is later is missed. Of several that
	// are due only the last one is run. Default: a tick is run, however late, unless the next one
	// is due. At least 1 ms. Negative: at most a second.
	Late time.Duration

	// Again runs a tick again if its process crashed, or lost the lock, before the job had ended.
	// It does not if the next tick is due. So a tick may run twice, where it runs at most once by
	// default. The function must be safe to repeat.
	Again bool

	// MaxSkew is how far the clocks of the processes may differ: a tick may be early or late by
	// that. A process that differs by more from the clock of the last run goes by the latter, and
	// says so in the log. If a process on another machine finds the same difference, the clock of
	// the earlier process was wrong, and the two are believed (docs/periodic.md). Default 1 s; at
	// least 1 ms. Negative values are refused.
	MaxSkew time.Duration

	// Store keeps the record of the last run. Nil: the arbiter, if it keeps results, as Redis does
	// and most others do not (docs/arbiters.md); with these, Store has to be set. A failover of
	// Redis may lose the record of the last second: the tick may be run a second time then.
	Store coord.ShareStore

	// Logger gets the records that docs/logs.md lists. Nil: silent.
	Logger *slog.Logger
}

func (o *Options) filled() (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	if f.MaxSkew < 0 {
		return f, fmt.Errorf("periodic: Options.MaxSkew is %v, must not be negative", f.MaxSkew)
	}
	if err := errors.Join(unit.Check("periodic: Options.Late", f.Late, time.Millisecond, "10 * time.Second"),
		unit.Check("periodic: Options.MaxSkew", f.MaxSkew, time.Millisecond, "2 * time.Second")); err != nil {
		return f, err
	}
	if f.MaxSkew == 0 {
		f.MaxSkew = time.Second
	}
	if f.Late < 0 {
		f.Late = time.Second
	} else if f.Late == 0 {
		f.Late = 1<<63 - 1
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	return f, nil
}
