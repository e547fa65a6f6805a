//go:build !linux

package coord

import (
	"testing"
	"time"
)

func threadTime(testing.TB) time.Duration { return 0 }
