// Package tokens keeps the OAuth 2.0 tokens of many accounts for many processes: each token is
// refreshed once, by one of them. A rotated refresh token is stored before any caller uses the
// access token that came with it. No refresh token that the provider may have spent is sent again,
// unless [Options.ReplayInDoubt] permits it.
//
// Providers that rotate refresh tokens take a used one for stolen, and revoke everything that was
// issued since: two processes that refresh at the same time, or one that crashes between the
// provider's answer and its own write, log the account out. golang.org/x/oauth2 leaves that to its
// callers.
//
// One token's journey: [Keeper.Token] returns the access token that this process has, without any
// I/O, until some time before its expiry, which is another one in each process. Then one goroutine
// reads the store. If no other process was first, it locks the account ([coord.Coordinator.Lock])
// and reads again. It writes into the record that it is about to spend the refresh token. Only then
// it asks the provider; it writes the new tokens, which clears that mark, and only then hands them
// out. Meanwhile all other callers go on with the old access token.
//
// A mark that outlives its writer means that the provider may have seen the refresh token, or not.
// It is not sent again, unless [Options.ReplayInDoubt] says that the provider forgives that: the
// account is in doubt, callers get an [*InDoubtError] once the access token has expired, and the
// user has to log in again ([Keeper.Replace]).
//
// A resource may refuse an access token before its time, as one that was revoked: [Keeper.Refused]
// makes the next Token refresh it, once in all processes, and [Keeper.Transport] is a client's
// transport that does so by itself.
//
// [Seal] encrypts the stored records. A [Record] prints and logs without its tokens.
//
// Every write has the fencing token of its lock, so that a process that was stopped for too long
// overwrites nothing.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/singleflight"
)

// A Keeper keeps the tokens of all accounts of one provider and client. One per process is enough;
// it is safe for concurrent use.
type Keeper struct {
	locks   *coord.Coordinator
	conf    *oauth2.Config
	store   Store
	opts    Options
	flights singleflight.Group[string, *oauth2.Token]

	ctx  context.Context // ends at the beginning of Close
	stop context.CancelCauseFunc
	work sync.WaitGroup // the flights

	mu       sync.RWMutex // protects the fields below, and work from being added to while Close waits for it
	accounts map[string]*account
	sweep    int // with so many accounts, unused ones are removed
	closed   bool
}

// New returns a Keeper. It does no I/O. locks stays the caller's, and should be closed after the
// Keeper. opts may be nil.
//
// conf.Endpoint.AuthStyle must be [oauth2.AuthStyleInHeader] or [oauth2.AuthStyleInParams]: with
// AuthStyleAutoDetect package oauth2 tries a request that has failed once more in the other style,
// which may send the refresh token twice. The client that oauth2 uses (Options.HTTPClient, else the
// value oauth2.HTTPClient of ctx) must not repeat a POST by itself either.
func New(locks *coord.Coordinator, conf *oauth2.Config, store Store, opts *Options) (*Keeper, error) {
	switch {
	case locks == nil:
		return nil, errors.New("tokens: New: the coordinator is nil")
	case conf == nil:
		return nil, errors.New("tokens: New: the oauth2.Config is nil")
	case store == nil:
		return nil, errors.New("tokens: New: the store is nil")
	case conf.Endpoint.TokenURL == "":
		return nil, errors.New("tokens: New: Endpoint.TokenURL of the oauth2.Config is empty")
	case conf.Endpoint.AuthStyle != oauth2.AuthStyleInHeader && conf.Endpoint.AuthStyle != oauth2.AuthStyleInParams:
		return nil, errors.New("tokens: New: Endpoint.AuthStyle of the oauth2.Config must be AuthStyleInHeader or AuthStyleInParams: " +
			"to find it out, package oauth2 would send a refresh token twice")
	}
	o, err := opts.filled()
	if err != nil {
		return nil, err
	}
	k := &Keeper{locks: locks, conf: conf, store: store, opts: o, accounts: make(map[string]*account), sweep: 64}
	k.ctx, k.stop = context.WithCancelCause(context.Background())
	k.flights.Spawn = k.work.Go
	return k, nil
}

// Close ends all waits, and begins no request to the provider. It lets requests that are under way
// come to their end, stores their results, and returns when no goroutine is left: after
// Options.SaveTimeout and the longer one of SaveTimeout and Timeout at the latest, if the client
// and the store heed their contexts. A process that ends without Close while it asks the provider
// leaves the account in doubt.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop(ErrClosed)
	k.work.Wait()
}

// TokenSource returns an [oauth2.TokenSource] for the account. ctx limits each of its calls, and
// has the values for them, such as oauth2.HTTPClient. It is ready for [oauth2.NewClient]; a client
// of that gives the token to any host, after a redirect as well: prefer [Keeper.Transport].
// Wrapping it in a ReuseTokenSource is of no use.
func (k *Keeper) TokenSource(ctx context.Context, name string) oauth2.TokenSource {
	return source{k, ctx, name}
}

type source struct {
	k    *Keeper
	ctx  context.Context
	name string
}

func (s source) Token() (*oauth2.Token, error) { return s.k.Token(s.ctx, s.name) }

// Token returns an access token of the account that is valid for Options.Leeway at least. It blocks
// only if this process has none; then it waits, until ctx ends at most, for the store, another
// process or the provider. The token is the caller's own copy. It has no refresh token, since only
// a Keeper may spend that, and no Extra fields. A token has no Expiry if the provider does not name
// its life (expires_in); see Options.Life.
//
// Errors: [ErrAccount], [ErrNoAccount], [ErrInDoubt], [ErrRejected], [ErrRetryLater], [ErrClosed];
// ctx's own; those of [coord.Coordinator.Lock]; the store's; and the provider's, as an
// [*oauth2.RetrieveError], if it did not spend the refresh token. For Options.Backoff after an
// error, this process returns the same again without looking; and no process asks the provider
// again before its Retry-After, an hour at most, is over.
func (k *Keeper) Token(ctx context.Context, name string) (*oauth2.Token, error) {
	a, err := k.account(name)
	if err != nil {
		return nil, err
	}
	t, due, err := a.now(time.Now())
	if t != nil && !due {
		return t, nil
	}
	if t != nil {
		// No caller waits for this flight or leaves it: it ends by itself.
		_, _ = k.join(context.WithoutCancel(ctx), name)
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	m, err := k.join(ctx, name)
	if err != nil {
		return nil, err
	}
	select {
	case <-m.Done():
	case <-ctx.Done():
		select {
		case <-m.Done():
		default:
			m.Leave()
			return nil, ended(ctx)
		}
	}
	t, err = m.Result()
	if err != nil {
		return nil, err
	}
	return new(*t), nil
}

// Replace makes t the account's token, whatever was there: for a new account, after a new login,
// and to end a doubt. It needs a refresh token. It waits for the account's lock until ctx ends.
// With an error from the store it is unknown whether t was stored, and Replace may be called again.
// Other processes go on with the access token that they have until it is time to refresh that one,
// or it is [Keeper.Refused].
func (k *Keeper) Replace(ctx context.Context, name string, t *oauth2.Token) error {
	if err := checkName(name); err != nil {
		return err
	}
	if t == nil || t.RefreshToken == "" {
		return errors.New("tokens: Replace: there is no refresh token")
	}
	return k.put(ctx, name, func(fence uint64) Record { return newRecord(t, fence, lastStep, time.Now()) })
}

// Forget deletes the account's tokens, whatever was there; [Keeper.Replace] makes it an account
// again. It waits for the account's lock until ctx ends. With an error from the store it is unknown
// whether they were deleted, and Forget may be called again. Other processes go on with the access
// token that they have until it is time to refresh that one. The provider is not told: if it is to
// revoke the tokens, do that first.
//
// Afterwards the store has an empty record, see [Record.Empty], so that no write on its way to the
// store brings the tokens back.
func (k *Keeper) Forget(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return k.put(ctx, name, func(fence uint64) Record { return Record{Fence: fence, Step: lastStep} })
}

// put stores another record of the account, under its lock.
func (k *Keeper) put(ctx context.Context, name string, next func(fence uint64) Record) error {
	a, err := k.hold(name)
	if err != nil {
		return err
	}
	defer k.drop(a)
	l, err := k.locks.Lock(ctx, k.key(name))
	if err != nil {
		return err
	}
	defer l.Unlock()
	r := next(uint64(l.Fence()))
	if err := k.save(ctx, name, r); err != nil {
		return err
	}
	// Nothing from before concerns the new record.
	a.leave(nil, 0)
	a.trust()
	a.adopt(r, &k.opts)
	a.fail(nil, time.Time{})
	return nil
}

func (k *Keeper) join(ctx context.Context, name string) (*singleflight.Member[string, *oauth2.Token], error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.closed {
		return nil, ErrClosed
	}
	return k.flights.Join(ctx, name, func(ctx context.Context) (*oauth2.Token, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(k.ctx, func() { cancel(ErrClosed) })()
		return k.fly(ctx, name)
	}), nil
}

func (k *Keeper) key(name string) string { return keyPrefix + name }

// keyPrefix keeps the locks of accounts apart from others of the namespace.
const keyPrefix = "tokens/"

// MaxAccount is the length of the longest account name, in bytes.
const MaxAccount = coord.MaxKey - len(keyPrefix)

func checkName(name string) error {
	if len(name) == 0 || len(name) > MaxAccount {
		return fmt.Errorf("%w: it has %d bytes, must have 1 to %d", ErrAccount, len(name), MaxAccount)
	}
	return nil
}

// account returns this process's state of the account.
func (k *Keeper) account(name string) (*account, error) {
	k.mu.RLock()
	a, closed := k.accounts[name], k.closed
	k.mu.RUnlock()
	if closed {
		return nil, ErrClosed
	}
	if a != nil {
		return a, nil
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	a, err := k.hold(name)
	if err == nil {
		k.drop(a)
	}
	return a, err
}

// hold is account for callers that are about to change it: until drop it is not removed.
func (k *Keeper) hold(name string) (*account, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	a := k.accounts[name]
	if a == nil {
		if len(k.accounts) >= k.sweep {
			now := time.Now()
			for n, x := range k.accounts {
				if x.users == 0 && x.idle(now) {
					delete(k.accounts, n)
				}
			}
			k.sweep = max(64, 2*len(k.accounts))
		}
		a = &account{spread: 0.5 + rand.Float64()/2}
		k.accounts[name] = a
	}
	a.users++
	return a, nil
}

func (k *Keeper) drop(a *account) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a.users--
}

// ended returns an error that matches the ctx's Err and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
