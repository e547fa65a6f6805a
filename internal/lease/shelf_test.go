package lease

import (
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/handoff"
)

// A process may hold a million keys. The allocator has objects of 240 bytes, and then of 256.
func TestAKeyIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Key{}); size > 240 {
		t.Errorf("a key takes %d bytes, 240 at most", size)
	}
}

// TestShelf_KeepsAFewKeys locks more keys of a partition than its owner keeps.
func TestShelf_KeepsAFewKeys(t *testing.T) {
	now := time.Now()
	cfg := &Config{Began: now, Lease: time.Minute, Handoff: handoff.Limits{Linger: time.Millisecond}}
	p := new(Partition)
	p.Init(cfg, 7)
	p.own = newOwnership(NewSession("s", now.Add(time.Minute)), 1, now)
	lock := func(name string) (*Turn, uint64) {
		t.Helper()
		k := p.Find(name)
		if !p.Good(now) {
			t.Fatal("the owner does not serve")
		}
		if p.Warm(k) {
			return p.Again(k, 0)
		}
		if k != nil || !p.Vacant() {
			t.Fatalf("%s is in use", name)
		}
		return p.Fresh(name, 0)
	}
	unlock := func(turn *Turn, fence uint64) {
		t.Helper()
		var fx Effects
		if p.EndOwn(turn, fence) {
			return
		}
		if _, state := p.Unlock(turn, fence, now, &fx); state != TurnRuns {
			t.Fatalf("the turn is in state %d", state)
		}
		if p.Pending() != nil {
			t.Error("an owner's own key is to be looked after")
			p.Done()
		}
	}
	long, fence := lock("long")
	last := fence
	for i := range 200 {
		turn, token := lock("order-" + strconv.Itoa(i))
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		unlock(turn, token)
		if n := len(p.table.keys); n > shelfSize+1 || p.basis.holds != n {
			t.Fatalf("%d keys and %d holds after %d locks", n, p.basis.holds, i+1)
		}
	}
	if k := p.Find("long"); long.Key(fence) != k || k == nil || p.Turns() != 1 {
		t.Error("the lock that was held meanwhile is not there any more")
	}
	unlock(long, fence)
	for i := range shelfSize - 1 { // they are used again while they are on the shelf
		name := "order-" + strconv.Itoa(199-i)
		k := p.Find(name)
		turn, token := lock(name)
		if turn.Key(token) != k {
			t.Errorf("%s is another entry", name)
		}
		unlock(turn, token)
	}
	if p.Turns() != 0 || len(p.table.keys) != shelfSize || p.basis.holds != shelfSize {
		t.Errorf("%d turns, %d keys, %d holds", p.Turns(), len(p.table.keys), p.basis.holds)
	}
}
