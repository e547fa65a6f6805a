package coord

import (
	"testing"
	"time"
)

func TestOptions_DemoteOfManyRowsMayTakeLonger(t *testing.T) {
	o := &Options{CallTimeout: time.Second}
	for rows, want := range map[int]time.Duration{0: 1, 999: 1, 1000: 2, 2500: 3, 1 << 20: 4} {
		if got := o.demoting(rows); got != want*time.Second {
			t.Errorf("%d rows: %v, want %v s", rows, got, int64(want))
		}
	}
}
