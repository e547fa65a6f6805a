//go:build unix

package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// jobVariable makes the test binary a worker.
const jobVariable = "HOLDFAST_FAULTS_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		if err := workAs(text); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	go mine.watch(func(d time.Duration) {
		fmt.Printf("%s the tests' process was stalled for %v\n", time.Now().Format("05.000"), d)
	})
	// The gossip's goroutines outlive a node by a probe, which is longer than goleak waits.
	before := goleak.IgnoreCurrent()
	code := m.Run()
	if code == 0 {
		err := goleak.Find(before)
		for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find(before)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
