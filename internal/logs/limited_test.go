package logs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/logs"
)

func TestLimited_OneRecordPerMessageAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := logs.Limit(slog.New(slog.NewTextHandler(&b, nil)))
		for i := range 1000 {
			l.Warn("a", "i", i)
			l.Error("b")
		}
		time.Sleep(logs.Every)
		l.Warn("a", "i", 1000)
		l.Info("a") // the message counts, not the level
		time.Sleep(logs.Every)
		l.Info("a")
		var got []string
		for line := range strings.Lines(b.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "level=")
			got = append(got, text)
		}
		want := []string{"WARN msg=a i=0", "ERROR msg=b", "WARN msg=a i=1000 suppressed=999", "INFO msg=a suppressed=1"}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
