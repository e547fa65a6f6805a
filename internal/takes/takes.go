// Package takes leaves out what takes long.
package takes

import "testing"

// Seconds skips a test that takes seconds, with -short.
func Seconds(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}
