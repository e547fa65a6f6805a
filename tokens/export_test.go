package tokens

import "fmt"

// Accounts returns how many accounts the Keeper remembers.
func Accounts(k *Keeper) int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.accounts)
}

// Memory returns all that the Keeper remembers of the account, as a text.
func Memory(k *Keeper, name string) string {
	k.mu.RLock()
	a := k.accounts[name]
	k.mu.RUnlock()
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	reveal := func(r Record) string {
		return fmt.Sprintf("%+v %s %s", r, r.AccessToken.Reveal(), r.RefreshToken.Reveal())
	}
	text := fmt.Sprintf("%s %q %v %v", reveal(a.record), a.refused.Reveal(), a.failed, a.spared)
	if a.pending != nil {
		text += " " + reveal(*a.pending)
	}
	return text
}
