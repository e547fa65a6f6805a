package coord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/fallback"
)

// Holds that are not exclusive have names of their own: see fallback.Mode. The owner knows those of
// all nodes, and each process its own. They are asked about as keys are, by their names.

// Inspect is [Coordinator.Inspect] of the semaphore: KeyInfo.Shared are the processes that have
// permits.
func (s *Semaphore) Inspect(ctx context.Context) (KeyInfo, error) {
	if s.err != nil {
		return KeyInfo{}, s.err
	}
	info, err := s.c.inspect(ctx, semaphorePrefix+s.key)
	info.Key = s.key
	return info, err
}

// modeOf says the mode of a name to people.
func modeOf(name string) string {
	switch _, m := fallback.Split(name); {
	case m.Reads():
		return modeRead
	case m.Kind == fallback.Permits:
		return fmt.Sprintf("%d of %d permits", m.N, m.Of)
	case m.Kind != fallback.Exclusive:
		return "of a later version"
	}
	return ""
}

// validateName is validateKey for the names in questions of nodes.
func validateName(name string) error {
	if len(name) > peerKeyMax {
		return ErrInvalidKey
	}
	key, _ := fallback.Split(name)
	if rest, ok := strings.CutPrefix(key, semaphorePrefix); ok && rest != "" {
		key = rest // of a semaphore, or of a lock
	}
	return validateKey(key)
}

// peerKeyMax is the length of the longest name.
const peerKeyMax = MaxKey + len(semaphorePrefix) + fallback.NameLen

// partitionNamed returns the partition of a key, or of the key of a name.
func (c *Coordinator) partitionNamed(name string) *partition {
	key, _ := fallback.Split(name)
	return c.partitionOf(key)
}

// namesHere returns the names of the key's holds that are not exclusive, as far as this process
// knows of them.
func (c *Coordinator) namesHere(key string) (names [][]byte) {
	own := append(c.callers.pools.names(key), fallback.DowngradedName(key, c.callers.holder))
	for i := range mostShared {
		own = append(own, c.sharedName(key, i))
	}
	p := c.partitionOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.NamesOf(key, mostWaiters)
	for _, name := range own {
		if len(all) < mostWaiters && p.Knows(name) && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range all {
		if text := []byte(name); hasRoom(names, text) {
			names = append(names, text)
		}
	}
	return names
}

// hasRoom reports whether one more name has room in a question and its answer.
func hasRoom(names [][]byte, one []byte) bool {
	return len(names) < mostWaiters && (len(names)+1)*(2*len(one)+400) <= maxText
}

// readers returns how many callers of this process share the lock.
func (x *reading) readers() int {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	n := x.count.n
	for i := range x.seats {
		for j := range x.seats[i].at {
			n += int(x.seats[i].at[j].Load() & seatTaken)
		}
	}
	return n
}

// labels returns the labels of callers that share the lock, sorted, mostWaiters at most.
func (x *reading) labels() (all []string) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	for _, f := range x.followed {
		if f.label != "" {
			all = append(all, f.label)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), mostWaiters)]
}

// waitToRead returns how many callers of this process wait to read a key, and the labels of the
// first of them that have one.
func (c *Coordinator) waitToRead(key string) (n int, labels []string) {
	s := c.shardOf(readHash(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[key]
	if f == nil || f.ended {
		return 0, nil
	}
	for _, label := range f.labels[:min(len(f.labels), mostWaiters)] {
		labels = append(labels, *label)
	}
	return f.n, labels
}

// named notes names that a process knows.
func (x *inspection) named(names [][]byte) {
	for _, name := range names {
		if key, _ := fallback.Split(string(name)); key != x.info.Key || !fallback.IsName(string(name)) || !hasRoom(x.names, name) {
			continue
		}
		if !slices.ContainsFunc(x.names, func(n []byte) bool { return string(n) == string(name) }) {
			x.names = append(x.names, name)
		}
	}
}

// tellShared tells of the holds that are not exclusive. It asks the owner, or if there is none the
// others, and then those that they name.
func (x *inspection) tellShared(ctx context.Context, others []string) {
	if len(x.names) == 0 {
		return
	}
	slices.SortFunc(x.names, slices.Compare)
	if x.info.Owner != nil {
		others = []string{x.info.Owner.Session}
	}
	parts := make(map[string]answered)
	x.askNames(ctx, others, parts)
	var more []string
	for _, a := range parts {
		for i := range a.keys {
			if g := a.keys[i].Given; g != nil {
				more = append(more, g.Session)
			}
			more = append(more, a.keys[i].Queue...)
		}
	}
	x.askNames(ctx, more, parts)
	for i, name := range x.names {
		x.tellName(string(name), i, parts)
	}
}

// answered is a process's answer about the names.
type answered struct {
	Process
	keys []keyPart // as inspection.names
}

// askNames asks processes about the names, those that were not asked yet.
func (x *inspection) askNames(ctx context.Context, sessions []string, parts map[string]answered) {
	q := question{About: "keys", Keys: x.names}
	var mu mutex[leafRank] // protects parts
	var work sync.WaitGroup
	asked := make(map[string]bool)
	for _, session := range sessions {
		mu.Lock()
		_, known := parts[session]
		mu.Unlock()
		if session == "" || known || asked[session] {
			continue
		}
		asked[session] = true
		work.Go(func() {
			a, err := reply{}, errNoNode
			if session == x.c.sessions.id() {
				a, err = x.c.answer(ctx, q), nil
			} else if l := x.c.cluster.linkTo(session); l != nil {
				a, err = x.c.askLink(ctx, l, q)
			}
			v := answered{Process: a.Process, keys: a.Keys}
			if err == nil && len(a.Keys) != len(x.names) {
				err = errAnswer
			}
			if err != nil {
				v = answered{Process: x.process(session)}
			}
			mu.Lock()
			defer mu.Unlock()
			parts[session] = v
			if err != nil && !slices.ContainsFunc(x.info.Unanswered, func(u Unanswered) bool { return u.Session == session }) {
				x.missed(seen{Process: v.Process, err: err})
			}
		})
	}
	work.Wait()
}

// tellName tells of one of the names.
func (x *inspection) tellName(name string, i int, parts map[string]answered) {
	mode := modeOf(name)
	permits, of := 0, 0
	if _, m := fallback.Split(name); m.Kind == fallback.Permits {
		permits, of = int(m.N), int(m.Of)
	}
	sessions := make([]string, 0, len(parts))
	for session := range parts {
		sessions = append(sessions, session)
	}
	slices.Sort(sessions)
	given := make(map[string]*givenPart)
	for _, a := range parts {
		if len(a.keys) > 0 && a.keys[i].Given != nil {
			given[a.keys[i].Given.Session] = a.keys[i].Given
		}
	}
	for _, session := range sessions {
		a, g := parts[session], given[session]
		if len(a.keys) == 0 {
			if g != nil {
				x.info.Shared = append(x.info.Shared, KeyHolder{
					Process: a.Process, Mode: mode, Fence: g.Token, Since: x.c.ago(g.Held), Permits: permits, Of: of, name: name,
				})
			}
			continue
		}
		v := &a.keys[i]
		if v.Locked || v.Kept || g != nil {
			free := v.Free
			if !v.Locked { // a block between its last caller and its release, too
				free = permits
			}
			x.info.Shared = append(x.info.Shared, KeyHolder{
				Process: a.Process, Mode: mode, Locked: v.Locked, Fence: v.Fence, Turns: v.Turns, Since: x.c.ago(v.Held), Readers: v.Readers,
				Label: v.Label, Labels: v.Reading, Permits: permits, Of: of, Free: free, name: name,
			})
		}
		if v.Waiting > 0 {
			w := KeyWaiter{Process: a.Process, Mode: mode, Callers: v.Waiting, Since: x.c.ago(v.Waited), Labels: v.Labels, Permits: permits, Of: of}
			x.info.Waiters = append(x.info.Waiters, w)
		}
	}
}
