// Package ordertest holds the tests of the table in docs/http.md: each middleware that surrounds
// those of package middleware, outside of them and inside.
package ordertest
