// Package takes leaves out what takes long, and lets what waits run side by side.
package takes

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
)

// Seconds skips a test that takes seconds, with -short.
func Seconds(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// SideBySide lets n parallel tests run at a time where there are fewer processors, unless the
// command says how many: they wait more than they compute. With -short they wait for most of their
// time, and three times as many run. It is for TestMain.
func SideBySide(n int) {
	flag.Parse()
	if testing.Short() {
		n *= 3
	}
	cores := runtime.GOMAXPROCS(0)
	if f := flag.Lookup("test.parallel"); cores < n && f.Value.String() == strconv.Itoa(cores) {
		_ = f.Value.Set(strconv.Itoa(n))
	}
}
