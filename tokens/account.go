package tokens

import (
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// account is this process's state of an account.
type account struct {
	spread float64 // 0.5 to 1: which part of Options.Early is this process's, so that not all refresh at once
	users  int     // callers that may change it; protected by Keeper.mu

	mu     sync.Mutex // protects the fields below
	record Record     // as last seen in the store, but without its refresh token; without an access token there is none
	due    time.Time  // when to refresh it; zero: never
	until  time.Time  // when to hand it out no longer; zero: never
	failed error      // why it could not be refreshed
	retry  time.Time  // until when that counts

	// refused is an access token that a resource has not accepted, as long as record has it.
	refused Secret
	// spared is why the provider is not asked until spare: it wants to be left alone.
	spared error
	spare  time.Time

	// pending is a record that the provider gave us and the store did not take. The mark in the
	// store has the same Fence.
	pending *Record
	// unspent is the fence of a mark that may be in the store, although nothing was sent under it;
	// 0: there is none.
	unspent uint64
}

// now returns the access token if it may be handed out, and whether to refresh it; or why there is
// none, if it is too early to look again.
func (a *account) now(now time.Time) (t *oauth2.Token, due bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.retry) {
		err = a.failed
	}
	if a.record.AccessToken.Empty() || passed(a.until, now) || a.record.AccessToken == a.refused {
		return nil, true, err
	}
	return a.record.token(), passed(a.due, now) && err == nil, nil
}

// adopt takes over the store's record, and reports whether it need not be refreshed yet.
func (a *account) adopt(r Record, o *Options) bool {
	due, until := r.times(a.spread, o)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := !r.AccessToken.Empty() && !passed(due, now) && r.AccessToken != a.refused
	if r.Compare(a.record) < 0 && !passed(a.due, now) {
		return fresh // it was read before another writer, such as Replace, saved a.record
	}
	if r.Compare(a.record) > 0 && !r.Issued.Equal(a.record.Issued) {
		a.spared, a.spare = nil, time.Time{} // the provider has answered another process since
	}
	r.RefreshToken = Secret{} // a flight that spends it reads it then
	a.record, a.due, a.until = r, due, until
	if fresh {
		a.failed = nil
	}
	return fresh
}

// forget drops all that is known of an account that is not in the store: r is empty.
func (a *account) forget(r Record, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.record.AccessToken.Empty() && r.Compare(a.record) < 0 && !passed(a.due, now) && a.record.AccessToken != a.refused {
		return // it was read before a login saved a.record
	}
	a.record, a.due, a.until = r, time.Time{}, time.Time{}
	a.refused, a.spared, a.spare = Secret{}, nil, time.Time{}
	a.pending, a.unspent = nil, 0
}

// refuse notes that an access token that is at least min old was not accepted. It is not, if this
// is no longer the account's.
func (a *account) refuse(access Secret, min time.Duration, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.record.AccessToken == access && now.Sub(a.record.Issued) >= min {
		a.refused = access
	}
}

// trust ends a refusal: the provider, or a login, has given the account a token since. It may be
// the same one.
func (a *account) trust() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = Secret{}
	a.spared, a.spare = nil, time.Time{}
}

// rest makes the provider be left alone for a while.
func (a *account) rest(why error, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spared, a.spare = why, until
}

// resting returns why the provider is not to be asked now, nil if it is.
func (a *account) resting(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.spare) {
		return a.spared
	}
	return nil
}

func (a *account) fail(err error, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed, a.retry = err, until
}

// leave notes the changes that the store was not told.
func (a *account) leave(pending *Record, unspent uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending, a.unspent = pending, unspent
}

func (a *account) left() (pending *Record, unspent uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending, a.unspent
}

// idle reports whether nothing is lost if this is forgotten.
func (a *account) idle(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	valid := !a.record.AccessToken.Empty() && !passed(a.until, now)
	return !valid && a.pending == nil && a.unspent == 0 && !now.Before(a.retry) && !now.Before(a.spare)
}

// passed reports whether a time has come; the zero time never does.
func passed(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }
