//go:build unix

package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/leak"
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
	leak.Main(m, goleak.IgnoreCurrent())
}
