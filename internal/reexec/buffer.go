package reexec

import (
	"bytes"
	"sync"
)

// A Buffer keeps the output of several workers. The zero value is empty; its methods are safe for
// concurrent use.
type Buffer struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
