package fallback

import (
	"fmt"
	"strings"
	"time"
)

// Mark returns the format mark of the namespace. It has each setting that would make two processes
// read the same record in two ways.
func (s Settings) Mark(guarded bool) string {
	return fmt.Sprintf("holdfast/1 hash=xxh64 partitions=%d grace=%s guarded=%t", s.Partitions, s.Grace, guarded)
}

// openedOnAll is how the mark of a namespace begins in which a session counts once all replicas of
// the server have it. Versions that do not know it refuse it.
const openedOnAll = "holdfast/2 openings=all"

// MarkOpenings makes a mark that of a namespace in which a session counts once all replicas of the
// server have it (E7): see Rounder.Openings.
func MarkOpenings(mark string) string { return strings.Replace(mark, "holdfast/1", openedOnAll, 1) }

// CutOpenings is the inverse of MarkOpenings. It reports false for the mark of another namespace,
// which it returns as it is.
func CutOpenings(mark string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(mark, openedOnAll); ok {
		return "holdfast/1" + rest, true
	}
	return mark, false
}

// mark is Mark with another Grace.
func (s Settings) mark(grace time.Duration) string {
	s.Grace = grace
	return s.Mark(true)
}

// Adopt returns the settings that are in force at first in a namespace with that mark: all its
// processes use the longest Grace that one needs.
func (s Settings) Adopt(mark string, guarded bool) (Settings, error) {
	theirs, ours := markFields(mark), markFields(s.Mark(guarded))
	grace, err := time.ParseDuration(theirs["grace"])
	if err != nil {
		return s, s.Mismatch(mark, guarded)
	}
	for _, name := range []string{"", "hash", "partitions", "guarded"} {
		if theirs[name] != ours[name] {
			return s, s.Mismatch(mark, guarded)
		}
	}
	if s.Lease == 0 && grace != s.Grace {
		return s, s.Mismatch(mark, guarded)
	}
	s.Grace = max(s.Grace, grace)
	return s, nil
}

// markFields takes a mark apart. The version has no name.
func markFields(mark string) map[string]string {
	fields := make(map[string]string)
	for f := range strings.FieldsSeq(mark) {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			name, value = "", f
		}
		fields[name] = value
	}
	return fields
}

// Mismatch returns an [ErrMismatch] that names each difference, and its remedy.
func (s Settings) Mismatch(mark string, guarded bool) error {
	theirs, ours := markFields(mark), markFields(s.Mark(guarded))
	var what []string
	add := func(name, advice string) {
		if theirs[name] != ours[name] {
			what = append(what, fmt.Sprintf(advice, theirs[name], ours[name]))
		}
	}
	add("", "it has format %q, this version of Holdfast %q: use a version that knows it, or another Namespace")
	add("hash", "it has hash %q, this version of Holdfast %q: use a version that knows it, or another Namespace")
	add("partitions", "it has Partitions %s, this process %s: set Partitions to the former; to change them, see docs/operations.md")
	if s.Lease == 0 {
		add("grace", "it has Grace %s, this process %s: set Grace to the former; to change it, see docs/operations.md")
	}
	add("guarded", "it has guarded=%s, this process guarded=%s: permit INFO to all users of the namespace, or to none")
	return fmt.Errorf("%w: namespace %q: %s", ErrMismatch, s.Namespace, strings.Join(what, "; "))
}
