//go:build unix

package faults

import (
	"regexp"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The failover tests can fail: without Grace, on a server that passes for the writer of its data.
// Then the same workers in the same fault end up with two valid holders, or tokens do not rise.
func TestWithoutGraceTheJudgeFindsViolations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct {
		name  string
		to    successor
		blind func(f *failover, s *redistest.Server)
	}{
		{"an empty server in its place", empty, (*failover).formatWithoutGrace},
		{"a promoted replica that misses writes", replica, (*failover).forgeIdentity},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFailover(t, test.to, crew())
			f.before = func(s *redistest.Server) { test.blind(f, s) }
			f.strike()
			found := f.awaitViolation(3 * time.Second)
			// If all processes happen to renew their sessions in that moment, they are told in
			// time.
			for tries := 1; found == nil && tries < 5; tries++ {
				f.next = redistest.Start(t)
				f.before = f.formatWithoutGrace
				f.strike()
				found = f.awaitViolation(3 * time.Second)
			}
			if found == nil {
				t.Fatal("no violation: the judge is blind, or Grace is not needed")
			}
			t.Logf("found after %v:", time.Since(f.restored).Round(time.Millisecond))
			for _, x := range found {
				t.Log(x)
			}
			f.end()
		})
	}
}

// awaitViolation returns the judge's violations, nil if there is none for a while.
func (s *scene) awaitViolation(limit time.Duration) []string {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if found, _ := s.judge.violations(); len(found) > 0 {
			return found
		}
	}
	return nil
}

// formatWithoutGrace makes an empty server look as if it had never been anything else.
func (f *failover) formatWithoutGrace(s *redistest.Server) {
	a := redisarbiter.New(s.Client(f.t), &redisarbiter.Options{ColdStart: true})
	ns, err := a.Attach(f.t.Context(), f.base.settings())
	if err != nil {
		f.t.Fatal(err)
	}
	_ = ns.Close()
}

// forgeIdentity makes a server pass for the writer of its data.
func (f *failover) forgeIdentity(s *redistest.Server) {
	f.t.Helper()
	ctx, c := f.t.Context(), s.Client(f.t)
	info, err := c.Info(ctx).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	m := regexp.MustCompile(`master_replid:(\w{40})`).FindStringSubmatch(info)
	if m == nil {
		f.t.Fatalf("no identity in %s", info)
	}
	keys := []string{"{" + namespace + ":s}"}
	for p := range partitions {
		keys = append(keys, part(p))
	}
	for _, k := range keys {
		if n, err := c.HSet(ctx, k, "i", m[1]).Result(); err != nil || n != 0 {
			f.t.Fatalf("%s: the identity was not there: %d %v", k, n, err)
		}
	}
}
