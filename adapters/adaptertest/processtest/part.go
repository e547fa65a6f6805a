package processtest

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/coordtest"
)

// orderEnv makes a test binary one of the processes: an order.
const orderEnv = "HOLDFAST_ADAPTER_PROCESS"

type order struct{ Addr string }

// The messages between parent and processes, by lines. Those of a process begin with mark, as
// package testing writes to its stdout, too. A section is told by the time of its beginning.
const (
	mark    = "processtest: "
	hold    = "hold" // stay in the next section
	ready   = "ready"
	holds   = "holds"
	overlap = "overlap"
)

// insideKey has the process that is inside.
const insideKey = "processtest:inside"

// part is a process's part in the test.
type part struct {
	t     *testing.T
	id    string
	store *redis.Client
	hold  atomic.Bool
	end   chan struct{} // closed when the parent says so, or is gone
}

func takePart(t *testing.T, text string, work func(*coord.Coordinator, *part)) {
	t.Helper()
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: o.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	p := &part{t: t, id: rand.Text(), store: client, end: make(chan struct{})}
	go func() {
		defer close(p.end)
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			p.hold.Store(s.Text() == hold)
		}
	}()
	arbiter := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	c := coordtest.Start(t, arbiter, &coord.Options{Namespace: "adaptertest", SessionTTL: 2 * time.Second, Grace: 3 * time.Second})
	fmt.Println(mark + ready)
	work(c, p)
}

func (p *part) goesOn() bool {
	select {
	case <-p.end:
		return false
	default:
		return true
	}
}

// inside is the section.
func (p *part) inside() {
	began := time.Now().UnixNano()
	switch first, err := p.store.SetNX(p.t.Context(), insideKey, p.id, 0).Result(); {
	case err != nil:
		p.t.Errorf("the store: %v", err)
		return
	case !first:
		fmt.Println(mark + overlap)
		return
	}
	fmt.Printf("%s%d\n", mark, began)
	if p.hold.Load() {
		fmt.Println(mark + holds)
		<-p.end // it is killed before
	}
	if err := p.store.Del(p.t.Context(), insideKey).Err(); err != nil {
		p.t.Errorf("the store: %v", err)
	}
}
