// Package storetest checks that a [tokens.Store] keeps its contract.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) tokens.Store { return mine.New(startDatabase(t)) })
//	}
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tokens"
)

// Run checks the stores that create makes, in parallel subtests, each named after the property that
// it proves. Each gets a store without accounts.
func Run(t *testing.T, create func(t *testing.T) tokens.Store) {
	t.Helper()
	for _, x := range []struct {
		name string
		run  func(*testing.T, tokens.Store)
	}{
		{"an account that was never saved is told from one that cannot be read", missing},
		{"what was saved is loaded, with every field", roundTrip},
		{"an earlier version is refused, and changes nothing", versions},
		{"an empty record stays, so that no late save brings back what was forgotten", forgotten},
		{"of many saves at once the latest version stays", atOnce},
		{"a context that has ended ends a call", ended},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.run(t, create(t))
		})
	}
}

func save(t *testing.T, s tokens.Store, account string, r tokens.Record) {
	t.Helper()
	if err := s.Save(t.Context(), account, r); err != nil {
		t.Fatalf("Save(%q) of version %d.%d: %v", account, r.Fence, r.Step, err)
	}
}

func want(t *testing.T, s tokens.Store, account string, want tokens.Record) {
	t.Helper()
	got, err := s.Load(t.Context(), account)
	if err != nil {
		t.Fatalf("Load(%q): %v", account, err)
	}
	for _, x := range []struct{ got, want *time.Time }{
		{&got.Issued, &want.Issued}, {&got.Expiry, &want.Expiry}, {&got.Spending.Since, &want.Spending.Since},
		{&got.Rest, &want.Rest},
	} {
		if x.got.Equal(*x.want) {
			*x.got = *x.want // the same moment, perhaps in another zone
		}
	}
	if got != want {
		t.Errorf("Load(%q):\n got %+v %q %q\nwant %+v %q %q", account, got, got.AccessToken.Reveal(), got.RefreshToken.Reveal(),
			want, want.AccessToken.Reveal(), want.RefreshToken.Reveal())
	}
}

func missing(t *testing.T, s tokens.Store) {
	if r, err := s.Load(t.Context(), "nobody"); !errors.Is(err, tokens.ErrNoAccount) {
		t.Errorf("got %+v, %v, want ErrNoAccount", r, err)
	}
}

func roundTrip(t *testing.T, s tokens.Store) {
	at := time.Date(2026, 11, 21, 10, 20, 30, 123_456_000, time.UTC) // no store has to keep more than microseconds
	full := tokens.Record{
		Fence: 843_350_400<<32 + 17, Step: 2,
		AccessToken: tokens.NewSecret("access \"é\" \\ "), TokenType: "Bearer", RefreshToken: tokens.NewSecret("refresh/+=~"), Issued: at, Expiry: at.Add(time.Hour),
		Spending: tokens.Mark{Fence: 1<<53 + 1, Since: at.Add(time.Minute), Again: true},
		Rest:     at.Add(2 * time.Minute), Rejected: "invalid_grant",
	}
	for i, account := range []string{"a", " ", "a b", "{a}", "a:b/c", "*", "鍵", "it's", strings.Repeat("k", tokens.MaxAccount)} {
		r := full
		r.Step = uint32(i)
		save(t, s, account, r)
	}
	want(t, s, "*", func() tokens.Record { r := full; r.Step = 5; return r }())
	want(t, s, "a", func() tokens.Record { r := full; r.Step = 0; return r }())
	never := tokens.Record{Fence: 1, Step: 1, AccessToken: tokens.NewSecret("x"), RefreshToken: tokens.NewSecret(strings.Repeat("long", 2048)), Issued: at}
	save(t, s, "never expires", never)
	want(t, s, "never expires", never)
	// Nothing of an earlier version stays.
	full.Fence++
	full.Spending, full.Rest, full.Rejected, full.TokenType, full.Expiry = tokens.Mark{}, time.Time{}, "", "", time.Time{}
	save(t, s, "a", full)
	want(t, s, "a", full)
}

func versions(t *testing.T, s tokens.Store) {
	for _, high := range []uint64{2, 1<<53 + 1, 843_350_400<<32 + 17, 1<<63 - 1} {
		account := fmt.Sprint(high)
		r := func(fence uint64, step uint32, text string) tokens.Record {
			return tokens.Record{Fence: fence, Step: step, AccessToken: tokens.NewSecret(text), RefreshToken: tokens.NewSecret(text)}
		}
		save(t, s, account, r(high-1, 10, "first"))
		save(t, s, account, r(high, 1, "mark"))
		save(t, s, account, r(high, 2, "last"))
		for _, late := range []tokens.Record{r(high, 1, "mark"), r(high-1, 10, "first"), r(high-1, 11, "other"), r(1, 1<<32-1, "old")} {
			if err := s.Save(t.Context(), account, late); !errors.Is(err, tokens.ErrSuperseded) {
				t.Errorf("Save of version %d.%d over %d.2: got %v, want ErrSuperseded", late.Fence, late.Step, high, err)
			}
		}
		want(t, s, account, r(high, 2, "last"))
		save(t, s, account, r(high, 2, "last")) // repeated
		want(t, s, account, r(high, 2, "last"))
	}
}

func forgotten(t *testing.T, s tokens.Store) {
	save(t, s, "a", tokens.Record{Fence: 7, Step: 1, AccessToken: tokens.NewSecret("x"), RefreshToken: tokens.NewSecret("y")})
	save(t, s, "a", tokens.Record{Fence: 8, Step: 2})
	if err := s.Save(t.Context(), "a", tokens.Record{Fence: 7, Step: 2, AccessToken: tokens.NewSecret("x"), RefreshToken: tokens.NewSecret("y")}); !errors.Is(err, tokens.ErrSuperseded) {
		t.Errorf("a late Save: got %v, want ErrSuperseded", err)
	}
	if r, err := s.Load(t.Context(), "a"); !errors.Is(err, tokens.ErrNoAccount) && (err != nil || !r.Empty()) {
		t.Errorf("Load: got %+v, %v, want an empty record", r, err)
	}
	again := tokens.Record{Fence: 9, Step: 2, AccessToken: tokens.NewSecret("new"), RefreshToken: tokens.NewSecret("new")}
	save(t, s, "a", again)
	want(t, s, "a", again)
}

func atOnce(t *testing.T, s tokens.Store) {
	const n = 32
	var work sync.WaitGroup
	for i := range uint64(n) {
		work.Go(func() {
			err := s.Save(t.Context(), "a", tokens.Record{Fence: i + 1, RefreshToken: tokens.NewSecret(fmt.Sprint(i + 1))})
			if err != nil && !errors.Is(err, tokens.ErrSuperseded) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	want(t, s, "a", tokens.Record{Fence: n, RefreshToken: tokens.NewSecret(fmt.Sprint(n))})
}

func ended(t *testing.T, s tokens.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Load(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v", err)
	}
	if err := s.Save(ctx, "a", tokens.Record{Fence: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("Save: %v", err)
	}
}
