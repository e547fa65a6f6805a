package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

var searches = flag.Int("sim.searches", 20, "how many random `runs` TestSearch_NoneWaitsForLong has")

// Processes are killed, leave, start, and start again under their names, at random; workers of the
// others lock random keys. None waits for longer than a fifth above Takeover. One process at a
// time dies, as two of a session's guardians may be among two; and none in its first half second,
// as a session without guardians ends by its expiry.
func TestSearch_NoneWaitsForLong(t *testing.T) {
	for i := range uint64(*searches) {
		t.Run(fmt.Sprint(*seed+i), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				s := &search{t: t, net: newNetwork(*seed + i), memory: fallback.NewMemory(), random: rand.New(rand.NewPCG(*seed+i, 0)), began: time.Now()}
				s.net.bad = t.Errorf
				s.run()
				if t.Failed() {
					t.Log(s.told)
				}
			})
		})
	}
}

const (
	searchTakeover = 3 * time.Second
	searchKeys     = 40
)

// A search is one random run.
type search struct {
	t      *testing.T
	net    *network
	memory *fallback.Memory
	random *rand.Rand
	began  time.Time
	told   []string // its events

	living []*searched
	gone   []string // names that may start again
	number int
	work   sync.WaitGroup // workers, and processes that leave
	buries []func()
}

// A searched is a process with two workers.
type searched struct {
	name string
	c    *coord.Coordinator
	h    *host
	born time.Time
	dead chan struct{} // closed: it does not reach the arbiter
	stop context.CancelFunc
}

func (s *search) say(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf("%.2f s: ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

func (s *search) run() {
	for range 3 + s.random.IntN(3) {
		s.start(fmt.Sprint("node", s.number))
	}
	time.Sleep(time.Minute)
	var died time.Time
	kill := func(i int) {
		died = time.Now()
		s.kill(s.take(i))
	}
	start := func(name string) {
		s.start(name)
		if s.random.IntN(3) == 0 && time.Since(died) > 3*searchTakeover { // it crashes soon
			time.Sleep(searchTakeover/6 + time.Duration(s.random.Int64N(int64(searchTakeover))))
			kill(len(s.living) - 1)
		}
	}
	for range 12 {
		time.Sleep(time.Duration(s.random.Int64N(int64(2 * searchTakeover))))
		i := s.random.IntN(len(s.living))
		switch kind := s.random.IntN(6); {
		case kind < 2 && len(s.living) > 2 && time.Since(died) > 3*searchTakeover && time.Since(s.living[i].born) > searchTakeover/6:
			kill(i)
		case kind == 2 && len(s.living) > 2:
			s.leave(s.take(i))
		case kind == 3 && len(s.living) < 6:
			start(fmt.Sprint("node", s.number))
		case len(s.gone) > 0:
			name := s.gone[0]
			s.gone = s.gone[1:]
			start(name)
		}
	}
	time.Sleep(10 * time.Second)
	for _, p := range s.living {
		p.stop()
	}
	s.work.Wait()
	for _, p := range s.living {
		_ = p.c.Close(s.t.Context())
		s.buries = append(s.buries, func() { p.h.die(); p.h.bury() })
	}
	for _, bury := range s.buries {
		bury()
	}
}

func (s *search) take(i int) *searched {
	p := s.living[i]
	s.living = slices.Delete(s.living, i, i+1)
	s.gone = append(s.gone, p.name)
	return p
}

func (s *search) start(name string) {
	s.say("%s starts", name)
	s.number++
	p := &searched{name: name, born: time.Now(), dead: make(chan struct{})}
	p.c, p.h = startOne(s.t, s.net, &mortal{Memory: s.memory, gone: p.dead}, s.number, name, &coord.Options{Cluster: &coord.Cluster{Takeover: searchTakeover}})
	ctx, stop := context.WithCancel(s.t.Context())
	p.stop = stop
	s.living = append(s.living, p)
	for worker := range uint64(2) {
		random := rand.New(rand.NewPCG(s.random.Uint64(), worker))
		s.work.Go(func() { s.lock(ctx, p, random) })
	}
}

// lock locks keys, and tells of a long wait.
func (s *search) lock(ctx context.Context, p *searched, random *rand.Rand) {
	for ctx.Err() == nil {
		key := fmt.Sprint("key", random.IntN(searchKeys))
		begin := time.Now()
		l, err := p.c.Lock(ctx, key)
		if took := time.Since(begin); took > searchTakeover+searchTakeover/5 && begin.Sub(s.began) > 30*time.Second {
			s.t.Errorf("%s waited for %v for %s, since %.2f s: %v", p.name, took, key, begin.Sub(s.began).Seconds(), err)
		}
		if err == nil {
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
			_ = l.Unlock()
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
	}
}

func (s *search) kill(p *searched) {
	s.say("%s is killed", p.name)
	p.stop()
	close(p.dead)
	p.h.die()
	s.buries = append(s.buries, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.c.Close(ctx)
		p.h.bury()
	})
}

func (s *search) leave(p *searched) {
	s.say("%s leaves", p.name)
	p.stop()
	s.work.Go(func() {
		begin := time.Now()
		if err := p.c.Close(context.Background()); err != nil {
			s.t.Errorf("%s: %v", p.name, err)
		}
		if took := time.Since(begin); took > 2*searchTakeover {
			s.t.Errorf("%s took %v to leave", p.name, took)
		}
		p.h.die()
		p.h.bury()
	})
}
