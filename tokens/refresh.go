package tokens

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
)

// fly gets a token for all callers of this process that want the account's.
func (k *Keeper) fly(ctx context.Context, name string) (*oauth2.Token, error) {
	a, err := k.hold(name)
	if err != nil {
		return nil, err
	}
	defer k.drop(a)
	had, _, _ := a.now(time.Now())
	t, err := k.renew(ctx, a, name, had)
	if err != nil {
		if ctx.Err() == nil { // else all callers have left, and the next one may have more time
			a.fail(err, time.Now().Add(k.opts.Backoff))
			k.opts.Logger.Warn("holdfast: a token could not be refreshed", "account", name, "error", err)
		}
		return nil, err
	}
	return t, nil
}

// renew returns a token that need not be refreshed yet, or, if this process had none, one that is
// valid.
func (k *Keeper) renew(ctx context.Context, a *account, name string, had *oauth2.Token) (*oauth2.Token, error) {
	// As a rule another process was first, and there is no need for the lock.
	r, err := k.load(ctx, a, name)
	if err != nil {
		return nil, err
	}
	if a.adopt(r, &k.opts) {
		return r.token(), nil
	}
	// This process's record may be later than r: Replace saves a new login meanwhile. It should be
	// refreshed, but no caller has to wait for that: the next caller begins it in the background.
	if now, _, _ := a.now(time.Now()); had == nil && now != nil {
		return now, nil
	}
	if pending, _ := a.left(); pending == nil {
		if r.Rejected != "" {
			return nil, &RejectedError{Account: name, Code: r.Rejected}
		}
		if err := k.resting(a, name, &r, time.Now()); err != nil {
			return nil, err
		}
	}
	l, err := k.locks.Lock(ctx, k.key(name))
	if err != nil {
		return nil, err
	}
	defer l.Unlock() // that it was lost meanwhile does no harm: a record that was saved is in force
	if r, err = k.refresh(ctx, a, name, l); err != nil {
		return nil, err
	}
	if !a.adopt(r, &k.opts) {
		return nil, fmt.Errorf("tokens: the provider's new token of account %q is to be refreshed at once: it expires at %v", name, r.Expiry)
	}
	return r.token(), nil
}

// refresh is renew under the account's lock.
func (k *Keeper) refresh(ctx context.Context, a *account, name string, l coord.Lock) (Record, error) {
	r, err := k.load(ctx, a, name)
	if err != nil {
		return r, err
	}
	pending, unsent := a.left()
	switch {
	case pending == nil:
	case r.Spending.Fence == pending.Fence: // still the mark under which we got it
		r = *pending
		r.Fence, r.Step = uint64(l.Fence()), keptStep // it may have aged: then the mark follows
		if err := k.save(ctx, name, r); err != nil {
			return r, err
		}
		a.trust()
		fallthrough
	default: // or it has been replaced since
		a.leave(nil, unsent)
	}
	if a.adopt(r, &k.opts) {
		return r, nil
	}
	switch {
	case r.Rejected != "":
		return r, &RejectedError{Account: name, Code: r.Rejected}
	case r.RefreshToken.Empty():
		return r, &RejectedError{Account: name, Code: "there is no refresh token"}
	}
	if r.Spending.Fence == unsent { // also if there is no mark
		// Nothing was sent under this mark, but if it says so, something was before.
		if r.Spending.Fence = 0; r.Spending.Again {
			r.Spending.Fence, r.Spending.Again = unsent, false
		}
	}
	now := time.Now()
	mark := Mark{Fence: uint64(l.Fence()), Since: now.UTC().Round(0)}
	if s := r.Spending; s.Fence != 0 {
		if !k.mayReplay(s, now) {
			return r, &InDoubtError{Account: name, Fence: s.Fence, Since: s.Since, Again: s.Again}
		}
		mark.Since, mark.Again = s.Since, true
	} else {
		r.Spending = Mark{}
	}
	if err := k.resting(a, name, &r, now); err != nil { // it has told so the previous holder of the lock
		return r, err
	}
	return k.exchange(ctx, a, name, l, r, mark)
}

// mayReplay reports whether a refresh token that may have been spent may be sent again at that
// time.
func (k *Keeper) mayReplay(s Mark, at time.Time) bool {
	return !s.Again && k.opts.ReplayInDoubt > 0 && at.Sub(s.Since) < k.opts.ReplayInDoubt
}

// resting returns why the provider is not to be asked now, as it has told this process, or another
// one; nil if it may be.
func (k *Keeper) resting(a *account, name string, r *Record, now time.Time) error {
	if err := a.resting(now); err != nil {
		return err
	}
	if wait := r.Rest.Sub(now); wait <= 0 || wait > maxRest {
		return nil
	}
	err := &RetryLaterError{Account: name, Until: r.Rest}
	if s := r.Spending; s.Fence != 0 {
		return &InDoubtError{Account: name, Fence: s.Fence, Since: s.Since, Again: s.Again, Replay: k.mayReplay(s, now), Err: err}
	}
	return err
}

// exchange spends r's refresh token, between two writes.
func (k *Keeper) exchange(ctx context.Context, a *account, name string, l coord.Lock, r Record, mark Mark) (Record, error) {
	was := r
	r.Fence, r.Step, r.Spending, r.Rest = uint64(l.Fence()), markStep, mark, time.Time{}
	if err := k.save(l.Context(), name, r); err != nil {
		if !errors.Is(err, ErrSuperseded) {
			a.leave(nil, uint64(l.Fence())) // it may be there, now or in a while
		}
		return was, because(k.ctx, err)
	}
	for _, over := range []context.Context{l.Context(), k.ctx} { // the lock is lost, or Close was called
		if over.Err() != nil {
			// The last moment: from here on the provider cannot be told from this process's being
			// stopped.
			return was, k.unmark(ctx, a, name, l, was, context.Cause(over))
		}
	}
	t, sent, err := k.spend(ctx, r.RefreshToken.Reveal())
	now, left := time.Now(), mark // the mark that stays, if there is no new token
	why := quiet(err, r.RefreshToken.Reveal())
	became := k.judge(sent, err)
	switch became {
	case renewed:
		next := newRecord(t, uint64(l.Fence()), lastStep, now)
		if err := k.insist(ctx, name, next); err != nil {
			if !errors.Is(err, ErrSuperseded) {
				a.leave(&next, 0)
			}
			return next, err
		}
		a.leave(nil, 0)
		a.trust()
		return next, nil
	case rejected:
		re, _ := errors.AsType[*oauth2.RetrieveError](err)
		r.Step, r.Spending, r.Rejected = lastStep, Mark{}, re.ErrorCode
		_ = k.insist(ctx, name, r) // if it is not stored the mark is, and no process sends it again without being told that it may
		return r, &RejectedError{Account: name, Code: re.ErrorCode, Err: err}
	case unspent:
		left = was.Spending
	}
	again := now.Add(retryAfter(err, now)).UTC().Round(0)
	if k.mayReplay(left, now) && !k.mayReplay(left, again) {
		again = now // later it must not be sent any more, and the account would stay in doubt
	}
	later := again.After(now)
	if became == doubtful {
		why = &InDoubtError{Account: name, Fence: mark.Fence, Since: mark.Since, Again: mark.Again, Replay: k.mayReplay(mark, now), Err: why}
		a.rest(why, again)
		if later && k.mayReplay(mark, now) { // else no caller asks
			r.Step, r.Rest = lastStep, again
			_ = k.insist(ctx, name, r) // if it is not stored others ask before they should
		}
		return r, why
	}
	if was.Rest = (time.Time{}); later {
		was.Rest, why = again, &RetryLaterError{Account: name, Until: again, Err: why}
	} else {
		why = fmt.Errorf("tokens: account %q: %w", name, why)
	}
	a.rest(why, again)
	return was, k.unmark(ctx, a, name, l, was, why)
}

// unmark takes a mark back under which nothing was spent, and returns why.
func (k *Keeper) unmark(ctx context.Context, a *account, name string, l coord.Lock, was Record, why error) error {
	was.Fence, was.Step = uint64(l.Fence()), lastStep
	if err := k.insist(ctx, name, was); err != nil && !errors.Is(err, ErrSuperseded) {
		a.leave(nil, uint64(l.Fence()))
		return errors.Join(why, err)
	}
	a.leave(nil, 0)
	return why
}

// load returns the account's record. If there is none, this process knows nothing of the account
// any more either.
func (k *Keeper) load(ctx context.Context, a *account, name string) (Record, error) {
	r, err := k.store.Load(ctx, name)
	switch {
	case err != nil:
	case r.Empty():
		err = ErrNoAccount
	case r.sealed():
		err = sealError(name, "it is sealed: wrap the store by Seal")
	}
	if errors.Is(err, ErrNoAccount) {
		a.forget(r, time.Now())
	}
	if err != nil {
		return r, fmt.Errorf("tokens: load account %q: %w", name, because(ctx, err))
	}
	return r, nil
}

func (k *Keeper) save(ctx context.Context, name string, r Record) error {
	call, cancel := context.WithTimeout(ctx, k.opts.SaveTimeout)
	defer cancel()
	if err := k.store.Save(call, name, r); err != nil {
		return fmt.Errorf("tokens: save account %q: %w", name, because(ctx, err))
	}
	return nil
}

// because adds to a store's error why ctx has ended, as Close or the caller ends it: stores tell
// context.Canceled.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// insist saves a record that must not be lost: until the store has taken it, whichever callers
// leave meanwhile.
func (k *Keeper) insist(ctx context.Context, name string, r Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.SaveTimeout)
	defer cancel()
	pause := 10 * time.Millisecond
	for {
		err := k.save(ctx, name, r)
		if err == nil || errors.Is(err, ErrSuperseded) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
			return err
		}
	}
}
