package tokens

// Accounts returns how many accounts the Keeper remembers.
func Accounts(k *Keeper) int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.accounts)
}
