package tokens_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tokens"
)

// outage lets a process get "a2", which lives for a minute, and not store it until that has
// expired.
func (w *world) outage() *tokens.Keeper {
	w.Helper()
	w.provider.life = time.Minute
	k, _ := w.keeper(&tokens.Options{SaveTimeout: 10 * time.Second})
	broken := errors.New("broken")
	w.store.refuse("a2", broken)
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(backoff) {
		w.wantError(k, broken)
	}
	w.store.set(nil, nil)
	return k
}

// A token that expires while the store does not take it is stored and refreshed, under one lock.
func TestAKeptTokenThatHasExpiredIsRefreshed(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.outage()
		other, _ := w.keeper(nil)
		var saved []tokens.Record
		w.store.set(nil, func(r tokens.Record) error { saved = append(saved, r); return nil })
		w.want(k, "a3")
		w.want(other, "a3")
		w.provider.want(w.T, 2)
		if len(saved) != 3 {
			w.Fatalf("saved: %v", saved)
		}
		for i, r := range saved { // the kept token, the mark, the new token
			if refresh := []string{"r2", "r2", "r3"}[i]; r.RefreshToken.Reveal() != refresh || (r.Spending.Fence != 0) != (i == 1) {
				w.Errorf("saved as number %d: %v with %s", i, r, r.RefreshToken.Reveal())
			}
			if err := w.store.Save(w.Context(), "alice", r); i < 2 && !errors.Is(err, tokens.ErrSuperseded) {
				w.Errorf("a late duplicate of number %d: %v", i, err)
			}
		}
	})
}

// A process crashes between two of its writes: only the one that asks the provider leaves doubt.
func TestACrashWhileAKeptTokenIsRefreshed(t *testing.T) {
	dead := errors.New("dead")
	for name, x := range map[string]struct {
		before, after func(tokens.Record) error
		token         string // that another process gets; empty: the account is in doubt
	}{
		"before it is stored": {before: func(tokens.Record) error { return dead }},
		"once it is stored":   {after: func(tokens.Record) error { return dead }, token: "a3"},
		"before the mark": {before: func(r tokens.Record) error {
			if r.Spending.Fence != 0 {
				return dead
			}
			return nil
		}, token: "a3"},
		"once there is a mark": {after: func(r tokens.Record) error {
			if r.Spending.Fence != 0 {
				return dead
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k := w.outage()
				w.store.set(x.before, x.after)
				w.wantError(k, dead)
				w.store.set(nil, nil)
				other, _ := w.keeper(nil)
				if x.token == "" {
					w.wantError(other, tokens.ErrInDoubt)
					w.provider.want(w.T, 1)
				} else {
					w.want(other, x.token)
				}
				// Had it not crashed, it would know that nothing was sent.
				time.Sleep(backoff)
				w.want(k, "a3")
				w.provider.want(w.T, 2)
			})
		})
	}
}
