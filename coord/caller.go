package coord

import (
	"path"
	"runtime"
	"strconv"
	"strings"
)

// A caller is the place in the program that called for a lock. The zero caller is an unknown place.
type caller struct {
	fence uint64 // of the lock; 0 while the caller waits
	stack [16]uintptr
	label string // of WithLabel
}

// calledFrom returns the place of the call of this package that is under way.
func calledFrom(fence uint64) *caller {
	c := &caller{fence: fence}
	runtime.Callers(3, c.stack[:])
	return c
}

// place returns the first function that is not this module's own, with file and line, or "" if it
// is that of another lock.
func (c *caller) place(fence uint64) string {
	if c == nil || c.fence != fence || c.stack[0] == 0 {
		return ""
	}
	n := 0
	for n < len(c.stack) && c.stack[n] != 0 {
		n++
	}
	frames := runtime.CallersFrames(c.stack[:n])
	first, more := frames.Next()
	for f := first; ; f, more = frames.Next() {
		if !between(f.Function) {
			return placeOf(f)
		}
		if !more {
			return placeOf(first) // a middleware, called by a server
		}
	}
}

func placeOf(f runtime.Frame) string {
	return path.Base(f.Function) + " " + path.Base(f.File) + ":" + strconv.Itoa(f.Line)
}

// between reports whether a function stands between the program and its lock: one of this module's,
// or of a server.
func between(function string) bool {
	if name, ours := strings.CutPrefix(function, "github.com/holdfast-go/holdfast/"); ours {
		p, _, _ := strings.Cut(name, ".")
		return p == "coord" || p == "middleware" || p == "singleflight" || p == "tokens" || p == "internal/workers"
	}
	return strings.HasPrefix(function, "net/http.") || strings.HasPrefix(function, "runtime.")
}

// placeIn returns the place that a seat or a key is tagged with, "" if there is none.
func placeIn(tag any, fence uint64) string {
	c, _ := tag.(*caller)
	return c.place(fence)
}

// noteCaller notes the caller that has a lock.
func (p *partition) noteCaller(l Lock) {
	x := calledFrom(l.fence)
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := l.t.Key(l.fence); k != nil {
		p.Tag(k, x)
	}
}
