package harness

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress is a line on the terminal that says what is being measured and how long it will take. A
// nil one, and one that does not write to a terminal, says nothing.
type progress struct {
	w     io.Writer
	width int

	mu          sync.Mutex // protects what follows
	subject     string
	number, all int       // of the subjects
	begun       time.Time // of a part of the subject, with steps of about the same length
	what        string
	done, total int
	stepped     time.Time
	shown       bool
}

// NewProgress returns one that writes to w if that is a terminal.
func NewProgress(w io.Writer) *progress {
	file, ok := w.(*os.File)
	if !ok {
		return nil
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil
	}
	return &progress{w: w, width: max(int(size.Col), 40)}
}

// Begin is called at the beginning of each subject.
func (p *progress) Begin(subject string, number, all int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subject, p.number, p.all, p.begun = subject, number, all, time.Now()
	p.what, p.done, p.total = "under way", 0, 0
	p.draw()
}

// Step says what is measured now, after done of total parts of the subject.
func (p *progress) Step(what string, done, total int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.done, p.total, p.stepped = what, done, total, time.Now()
	if done == 0 {
		p.begun = p.stepped
	}
	p.draw()
}

// Clear removes the line, for other output.
func (p *progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
	p.subject = ""
}

// draw is called with the mutex.
func (p *progress) draw() {
	if p.subject == "" {
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
