package fallback

import (
	"cmp"
	"maps"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Snapshot is a copy of a Memory's state: a replica that stopped following.
type Snapshot struct {
	spaces map[string]*memorySpace
}

// Snapshot copies the state.
func (a *Memory) Snapshot() *Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Snapshot{cloneSpaces(a.spaces)}
}

// Restore makes the Memory another server, as after a failover: it has the state of the snapshot,
// and lost everything later. A nil snapshot is a server that restarted empty. Messages under way
// are lost.
func (a *Memory) Restore(s *Snapshot) { a.RestoreSessions(s, func(uint32) bool { return true }) }

// RestoreSessions is Restore of the server of the sessions, and of some partitions: the one of the
// others stays as it is.
func (a *Memory) RestoreSessions(s *Snapshot, which func(p uint32) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server++
	before, were := a.name, a.apart
	a.name, a.apart = memoryName(a.server), make(map[uint32]string)
	for name, now := range a.spaces {
		// A namespace keeps its settings: they belong to the processes that are attached.
		opened, parts := now.opened, now.parts
		*now = memorySpace{settings: now.settings, secrets: now.secrets, parts: make([]Partition, now.settings.Partitions)}
		if s != nil && s.spaces[name] != nil {
			*now = *s.spaces[name].clone()
			now.keep(opened)
		}
		for p := range parts {
			if !which(uint32(p)) {
				now.parts[p] = parts[p]
				a.apart[uint32(p)] = cmp.Or(were[uint32(p)], before)
			}
		}
	}
	for _, l := range a.listeners {
		l.gap()
	}
}

// replicate is called when a session counts: all replicas have it as it was opened, if that is how
// the namespace was made.
func (s *memorySpace) replicate(id string) {
	if _, known := s.opened[id]; known || !s.sessions.opened() || !guard.OnReplicas {
		return
	}
	if s.opened == nil {
		s.opened = make(map[string]Member)
	}
	s.opened[id] = s.sessions.Members[id]
}

// keep adds the sessions that were opened after the state was copied.
func (s *memorySpace) keep(opened map[string]Member) {
	for id, x := range opened {
		if _, known := s.opened[id]; !known && s.sessions.opened() {
			s.sessions.put(id, x)
		}
	}
	s.opened = opened
}

// RestorePartitions is Restore of the server of some partitions: the one of the sessions, and of
// the others, stays as it is.
func (a *Memory) RestorePartitions(s *Snapshot, which func(p uint32) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server++
	was := a.apart
	a.apart = maps.Clone(was)
	if a.apart == nil {
		a.apart = make(map[uint32]string)
	}
	for name, now := range a.spaces {
		for p := range now.parts {
			if !which(uint32(p)) {
				continue
			}
			a.apart[uint32(p)] = memoryName(a.server)
			if now.parts[p] = (Partition{}); s != nil && s.spaces[name] != nil {
				now.parts[p] = *s.spaces[name].parts[p].Clone()
			}
		}
	}
	for _, l := range a.listeners {
		l.gap()
	}
}

// Fork returns a Memory with the same state and identity, which no session listens to: a server
// that was deposed, and goes on.
func (a *Memory) Fork() *Memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Memory{server: a.server, name: a.name, openings: a.openings, apart: maps.Clone(a.apart), ahead: a.ahead, spaces: cloneSpaces(a.spaces), listeners: make(map[[2]string]*listener)}
}

// of is the moment of an operation on a partition.
func (a *Memory) of(m Moment, p uint32) Moment {
	if name := a.apart[p]; name != "" {
		m.Server, m.Process = name, name
		m.Now += (a.ahead[name] - a.ahead[a.name]).Milliseconds()
	}
	return m
}

// Rewind gives the Memory the state of the snapshot, and keeps its identity: as when a backup is
// restored into a server that runs.
func (a *Memory) Rewind(s *Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, now := range a.spaces {
		if s.spaces[name] != nil {
			*now = *s.spaces[name].clone()
		}
	}
}

// RewindSessions is Rewind of the tables of sessions only.
func (a *Memory) RewindSessions(s *Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, now := range a.spaces {
		if s.spaces[name] != nil {
			now.sessions = *s.spaces[name].sessions.Clone()
		}
	}
}

func cloneSpaces(m map[string]*memorySpace) map[string]*memorySpace {
	c := make(map[string]*memorySpace, len(m))
	for name, s := range m {
		c[name] = s.clone()
	}
	return c
}

func (s *memorySpace) clone() *memorySpace {
	c := &memorySpace{settings: s.settings, secrets: s.secrets, sessions: *s.sessions.Clone(), opened: maps.Clone(s.opened), results: s.results.clone()}
	for i := range s.parts {
		c.parts = append(c.parts, *s.parts[i].Clone())
	}
	return c
}
