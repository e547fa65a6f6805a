// Package shimtest compares a shim with the library that has the same names.
package shimtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Nodes starts two coordinators, which stand for two processes.
func Nodes(t *testing.T, s *redistest.Server, namespace string) [2]*coord.Coordinator {
	t.Helper()
	var nodes [2]*coord.Coordinator
	for i := range nodes {
		var err error
		arbiter := redisarbiter.New(s.Client(t), &redisarbiter.Options{ColdStart: true})
		if nodes[i], err = coord.New(t.Context(), arbiter, &coord.Options{Namespace: namespace}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			_ = nodes[i].Close(ctx) // some scenarios leave locks behind
		})
	}
	return nodes
}

// Close closes a coordinator at once, so that its locks are lost.
func Close(c *coord.Coordinator) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(ctx) // returns an error with the lost locks
}

// A Log has the results of the calls of a scenario, a line each.
type Log struct {
	Errors map[string]error                // by name: those of the library, or the shim's of the same names
	Types  map[string]func(err error) bool // by name: reports whether an error is of the type
	lines  []string
}

// Add notes results. An error is noted by the names that it matches.
func (l *Log) Add(call string, results ...any) {
	line := call + ":"
	for _, r := range results {
		if err, ok := r.(error); ok {
			r = l.name(err)
		}
		line += fmt.Sprintf(" %v", r)
	}
	l.lines = append(l.lines, line)
}

func (l *Log) name(err error) string {
	var names []string
	for name, e := range l.Errors {
		if errors.Is(err, e) {
			names = append(names, name)
		}
	}
	for name, is := range l.Types {
		if is(err) {
			names = append(names, name)
		}
	}
	for _, e := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			names = append(names, e.Error())
		}
	}
	if names == nil {
		return "another error"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// A Scenario makes the same calls of the library and of the shim, and adds their results to the
// side's Log.
type Scenario[S any] struct {
	Do      func(t *testing.T, side S)
	Differs []string // the lines of the shim, where they are not those of the library
}

// A Side is the library or the shim, with two processes.
type Side interface{ Notes() *Log }

// Notes returns the log itself, so that a Side embeds it.
func (l *Log) Notes() *Log { return l }

// Run runs each scenario on both sides, which are new each time. The library's has an empty server.
func Run[S Side](t *testing.T, scenarios map[string]Scenario[S], library, shim func(t *testing.T, s *redistest.Server) S) {
	t.Helper()
	s := redistest.Start(t)
	for name, x := range scenarios {
		t.Run(name, func(t *testing.T) {
			if err := s.Client(t).FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			a, b := library(t, s), shim(t, s)
			x.Do(t, a)
			x.Do(t, b)
			compare(t, a.Notes(), b.Notes(), x.Differs)
		})
	}
}

// Remove deletes a key of the library, so that its lock is lost.
func Remove(t *testing.T, client *redis.Client, key string) {
	t.Helper()
	if n, err := client.Del(t.Context(), key).Result(); n != 1 || err != nil {
		t.Fatalf("the library's key: %d, %v", n, err)
	}
}

// compare compares the logs of the library and of the shim. Where the shim differs, differs has its
// lines, and the library's must be others.
func compare(t *testing.T, library, shim *Log, differs []string) {
	t.Helper()
	if len(library.lines) == 0 {
		t.Error("the scenario calls nothing")
	}
	if differs == nil {
		if !slices.Equal(library.lines, shim.lines) {
			t.Errorf("the library:\n%s\nthe shim:\n%s", strings.Join(library.lines, "\n"), strings.Join(shim.lines, "\n"))
		}
		return
	}
	if !slices.Equal(shim.lines, differs) {
		t.Errorf("the shim:\n%s\nwant:\n%s", strings.Join(shim.lines, "\n"), strings.Join(differs, "\n"))
	}
	if slices.Equal(library.lines, differs) {
		t.Errorf("the library does the same, so it is no difference:\n%s", strings.Join(library.lines, "\n"))
	}
}
