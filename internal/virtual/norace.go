//go:build !race

package virtual

// race tells whether the race detector is on.
const race = false
