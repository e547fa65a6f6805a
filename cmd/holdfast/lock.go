//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
)

const lockHelp = `
The command runs without a shell. Its environment has HOLDFAST_KEY and HOLDFAST_FENCE, the token: let what it writes to refuse a lower
one. Permits (-n) have no token. Signals go to the command and what it has started. The exit status is the command's, or

    75   the lock was not obtained: --try, or --wait is over
   124   the lock was lost, and the command was ended: SIGTERM, and SIGKILL after --kill-after
   125   holdfast itself failed, such as that the arbiter cannot be reached
   126   the command cannot be run, 127: it is not there
   128+n a signal n ended the command, or the wait for the lock

A command may end with these numbers by itself: then holdfast writes nothing.

A command in the foreground has the terminal. Ctrl-C that ends it ends a script around holdfast, too. Ctrl-Z stops it and holdfast, which does not renew the lock meanwhile: after "fg" or
"bg" the command goes on, or, if the lock was lost, is ended as by any loss.

A holdfast that is killed takes the command with it (on Linux), and its lock is free when its session has expired. One that is stopped
by SIGSTOP cannot end the command: what the command writes to is protected by the token alone.`

func lockCommand(s *settings) *cobra.Command {
	var w wish
	x := &execution{}
	cmd := &cobra.Command{
		Use: "lock KEY [flags] -- COMMAND [ARG...]", Short: "Run a command while having a lock", Long: "Run a command while having a lock.\n" + lockHelp,
		Args: commandAfterDashes,
		RunE: func(_ *cobra.Command, args []string) error {
			if w.limit < 0 {
				return &statusError{statusFailed, errors.New("--wait is negative: --try does not wait, and 0 waits without limit")}
			}
			return s.withSignals(x, func(ctx context.Context, c *coord.Coordinator) error {
				return x.lock(ctx, c, args[0], args[1:], &w)
			})
		},
	}
	cmd.Flags().BoolVar(&w.try, "try", false, "do not wait where another process has the lock")
	cmd.Flags().DurationVar(&w.limit, "wait", 0, "wait for so long at most; 0: without limit")
	cmd.Flags().IntVarP(&w.permits, "permits", "n", 0, "let so many commands run at a time, in all processes that give this number for KEY (coord.Semaphore); 0: it is a lock")
	cmd.Flags().BoolVar(&w.read, "read", false, "share the lock with other readers: one without --read waits for all of them (coord.RLock)")
	cmd.MarkFlagsMutuallyExclusive("permits", "read")
	x.flags(cmd, "lock")
	return cmd
}

func electCommand(s *settings) *cobra.Command {
	x := &execution{}
	var value string
	cmd := &cobra.Command{
		Use: "elect NAME [flags] -- COMMAND [ARG...]", Short: "Run a command in the process that is the leader",
		Long: "Run a command in the process that is the leader of an election. It waits to be elected, and runs the command. When the\n" +
			"command ends, so does the term. When the term is lost, the command is ended, and it campaigns again, unless INT, QUIT\n" +
			"or TERM came while the command ran: then it ends, with 128+n.\n" + lockHelp,
		Args: commandAfterDashes,
		RunE: func(_ *cobra.Command, args []string) error {
			return s.withSignals(x, func(ctx context.Context, c *coord.Coordinator) error {
				return x.elect(ctx, c, args[0], args[1:], value)
			})
		},
	}
	cmd.Flags().StringVar(&value, "value", "", "what the leader publishes, such as its address")
	x.flags(cmd, "term")
	return cmd
}

// commandAfterDashes wants one argument, two dashes, and a command. Without the dashes the
// command's flags would be this program's.
func commandAfterDashes(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return &statusError{statusFailed, fmt.Errorf("give the command after two dashes: %s", cmd.UseLine())}
	}
	return nil
}

// A wish is a request for a lock, a read lock or a permit.
type wish struct {
	try, read bool
	permits   int           // of a semaphore; 0: a lock
	limit     time.Duration // of the wait; 0: none
}

// A hold is a lock, a read lock or a permit that a command runs under.
type hold interface{ Context() context.Context }

// take takes a lock, a read lock or a permit. free gives it back, and env has the variables for the
// command.
func (w *wish) take(ctx context.Context, c *coord.Coordinator, key string) (h hold, free func() error, env []string, err error) {
	env = []string{"HOLDFAST_KEY=" + key}
	switch {
	case w.permits != 0:
		s := c.Semaphore(key, w.permits)
		take := s.Acquire
		if w.try {
			take = s.TryAcquire
		}
		p, err := take(ctx, 1)
		return p, p.Release, env, err
	case w.read:
		take := c.RLock
		if w.try {
			take = c.TryRLock
		}
		l, err := take(ctx, key)
		if err != nil {
			return nil, nil, nil, err
		}
		return l, l.Unlock, append(env, "HOLDFAST_FENCE="+l.Fence().String()), nil
	}
	take := c.Lock
	if w.try {
		take = c.TryLock
	}
	l, err := take(ctx, key)
	if err != nil {
		return nil, nil, nil, err
	}
	return l, l.Unlock, append(env, "HOLDFAST_FENCE="+l.Fence().String()), nil
}

// execution is a command that runs under a lock.
type execution struct {
	killAfter time.Duration  // negative: killIn says it
	terminal  *terminal      // nil: there is none
	signals   chan os.Signal // of this process, for heed or run
	children  chan os.Signal // SIGCHLD
	continued chan os.Signal // SIGCONT
	asked     syscall.Signal // the first of asking that came while a command ran; 0: none

	waits    context.Context         // ended by a signal that comes while no command runs
	end      context.CancelCauseFunc // of waits
	takeOver func()                  // ends heed
}

// flags adds the flag of a command that runs under a hold that may be lost.
func (x *execution) flags(cmd *cobra.Command, what string) {
	const name = "kill-after"
	cmd.Flags().DurationVar(&x.killAfter, name, -1, "SIGKILL so long after SIGTERM where the "+what+" is lost")
	cmd.Flags().Lookup(name).DefValue = "800ms, or a fifteenth of the namespace's Grace if that is less"
}

// killIn is the delay until a command is killed that heeds no SIGTERM: less than the margin, as
// another process gets the lock after that.
func killIn(margin time.Duration) time.Duration { return min(800*time.Millisecond, margin*4/5) }

// A signalError is the cause of a wait that a signal has ended.
type signalError struct{ syscall.Signal }

func (g signalError) Error() string { return "signal: " + g.Signal.String() }

// withSignals calls f with a context that ends by the first signal that would end this process.
// Once a command runs, signals are its own.
func (s *settings) withSignals(x *execution, f func(context.Context, *coord.Coordinator) error) error {
	if s.json {
		return &statusError{statusFailed, errors.New("--json is of no use here: the output is the command's")}
	}
	x.terminal = openTerminal()
	defer x.terminal.close()
	defer x.notify()()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	x.waits, x.end = ctx, cancel
	x.heed()
	defer func() { x.takeOver() }()
	start, stop := context.WithTimeout(ctx, s.timeout)
	c, done, err := s.member(start)
	stop()
	if err == nil {
		defer done()
		if x.killAfter < 0 {
			x.killAfter = killIn(s.margin)
		}
		err = f(ctx, c)
	}
	if _, ok := errors.AsType[*statusError](err); ok || err == nil {
		return err
	}
	got, ok := errors.AsType[signalError](err)
	if !ok {
		got, ok = errors.AsType[signalError](context.Cause(ctx))
	}
	if ok {
		e := &statusError{statusSignal + int(got.Signal), fmt.Errorf("ended by a signal before the command ran: %v", got.Signal)}
		if got.Signal == syscall.SIGINT && x.terminal != nil {
			return &deathError{e, got.Signal, false}
		}
		return e
	}
	return &statusError{statusFailed, err}
}

// notify has this process's signals sent to the channels. Without a terminal the stopping ones are
// left to the system. done ends it.
func (x *execution) notify() (done func()) {
	x.signals = make(chan os.Signal, 16)
	signal.Notify(x.signals, heeded(forwarded)...)
	x.children = make(chan os.Signal, 1)
	signal.Notify(x.children, syscall.SIGCHLD)
	x.continued = make(chan os.Signal, 1)
	signal.Notify(x.continued, syscall.SIGCONT)
	if x.terminal != nil && len(stopping) > 0 {
		signal.Notify(x.signals, stopping...)
	}
	return func() {
		signal.Stop(x.signals)
		signal.Stop(x.children)
		signal.Stop(x.continued)
	}
}

// heed begins to obey signals while no command runs. takeOver ends that; it waits while this
// process is stopped.
func (x *execution) heed() {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case got := <-x.signals:
				x.obey(got)
			case <-over:
				return
			}
		}
	}()
	x.takeOver = func() {
		close(over)
		<-done
	}
}

// obey stops this process, or ends waits, if a signal asks for that.
func (x *execution) obey(got os.Signal) {
	switch {
	case slices.Contains(stopping, got):
		stopUntil(x.continued)
	case slices.Contains(ending, got):
		x.end(signalError{got.(syscall.Signal)})
	}
}

func (x *execution) lock(ctx context.Context, c *coord.Coordinator, key string, args []string, w *wish) error {
	waiting := ctx
	if w.limit > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, w.limit)
		defer cancel()
	}
	waiting = coord.WithLabel(waiting, "holdfast lock "+args[0])
	l, free, env, err := w.take(waiting, c, key)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, coord.ErrLocked), err != nil && w.limit > 0 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, coord.ErrUnavailable):
		return &statusError{statusNotObtained, err}
	case err != nil:
		return err
	}
	defer func() { _ = free() }()
	_, err = x.run(l, env, args)
	return err
}

func (x *execution) elect(ctx context.Context, c *coord.Coordinator, name string, args []string, value string) error {
	e, err := election.New(c, name, &election.Options{ID: c.Namespace() + "/" + defaultName() + fmt.Sprintf("/%d", os.Getpid()), Value: value})
	if err != nil {
		return err
	}
	for {
		term, err := e.Campaign(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		l := term.Lock()
		lost, err := x.run(l, []string{"HOLDFAST_KEY=" + l.Key(), "HOLDFAST_FENCE=" + l.Fence().String()}, args)
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = term.Resign(end) // of a lost term, too: Campaign waits for each term that has not ended
		cancel()
		if !lost {
			return err
		}
		fmt.Fprintln(os.Stderr, "holdfast:", printable(err.Error()))
		if got := x.asked; got != 0 {
			return &statusError{statusSignal + int(got), fmt.Errorf("ended by a signal while the command ran: %v", got)}
		}
	}
}

// note remembers the first signal that asks the command to end.
func (x *execution) note(got os.Signal) {
	if x.asked == 0 && slices.Contains(asking, got) {
		x.asked = got.(syscall.Signal)
	}
}

// handBack lets heed go on after a command. It notes the signals that run has not forwarded any
// more.
func (x *execution) handBack() {
	for {
		select {
		case got := <-x.signals:
			x.note(got)
		default:
			x.heed()
			return
		}
	}
}
