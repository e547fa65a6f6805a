package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/periodic"
)

// Run returns an error that another attempt does not mend, when the first tick is due at the
// latest. Begin returns it, too.
func TestRun_WhatCannotBeMended(t *testing.T) {
	for name, x := range map[string]struct {
		opts  *coord.Options
		plain bool // the arbiter keeps no results
		job   string
		want  error
	}{
		"an observer":                {opts: &coord.Options{Observe: true}, job: "report", want: coord.ErrObserver},
		"a name that makes no key":   {job: "report\x00a\x00\xff", want: coord.ErrInvalidKey},
		"an arbiter without results": {plain: true, job: "report", want: coord.ErrNoResults},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				var arbiter fallback.Arbiter = a
				if x.plain {
					arbiter = coordtest.WithoutResults(a)
				}
				start(t, arbiter) // it makes the namespace
				c := coordtest.Start(t, arbiter, x.opts)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := periodic.Run(ctx, c, x.job, periodic.Every(time.Minute), nil, func(context.Context, periodic.Tick) error { return nil })
				if !errors.Is(err, x.want) {
					t.Errorf("Run: %v", err)
				}
				if x.plain && !strings.Contains(fmt.Sprint(err), "periodic.Options.Store") {
					t.Errorf("Run names no option: %v", err)
				}
				_, err = periodic.Begin(ctx, c, x.job, time.Second, nil)
				if !errors.Is(err, x.want) {
					t.Errorf("Begin: %v", err)
				}
			})
		})
	}
}

// With a store of its own a job does without the arbiter's.
func TestRun_AStoreOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		results, err := start(t, fallback.NewMemory()).Results()
		if err != nil {
			t.Fatal(err)
		}
		c := start(t, coordtest.WithoutResults(a))
		ctx, cancel := context.WithCancel(t.Context())
		err = periodic.Run(ctx, c, "report", periodic.Every(time.Minute), &periodic.Options{Store: results}, func(context.Context, periodic.Tick) error {
			cancel()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
