package reexec_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

func TestRun(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := reexec.Again(log, []string{"env"}, variable, `{"Text":"hello"}`)
	if err != nil {
		t.Fatal(err)
	}
	if ended, _ := p.Ended(); ended {
		t.Error("it has not waited for the end of its input")
	}
	if err := p.End(time.Minute); err != nil {
		t.Error(err)
	}
	if err := p.End(time.Minute); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "hello\n") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := reexec.Run(log, nil, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a program that is not there was started")
	}
}

func TestProcess_Ends(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, test := range []struct {
		how  string
		end  func(p *reexec.Process) error
		want string
	}{
		{"a signal", func(p *reexec.Process) error { return p.End(time.Minute, syscall.SIGTERM) }, "signal: terminated"},
		{"too late", func(p *reexec.Process) error { return p.End(time.Millisecond) }, "has not ended after 1ms: signal: "},
		{"a crash", func(p *reexec.Process) error { p.Kill(); _, err := p.Ended(); return err }, "signal: killed"},
	} {
		p, err := reexec.Run(log, nil, "sleep", "600")
		if err != nil {
			t.Fatal(err)
		}
		if err := test.end(p); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.how, err)
		}
	}
}
