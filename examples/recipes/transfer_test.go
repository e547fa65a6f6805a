package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

var errFunds = errors.New("the account has not enough")

// A transfer between accounts: DoAll locks both, and transfers never wait for each other in a
// circle. Where both accounts are in one SQL database, its transaction locks both rows, and no lock
// is needed; this is for accounts in two systems. Their calls get the tokens: docs/fencing.md.
func transfer(ctx context.Context, locks *coord.Coordinator, from, to string, move func(ctx context.Context, tokens map[string]coord.Fence) error) error {
	keys := []string{"account/" + from, "account/" + to}
	return locks.DoAll(ctx, keys, func(ctx context.Context, both coord.Locks) error {
		// ctx ends if either lock is lost.
		return move(ctx, map[string]coord.Fence{from: both.Of(keys[0]).Fence(), to: both.Of(keys[1]).Fence()})
	})
}

func Example_transfer() {
	all, stop := processes(3)
	defer stop()
	ctx := context.Background()
	accounts := []string{"alice", "bob", "carol"}
	balance := map[string]int{"alice": 100, "bob": 100, "carol": 100}
	var bank sync.Mutex // each call of the bank's is atomic, and a transfer is four of them
	read := func(account string) int { bank.Lock(); defer bank.Unlock(); return balance[account] }
	write := func(account string, amount int) { bank.Lock(); defer bank.Unlock(); balance[account] = amount }

	var work sync.WaitGroup
	for _, locks := range all {
		for range 10 {
			work.Go(func() {
				for range 20 {
					i, amount := rand.IntN(3), 1+rand.IntN(30)
					from, to := accounts[i], accounts[(i+1+rand.IntN(2))%3]
					err := transfer(ctx, locks, from, to, func(context.Context, map[string]coord.Fence) error {
						if read(from) < amount {
							return errFunds
						}
						write(from, read(from)-amount)
						write(to, read(to)+amount)
						return nil
					})
					if err != nil && !errors.Is(err, errFunds) {
						fmt.Println(err)
					}
				}
			})
		}
	}
	work.Wait()
	total, overdrawn := 0, false
	for _, amount := range balance {
		total, overdrawn = total+amount, overdrawn || amount < 0
	}
	fmt.Println("together:", total, "overdrawn:", overdrawn)
	// Output:
	// together: 300 overdrawn: false
}
