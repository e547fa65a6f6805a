package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func newLedger(fenced bool) *ledger {
	return &ledger{fenced: fenced, open: make(map[string]struct{})}
}

// play makes a ledger judge a script. "r a" is a read of section a; "w a" writes one item more than
// a has read, "w a 7" with token 7; "l a" leaves.
func play(t *testing.T, l *ledger, script string) {
	t.Helper()
	read := make(map[string]record)
	for line := range strings.SplitSeq(script, ";") {
		var verb, section string
		var fence uint64
		n, _ := fmt.Sscan(line, &verb, &section, &fence)
		switch {
		case n < 2:
			t.Fatalf("%q", line)
		case verb == "r":
			read[section] = l.read(section)
		case verb == "w":
			if err := l.write(section, record{Items: read[section].Items + 1}, fence); err != nil && !errors.Is(err, errFence) {
				t.Fatalf("%q: %v", line, err)
			}
		case verb == "l":
			l.leave(section)
		}
	}
}

func TestReferee(t *testing.T) {
	for _, test := range []struct {
		name, script string
		fenced       bool
		want         findings
	}{
		{name: "one after another", script: "r a;w a;r b;w b;r c;w c", want: findings{writes: 3, items: 3}},
		{name: "one overwrites the other", script: "r a;r b;w a;w b", want: findings{writes: 2, items: 1, broken: 1, overlaps: 1}},
		{
			name:   "a late one overwrites three",
			script: "r late;r a;w a;r b;w b;r c;w c;w late",
			want:   findings{writes: 4, items: 1, broken: 1, overlaps: 3},
		},
		{
			name:   "lost twice",
			script: "r a;r b;w a;w b;r c;w c;r d;r e;r f;w d;w e;w f",
			want:   findings{writes: 6, items: 3, broken: 3, overlaps: 3},
		},
		{
			name:   "a late one, and one that brings back what it overwrote",
			script: "r late;r a;w a;r b;w b;r c;w late;w c",
			want:   findings{writes: 4, items: 3, broken: 2, overlaps: 3},
		},
		{name: "an overlap that loses nothing", script: "r a;r b;l b;w a", want: findings{writes: 1, items: 1, overlaps: 1}},
		{name: "one that leaves is not waited for", script: "r a;l a;r b;w b", want: findings{writes: 1, items: 1}},
		{name: "a repeated read is no overlap", script: "r a;r a;w a", want: findings{writes: 1, items: 1}},
		{name: "leaving twice, or what was not there", script: "l a;r b;l b;l b;r c;w c", want: findings{writes: 1, items: 1}},
		{
			name: "tokens rise", fenced: true, script: "r a;w a 1;r b;w b 2;r c;w c 9223372036854775807",
			want: findings{writes: 3, items: 3},
		},
		{
			name: "tokens that fall, stay, or are missing", fenced: true,
			script: "r a;w a 5;r b;w b 4;r c;w c 5;r d;w d;r e;w e 6",
			want:   findings{writes: 2, items: 2, late: 3},
		},
		{
			name: "a token turns the late one down", fenced: true, script: "r late;r a;w a 2;w late 1",
			want: findings{writes: 1, items: 1, late: 1, overlaps: 1},
		},
		{name: "tokens that nobody asked for", script: "r a;w a 5;r b;w b 4", want: findings{writes: 2, items: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger(test.fenced)
			play(t, l, test.script)
			if l.seen != test.want {
				t.Errorf("got %+v, want %+v", l.seen, test.want)
			}
			if len(l.open) != 0 {
				t.Errorf("open: %v", l.open)
			}
		})
	}
}

func TestWriteNeedsItsRead(t *testing.T) {
	l := newLedger(false)
	for _, section := range []string{"", "unknown"} {
		if err := l.write(section, record{Items: 1}, 0); !errors.Is(err, errSection) {
			t.Errorf("%q: %v", section, err)
		}
	}
	l.read("a")
	if err := l.write("a", record{Items: 1}, 0); err != nil {
		t.Error(err)
	}
	if err := l.write("a", record{Items: 2}, 0); !errors.Is(err, errSection) {
		t.Errorf("written twice: %v", err)
	}
	if want := (findings{writes: 1, items: 1}); l.seen != want {
		t.Errorf("got %+v", l.seen)
	}
}

// Items out of nowhere do not make up for lost ones.
func TestTooManyItems(t *testing.T) {
	l := newLedger(false)
	l.read("a")
	if err := l.write("a", record{Items: 5}, 0); err != nil || l.seen.broken != 1 {
		t.Errorf("%v, %+v", err, l.seen)
	}
}

// Whatever sections do: updates are lost if and only if the writes of the order are out of
// sequence.
func TestLostIffBroken(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lossless := 0
	for range 5000 {
		l := newLedger(false)
		read := make(map[string]record)
		for step := range 1 + rng.IntN(12) {
			if len(read) == 0 || rng.IntN(4) == 0 {
				section := fmt.Sprint(step)
				read[section] = l.read(section)
				continue
			}
			sections := slices.Sorted(maps.Keys(read))
			section := sections[rng.IntN(len(sections))]
			if err := l.write(section, record{Items: read[section].Items + 1}, 0); err != nil {
				t.Fatal(err)
			}
			delete(read, section)
		}
		if l.seen.lost() < 0 || (l.seen.lost() == 0) != (l.seen.broken == 0) {
			t.Fatalf("%+v: %d lost", l.seen, l.seen.lost())
		}
		if l.seen.broken > 0 && l.seen.overlaps == 0 {
			t.Fatalf("%+v: broken without an overlap", l.seen)
		}
		if l.seen.lost() == 0 {
			lossless++
		}
	}
	if lossless == 0 || lossless == 5000 {
		t.Errorf("%d of 5000 scripts lose nothing", lossless)
	}
}
