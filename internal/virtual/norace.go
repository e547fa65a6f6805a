//go:build !race

package virtual

// Race tells whether the race detector is on.
const Race = false
