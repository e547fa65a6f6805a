//go:build unix

package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/stall"
)

// jobVariable makes the test binary a worker.
const jobVariable = "HOLDFAST_FAULTS_JOB"

// mine are the stalls of this process. In the test's process everything goes slowly then: the judge
// and the proxies.
var mine stall.Watch

// slack returns an addition to the limit of a wait on a busy machine. It is a multiple of this
// process's lateness since late, an earlier mine.Late(): a wait is for many steps in several
// processes. A machine that is idle adds next to nothing.
func slack(late time.Duration) time.Duration { return min(8*(mine.Late()-late), time.Minute) }

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		if err := workAs(text); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	go mine.Run(func(d time.Duration) {
		fmt.Printf("%s the tests' process was stalled for %v\n", time.Now().Format("05.000"), d)
	})
	leak.Main(m, goleak.IgnoreCurrent())
}
