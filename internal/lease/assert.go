//go:build !simulation && !mutants

package lease

import "time"

// simulated reports whether transitions are compared with the tables of legal ones.
const simulated = false

// Illegal is not called.
func Illegal(string) {}

// AssertWanted does nothing, as the functions below: they look for illegal states.
func (p *Partition) AssertWanted() {}

func (k *Key) assertKnown()                 {}
func (p *Partition) assertCommon(time.Time) {}
func (p *Partition) assertCut(Link)         {}
func (p *Partition) assertSure()            {}
func (h *hold) assertHeld() bool            { return true }
