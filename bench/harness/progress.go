package harness

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress is a line on the terminal with the current measurement and the time that it will take.
// One without a width, which does not write to a terminal, says nothing.
type progress struct {
	w     io.Writer
	width int

	mu          sync.Mutex // protects the fields below
	subject     string
	number, all int       // of the subjects
	begun       time.Time // of a part of the subject, with steps of about the same length
	what        string
	done, total int
	stepped     time.Time
	shown       bool
}

// newProgress returns one that writes to w if that is a terminal.
func newProgress(w io.Writer) *progress {
	if file, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			return &progress{w: w, width: max(int(size.Col), 40)}
		}
	}
	return new(progress)
}

// Begin is called at the beginning of each subject.
func (p *progress) Begin(subject string, number, all int) {
	p.mu.Lock()
	p.subject, p.number, p.all = subject, number, all
	p.mu.Unlock()
	p.Step("under way", 0, 0)
}

// Step shows the current measurement, after done of total parts of the subject.
func (p *progress) Step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.done, p.total, p.stepped = what, done, total, time.Now()
	if done == 0 {
		p.begun = p.stepped
	}
	if p.subject == "" || p.width == 0 {
		return
	}
	line := fmt.Sprintf("%d/%d %s: %s", p.number, p.all, p.subject, p.what)
	if p.total > 0 {
		line += fmt.Sprintf(", %d/%d", min(p.done+1, p.total), p.total)
		if p.done > 0 {
			// As if all parts took equally long.
			whole := p.stepped.Sub(p.begun) * time.Duration(p.total) / time.Duration(p.done)
			left := max(whole-time.Since(p.begun), 0)
			line += fmt.Sprintf(", about %v left", left.Round(time.Second))
		}
	}
	if text := []rune(line); len(text) > p.width-1 { // a longer one would not be removed
		line = string(text[:p.width-1])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.shown = true
}

// Clear removes the line, for other output.
func (p *progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
	p.subject = ""
}
