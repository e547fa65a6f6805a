// Package linked has the tests of what a program links: only what it uses.
package linked
