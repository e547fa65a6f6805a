package coord_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A process that was stopped says so in the record of the session that it lost, and for how long.
func TestLog_AProcessThatStoodStill(t *testing.T) {
	const child = "HOLDFAST_STANDS_STILL"
	if os.Getenv(child) != "" {
		start(t, fallback.NewMemory(), &coord.Options{SessionTTL: time.Second, Grace: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		time.Sleep(time.Minute) // the parent ends it
		return
	}
	takes.Seconds(t)
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	p, err := reexec.Run(log, []string{child + "=1"}, self, "-test.run=^TestLog_AProcessThatStoodStill$")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	find := func(pattern string) []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(pattern).FindStringSubmatch(string(text))
	}
	await.Within(t, time.Minute, "a session", func() bool { return find("session begins") != nil })
	p.Signal(syscall.SIGSTOP)
	time.Sleep(2 * time.Second) // for longer than the session lasts
	p.Signal(syscall.SIGCONT)
	await.Within(t, time.Minute, "the session is lost", func() bool { return find("session lost.*\n") != nil })
	stood := find("session lost.*this process stood still, for (.*?) or more")
	if stood == nil {
		t.Fatal(find("session lost.*"))
	}
	if d, err := time.ParseDuration(stood[1]); err != nil || d < time.Second {
		t.Errorf("it stood still for 2 s, and says %s: %v", stood[1], err)
	}
}
