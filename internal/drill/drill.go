//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// options are those of a drill.
type options struct {
	short bool
	only  string // name of a scene; empty: all
	out   io.Writer
}

// longWait is the shortest long wait, at the nodes, on the page, and for doctor.
func (o *options) longWait() time.Duration {
	if o.short {
		return 2 * time.Second
	}
	return 5 * time.Second // doctor's and the page's default
}

// A scene is a fault. It makes that happen, looks, and mends it.
type scene struct {
	name string
	play func(ctx context.Context, w *world) error
}

var scenes = []scene{
	{"stuck holder", stuckHolder}, {"callers that give up", impatient}, {"hot key", hotKey}, {"slow Redis", slowRedis}, {"full maxmemory", fullMemory}, {"wrong key", wrongKey},
}

// run plays the scenes, in one cluster.
func run(ctx context.Context, o *options) (err error) {
	begun := time.Now()
	w, err := begin(ctx, o)
	defer func() {
		if err != nil {
			fmt.Fprint(o.out, w.logs())
		}
		err = errors.Join(err, w.end())
	}()
	if err != nil {
		return err
	}
	w.say("five nodes and Redis, after %v", time.Since(begun).Round(100*time.Millisecond))
	played := 0
	for _, s := range scenes {
		if o.only != "" && o.only != s.name {
			continue
		}
		played++
		begun := time.Now()
		w.say("\n== %s", s.name)
		if err := s.play(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := w.settled(ctx); err != nil {
			return fmt.Errorf("after %s: %w", s.name, err)
		}
		w.say("== %s: named, mended, and all is well after %v", s.name, time.Since(begun).Round(100*time.Millisecond))
	}
	if played == 0 {
		return fmt.Errorf("there is no scene %q", o.only)
	}
	return nil
}

func (w *world) say(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

// limit is for how long something may take to be told.
const limit = 2 * time.Minute

// A line is the parts of a line that has to be there.
type line []string

// in returns the first such line of a text, "" if there is none.
func (l line) in(text string) string {
	for x := range strings.Lines(text) {
		if !slices.ContainsFunc(l, func(part string) bool { return !strings.Contains(x, part) }) {
			return strings.TrimSpace(x)
		}
	}
	return ""
}

// A look waits until a place where operators look shows the expected text or figure.
type look func(ctx context.Context) error

// together looks at several places at the same time.
func together(ctx context.Context, looks ...look) error {
	errs := make([]error, len(looks))
	var work sync.WaitGroup
	for i, f := range looks {
		work.Go(func() { errs[i] = f(ctx) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// says waits until a text has all the lines at once, and shows them.
func (w *world) says(ctx context.Context, what string, text func(context.Context) (string, error), lines ...line) error {
	return w.until(ctx, limit, func() error {
		text, err := text(ctx)
		if err != nil {
			return err
		}
		var found []string
		for _, l := range lines {
			x := l.in(text)
			if x == "" {
				return fmt.Errorf("%s has no line with %q:\n%s", what, l, text)
			}
			found = append(found, x)
		}
		for _, x := range found {
			w.say("%-12s %s", what, x)
		}
		return nil
	})
}

// prints waits until "holdfast" with these arguments prints lines.
func (w *world) prints(args []string, lines ...line) look {
	return func(ctx context.Context) error {
		return w.says(ctx, args[0], func(ctx context.Context) (string, error) { return w.holdfast(ctx, args...) }, lines...)
	}
}

// doctor waits until "holdfast doctor" says so.
func (w *world) doctor(lines ...line) look {
	return w.prints([]string{"doctor", "--long-wait", w.longWait().String()}, lines...)
}

// shows waits until the problems on the page of a node have these lines, for curl and for a
// browser.
func (n *node) shows(lines ...line) look {
	return func(ctx context.Context) error {
		return errors.Join(n.w.says(ctx, "page (JSON)", n.problems, lines...), n.w.says(ctx, "page (HTML)", n.problemsOfPage, lines...))
	}
}

// measures waits until the figure of a rule or a panel is beyond a bound.
func (n *node) measures(what string, compute func(samples) float64, above float64) look {
	return func(ctx context.Context) error {
		return n.w.until(ctx, limit, func() error {
			s, err := n.scrape(ctx)
			if err != nil {
				return err
			}
			v := compute(s)
			if !(v > above) {
				return fmt.Errorf("metrics of %s: %s is %v, want more than %v", n.name, what, v, above)
			}
			n.w.say("%-12s %s is %.3g at %s", "metrics", what, v, n.name)
			return nil
		})
	}
}
