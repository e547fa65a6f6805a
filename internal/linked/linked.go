// Package linked tests that a program links only packages that it uses.
package linked
