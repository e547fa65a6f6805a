//go:build race

package virtual

const race = true
