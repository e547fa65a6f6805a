// Package leak is for the TestMain of packages with tests that gossip.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests, and then fails if a goroutine is left. memberlist's outlive its Shutdown by
// a probe, which is longer than goleak waits by itself; nothing is ignored but what opts say.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find returns an error if a goroutine is left in the end.
func Find(opts ...goleak.Option) error {
	err := goleak.Find(opts...)
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find(opts...)
	}
	return err
}
