package tokens

import "time"

// Refused tells that a resource has answered 401 (Unauthorized) to an access token that
// [Keeper.Token] had returned, though it has not expired. If it is still the account's, the next
// Token refreshes it before it returns: once per cluster, since any other process that is refused
// the same finds the new one in the store. It does no I/O, and a token that is not the account's
// any more, or younger than Options.MinAge, does not count.
//
// Call it for 401 only, and not where the resource says that the token's rights are too small (403,
// insufficient_scope): another token would have the same. [Keeper.Transport] calls it by itself.
func (k *Keeper) Refused(name, access string) {
	k.mu.RLock()
	a := k.accounts[name]
	k.mu.RUnlock()
	if a != nil {
		a.refuse(NewSecret(access), k.opts.MinAge, time.Now())
	}
}
