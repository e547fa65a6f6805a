//go:build !simulation && !mutants

package lease

import "time"

// checked tells whether transitions are compared with the tables of legal ones.
const checked = false

// Illegal is not called.
func Illegal(string) {}

// CheckWanted does nothing, as what follows: they look for what must not be.
func (p *Partition) CheckWanted() {}

func (k *Key) checkKnown()                 {}
func (p *Partition) checkCommon(time.Time) {}
func (p *Partition) checkCut(Link)         {}
func (p *Partition) checkSure()            {}
