package coord_test

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Other programs read JSON numbers as floating point, which would make two tokens one.
func TestFence_IsExactInJSONAndLogs(t *testing.T) {
	const f coord.Fence = 848_000_000<<32 | 1
	text, err := json.Marshal(map[string]any{"fence": f})
	if want := fmt.Sprintf(`{"fence":"%d"}`, uint64(f)); err != nil || string(text) != want {
		t.Errorf("JSON is %s, %v; want %s", text, err, want)
	}
	var back struct{ Fence coord.Fence }
	if err := json.Unmarshal(text, &back); err != nil || back.Fence != f {
		t.Errorf("back from JSON: %v, %v", back.Fence, err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "fence", f)
	if want := fmt.Sprintf(`"fence":"%d"`, uint64(f)); !strings.Contains(log.String(), want) {
		t.Errorf("the log has %s, not %s", log.String(), want)
	}
	if s := fmt.Sprint(f); s != fmt.Sprint(uint64(f)) {
		t.Errorf("printed as %s", s)
	}
}

// A token tells no age: its upper half is when the key's partition last changed hands, however long
// ago. docs/fencing.md explains the effect on rows that have it.
func TestFence_TellsNoAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
		if err != nil {
			t.Fatal(err)
		}
		token := func() coord.Fence {
			l, err := c.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
			return l.Fence()
		}
		before := token()
		time.Sleep(10 * time.Minute)
		if now := token(); now <= before || now>>32 != before>>32 {
			t.Errorf("%d, and %d ten minutes later", before, now)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFence_Value(t *testing.T) {
	var v driver.Valuer = coord.Fence(math.MaxInt64)
	if got, err := v.Value(); err != nil || got != int64(math.MaxInt64) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := coord.Fence(math.MaxInt64 + 1).Value(); err == nil {
		t.Errorf("2^63 is %v", got)
	}
}

func TestFence_UnmarshalTextRefuses(t *testing.T) {
	for _, text := range []string{"", "-1", "+1", " 1", "0x1", "1e3", "18446744073709551616", "1_000"} {
		f := coord.Fence(7)
		if err := f.UnmarshalText([]byte(text)); err == nil || f != 7 {
			t.Errorf("%q is %v, %v", text, f, err)
		}
	}
}
