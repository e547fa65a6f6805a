package lease

import (
	"testing"
	"time"
)

// The first pauses are short. No later one is longer than a seventh of all before it, or than most.
func TestPause(t *testing.T) {
	const most = 5 * time.Second
	if d := Pause(1, most); d != 4*time.Millisecond {
		t.Errorf("the first pause is %v", d)
	}
	n, all, last := 0, time.Duration(0), time.Duration(0)
	for n = 1; ; n++ {
		d := Pause(n, most)
		if d < last {
			t.Errorf("pause %d is %v, after %v", n, d, last)
		}
		if n > 16 && d > all/7 {
			t.Errorf("pause %d is %v, after %v in all", n, d, all)
		}
		all, last = all+d, d
		if d == most {
			break
		}
	}
	if n > 60 {
		t.Errorf("the longest pause is the %dth", n)
	}
	if d := Pause(1000, most); d != most {
		t.Errorf("a pause of %v", d)
	}
}
