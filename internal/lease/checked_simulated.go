//go:build simulation || mutants

package lease

// checked tells whether transitions are compared with the tables of legal ones.
const checked = true

// Illegal is called with what a partition must not be. A simulation of a core without one of its guards notes it, and goes on.
var Illegal = func(text string) { panic("lease: " + text) }
