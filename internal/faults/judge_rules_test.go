//go:build unix

package faults

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The judge has to find each violation, and nothing else.
func TestTheJudge(t *testing.T) {
	type said struct {
		worker string
		verb   verb
		token  uint64
	}
	for _, test := range []struct {
		name string
		said []said
		want string // beginnings of the violations, with blanks between
	}{
		{"one after the other", []said{
			{"A", enter, 1}, {"A", write, 1}, {"A", leave, 1}, {"A", nilled, 1},
			{"B", enter, 2}, {"B", leave, 2}, {"B", nilled, 2},
		}, ""},
		{"two that overlap and unlock in order", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"A", leave, 1}, {"A", nilled, 1}, {"B", leave, 2}, {"B", nilled, 2},
		}, "I1"},
		{"one within the other", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"B", leave, 2}, {"B", nilled, 2}, {"A", leave, 1}, {"A", nilled, 1},
		}, "I1"},
		{"within one of long ago", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"B", leave, 2}, {"B", nilled, 2},
			{"C", enter, 3}, {"C", leave, 3}, {"C", nilled, 3}, {"A", leave, 1}, {"A", nilled, 1},
		}, "I1"},
		{"the next one comes in while Unlock is called", []said{
			{"A", enter, 1}, {"A", leave, 1}, {"B", enter, 2}, {"A", nilled, 1}, {"B", leave, 2}, {"B", nilled, 2},
		}, ""},
		{"the first is lost, and was not seen in force afterwards", []said{
			{"A", enter, 1}, {"A", write, 1}, {"B", enter, 2}, {"A", late, 1}, {"A", lost, 1},
			{"B", leave, 2}, {"B", nilled, 2},
		}, ""},
		{"the first is lost, but was seen in force afterwards", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"B", write, 2}, {"A", write, 1}, {"A", write, 1}, {"A", late, 1}, {"A", lost, 1},
			{"B", leave, 2}, {"B", nilled, 2},
		}, "I1"},
		{"the first is stopped before a write that the resource rejects", []said{
			{"A", enter, 1}, {"A", write, 1}, {"B", enter, 2}, {"A", write, 1}, {"A", late, 1}, {"A", lost, 1},
			{"B", leave, 2}, {"B", nilled, 2},
		}, ""},
		{"the second is not seen in force", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"B", late, 2}, {"B", lost, 2}, {"A", leave, 1}, {"A", nilled, 1},
		}, "I1"}, // it was granted, as its token says, while the first was in force
		{"leave is heard, but Unlock says lost", []said{
			{"A", enter, 1}, {"B", enter, 2}, {"A", leave, 1}, {"A", late, 1}, {"A", lost, 1},
			{"B", leave, 2}, {"B", nilled, 2},
		}, ""},
		{"a token that does not rise", []said{
			{"A", enter, 2}, {"A", leave, 2}, {"A", nilled, 2}, {"B", enter, 2}, {"B", leave, 2}, {"B", nilled, 2},
		}, "I2"},
		{"a token that falls", []said{
			{"A", enter, 2}, {"A", leave, 2}, {"A", nilled, 2}, {"B", enter, 1}, {"B", leave, 1}, {"B", nilled, 1},
		}, "I2"},
		{"a lock that was granted before another, and heard of after it", []said{
			{"B", enter, 2}, {"B", leave, 2}, {"B", nilled, 2}, {"A", enter, 1}, {"A", late, 1}, {"A", lost, 1},
		}, ""},
		{"a worker that talks of a lock that it has not got", []said{{"A", write, 1}}, "A:"},
		{"a worker that says what is wrong", []said{{"A", enter, 1}, {"A", broken, 1}}, "A:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJudge(t)
			workers := make(map[string]*witness)
			for _, s := range test.said {
				if workers[s.worker] == nil {
					workers[s.worker] = &witness{j: j, name: s.worker}
				}
				workers[s.worker].hear(statement{Verb: s.verb, Key: "k", Token: s.token}, time.Now())
			}
			found, broken := j.violations()
			got := slices.Concat(found, broken)
			want := strings.Fields(test.want)
			for i := 0; i < max(len(got), len(want)); i++ {
				if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
					t.Fatalf("found %q, want %q", got, want)
				}
			}
		})
	}
}
