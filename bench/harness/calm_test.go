package harness

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTicks(t *testing.T) {
	read := func(line string) ticks {
		file := filepath.Join(t.TempDir(), "stat")
		if err := os.WriteFile(file, []byte(line+"\ncpu0 1 2 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readTicks(file)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	a, b := read("cpu  100 0 50 800 50 0 0 0 70 0"), read("cpu  110 0 65 850 75 0 0 0 99 0")
	if a != (ticks{all: 1000, idle: 850}) || b.busyness(a) != 0.25 {
		t.Errorf("%+v, %+v, busy %v", a, b, b.busyness(a))
	}
	if _, err := readTicks(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there")
	}
}
