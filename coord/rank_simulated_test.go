//go:build simulation || mutants

package coord

import "testing"

func TestLockOrder(t *testing.T) {
	defer func(every uint32) { order.every = every }(order.every)
	order.every = 1
	var outer mutex[clusterRank]
	var part, other mutex[partitionRank]
	var inner mutex[linkRank]
	outer.Lock()
	part.Lock()
	inner.Lock()
	inner.Unlock()
	part.Unlock()
	outer.Unlock()
	inner.Lock()
	done := make(chan bool)
	go func() { // another goroutine holds nothing
		part.Lock()
		part.Unlock() //nolint:staticcheck // that it can be had
		close(done)
	}()
	<-done
	inner.Unlock()
	for name, m := range map[string][2]interface{ Lock() }{
		"against the order": {&inner, &outer},
		"two of one rank":   {&part, &other},
	} {
		t.Run(name, func(t *testing.T) {
			defer m[0].(interface{ Unlock() }).Unlock()
			m[0].Lock()
			defer func() {
				if recover() == nil {
					t.Error("not noticed")
				}
			}()
			m[1].Lock()
		})
	}
}
