package budget

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Limit is the highest cost of one operation of a path.
type Limit struct {
	Path         string
	Allocations  float64
	Instructions float64
}

// Limits are those of all paths, as some version of Go compiles them.
type Limits struct {
	Go    string // without the last number: go1.26
	Paths []Limit
}

const head = `# What one operation may cost: allocations, and instructions of user space. Checked by "make budget", which fails if the
# former are exceeded at all, or the latter by 5 %; written anew by "make budget UPDATE=1", to be committed with the reason.
`

// Of returns a path's limit.
func (l Limits) Of(path string) (Limit, bool) {
	for _, x := range l.Paths {
		if x.Path == path {
			return x, true
		}
	}
	return Limit{}, false
}

// Write writes limits as [Read] reads them.
func (l Limits) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s\n%s\n", head, l.Go)
	for _, x := range l.Paths {
		fmt.Fprintf(b, "%-30s %6.1f %9.0f\n", x.Path, x.Allocations, x.Instructions)
	}
	return b.Flush()
}

// Read reads limits: a line with the version of Go, and one for each path. Empty lines and those
// that begin with # are for people.
func Read(r io.Reader) (Limits, error) {
	var l Limits
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		switch {
		case line == "" || line[0] == '#':
		case l.Go == "":
			l.Go = line
		default:
			var x Limit
			if _, err := fmt.Sscan(line, &x.Path, &x.Allocations, &x.Instructions); err != nil {
				return Limits{}, fmt.Errorf("budget: %q: %w", line, err)
			}
			if _, twice := l.Of(x.Path); twice {
				return Limits{}, fmt.Errorf("budget: two limits of %s", x.Path)
			}
			l.Paths = append(l.Paths, x)
		}
	}
	return l, s.Err()
}
