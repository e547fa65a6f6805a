//go:build !race

package virtual

const race = false
