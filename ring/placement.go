// Package ring computes which node should own which partition, from the nodes that there are.
//
// A [Placement] is a pure function of the members: every node that sees the same members computes
// the same owners, and a [Placement.Fingerprint] tells two nodes whether they did. It is a hint.
// The arbiter alone decides which node owns a partition; a wrong ring costs time, never safety.
//
// A [Membership] lists the nodes; package gossip has one. A node's description of itself reaches
// all others within a second and is in their next [View] at once. When the set of active nodes has
// not changed for a while (Options.Debounce), each node computes the Placement anew. The next View
// has it, too.
package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Parameters of the placement. Nodes with other parameters have other fingerprints, and do not hand
// partitions to each other.
const (
	// Algorithm is the version of the placement. It covers this package and the libraries that it
	// rests on: golden vectors in testdata fix it. Nodes with another version are Incompatible.
	Algorithm = 2

	load        = 1.25 // no node owns more than ceil(partitions / members * load)
	replication = 100  // points of a member on the circle
)

// A Placement is an immutable table of owners. Looking up takes no lock and allocates nothing; keep
// the current one in an atomic.Pointer.
type Placement struct {
	members     []string // sorted
	owners      []uint16 // by partition: index of the member
	fingerprint uint64
}

// Place computes the owners of the partitions 0 to partitions-1 among members: consistent hashing
// with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016), as github.com/buraksezer/consistent
// does it. The order of members does not matter. Without members no partition has an owner.
//
// A member's place on the circle is that of its process's name (see [Process]), if no other member
// has it: a process that starts again under its name has the partitions that it had.
func Place(members []string, partitions int) (*Placement, error) {
	if partitions < 1 || partitions > 1<<16 {
		return nil, fmt.Errorf("ring: %d partitions, must be 1 to 65,536", partitions)
	}
	sorted := slices.Sorted(slices.Values(members))
	switch {
	case len(slices.Compact(slices.Clone(sorted))) != len(sorted):
		return nil, errors.New("ring: two members have the same name")
	case len(sorted) > 1<<16-1:
		return nil, fmt.Errorf("ring: %d members, must be less than 65,536", len(sorted))
	}
	p := &Placement{members: sorted, fingerprint: fingerprint(sorted, partitions)}
	if len(sorted) == 0 {
		return p, nil
	}
	index := slots(sorted)
	p.owners = make([]uint16, partitions)
	for i, slot := range owners(slices.Sorted(maps.Keys(index)), partitions) {
		p.owners[i] = index[slot]
	}
	return p, nil
}

// placeSlots returns the owner of each partition, among the members' sorted places on the circle.
func placeSlots(slots []string, partitions int) []string {
	nodes := make([]consistent.Member, 0, len(slots))
	for _, slot := range slots {
		nodes = append(nodes, member(slot))
	}
	// All at once and in order: where two points of the circle coincide the last one wins, so that
	// adding members one by one could end differently on two nodes.
	circle := consistent.New(nodes, consistent.Config{
		Hasher: hasher{}, PartitionCount: partitions, ReplicationFactor: replication, Load: load,
	})
	list := make([]string, partitions)
	for i := range list {
		list[i] = circle.GetPartitionOwner(i).String()
	}
	return list
}

// slots returns the index of each member by its place on the circle: its process's name and the
// slash, or its own name where several members have that process's name.
func slots(sorted []string) map[string]uint16 {
	index, same := make(map[string]uint16, len(sorted)), make(map[string]int)
	for _, name := range sorted {
		same[Process(name)]++
	}
	for i, name := range sorted {
		slot := name
		if p := Process(name); same[p] == 1 {
			slot = name[:min(len(p)+1, len(name))]
		}
		index[slot] = uint16(i)
	}
	return index
}

// Process returns the name of a node's process: the node's name before its last slash. The rest
// differs from start to start.
func Process(node string) string {
	if i := strings.LastIndexByte(node, '/'); i >= 0 {
		return node[:i]
	}
	return node
}

// Owner returns the member that should own the partition; false if there is none.
func (p *Placement) Owner(partition uint32) (string, bool) {
	if int64(partition) >= int64(len(p.owners)) {
		return "", false
	}
	return p.members[p.owners[partition]], true
}

// Members returns the members, sorted. The caller must not change it.
func (p *Placement) Members() []string { return p.members }

// Fingerprint is equal for two placements exactly if they have the same members, partitions and
// parameters, up to collisions of a 64-bit hash.
func (p *Placement) Fingerprint() uint64 { return p.fingerprint }

func fingerprint(sorted []string, partitions int) uint64 {
	h := xxhash.New()
	var b []byte
	b = binary.AppendUvarint(b, Algorithm)
	b = binary.AppendUvarint(b, uint64(partitions))
	b = binary.AppendUvarint(b, uint64(load*100))
	b = binary.AppendUvarint(b, replication)
	for _, m := range sorted {
		b = binary.AppendUvarint(b, uint64(len(m)))
		b = append(b, m...)
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

type member string

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
