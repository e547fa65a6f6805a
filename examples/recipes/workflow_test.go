package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// orders stand for a table with a row per order: its state, and the token of the last writer.
type orders struct {
	mu    sync.Mutex // protects the fields below
	state map[string]string
	fence map[string]coord.Fence
	steps int
}

var errStale = errors.New("a later holder was here")

// begin is the first statement of a transaction: UPDATE orders SET fence = $1 WHERE id = $2 AND
// fence <= $1 RETURNING state.
func (o *orders) begin(id string, fence coord.Fence) (state string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fence < o.fence[id] {
		return "", errStale
	}
	o.fence[id] = fence
	return o.state[id], nil
}

func (o *orders) commit(id, state string, fence coord.Fence) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fence < o.fence[id] {
		return errStale
	}
	o.steps++
	o.state[id] = state
	return nil
}

// An order workflow: events about an order arrive in every process, several times and in no order.
// Each step runs under the order's lock, from the state that the row has, and its token goes in
// before the state is read.
func Example_orderWorkflow() {
	all, stop := processes(3)
	defer stop()
	ctx := context.Background()
	table := &orders{state: map[string]string{}, fence: map[string]coord.Fence{}}
	next := map[string]string{"": "reserved", "reserved": "paid", "paid": "shipped"}

	advance := func(locks *coord.Coordinator, id string) (done bool, err error) {
		err = locks.Do(ctx, "order/"+id, func(_ context.Context, l coord.Lock) error {
			state, err := table.begin(id, l.Fence())
			if err != nil {
				return err
			}
			if done = next[state] == ""; done {
				return nil
			}
			return table.commit(id, next[state], l.Fence()) // and reserve, charge or ship, with ctx
		})
		return done, err
	}

	var work sync.WaitGroup
	for _, locks := range all {
		for i := range 20 {
			work.Go(func() {
				for done, err := false, error(nil); !done; {
					if done, err = advance(locks, fmt.Sprint(i)); err != nil && !errors.Is(err, errStale) {
						fmt.Println(err)
						return
					}
				}
			})
		}
	}
	work.Wait()
	fmt.Println(len(table.state), "orders,", table.steps, "steps, order 7 is", table.state["7"])
	// Output:
	// 20 orders, 60 steps, order 7 is shipped
}
