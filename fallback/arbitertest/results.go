package arbitertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// resultTests are skipped for a Namespace that is not a ResultStore.
var resultTests = []test{
	{"a key has no result at first", noResult},
	{"a result is what was saved, whatever its bytes", resultBytes},
	{"a result does not replace one with a higher fence", resultFences},
	{"a result ages, and expires", resultAges},
	{"results of other keys, partitions and namespaces are others", resultsApart},
	{"of many results at once the highest fence stays", resultsAtOnce},
	{"results and holds of a key do not touch each other", resultsAndHolds},
	{"a context that has ended ends operations on results", resultsEnded},
}

// results is the namespace as a store of results.
func (s *space) results() fallback.ResultStore { return resultsOf(s, s.Namespace) }

func resultsOf(s *space, n fallback.Namespace) fallback.ResultStore {
	s.t.Helper()
	x, ok := n.(fallback.ResultStore)
	if !ok {
		s.t.Skip("the namespace is not a fallback.ResultStore")
	}
	return x
}

func (s *space) loadResult(key string) fallback.Result {
	s.t.Helper()
	return must(s.results().LoadResult(s.ctx, 0, key))(s)
}

func (s *space) saveResult(key, value string, fence uint64) fallback.Verdict {
	s.t.Helper()
	return must(s.results().SaveResult(s.ctx, 0, key, []byte(value), fence, time.Hour))(s)
}

// wantResult looks at all of a result but its age.
func wantResult(s *space, key, value string, fence uint64) {
	s.t.Helper()
	r := s.loadResult(key)
	if r.Fence != fence || string(r.Value) != value || r.Age < 0 || r.Age > patience {
		s.t.Errorf("LoadResult(%q): got %d bytes, fence %d, age %v; want %d bytes, fence %d", key, len(r.Value), r.Fence, r.Age, len(value), fence)
	}
}

func noResult(s *space) {
	if r := s.loadResult("k"); r.Fence != 0 || r.Value != nil || r.Age != 0 {
		s.t.Errorf("got %+v, want the zero Result", r)
	}
}

func resultBytes(s *space) {
	values := []string{"", "\x00", "a\x00b\r\n ", "\xff\xfe", string(bytes.Repeat([]byte{0, 'x', 0xff}, 1<<19/3))}
	for i, key := range oddKeys {
		want(s, "SaveResult", s.saveResult(key, values[i%len(values)], uint64(i+1)), fallback.Granted)
	}
	for i, key := range oddKeys {
		wantResult(s, key, values[i%len(values)], uint64(i+1))
	}
	// A saved value belongs to the store, and a loaded one to the caller.
	mine := []byte("abc")
	must(s.results().SaveResult(s.ctx, 0, "mine", mine, 1, time.Hour))(s)
	mine[0] = 'X'
	s.loadResult("mine").Value[1] = 'X'
	wantResult(s, "mine", "abc", 1)
}

func resultFences(s *space) {
	// Neighbours that differ in the last bit only, beyond the precision of a floating-point number.
	for _, high := range []uint64{2, 1 << 32, 1<<53 + 1, 843_350_400<<32 + 17, 1<<63 + 1, 1<<64 - 1} {
		key := fmt.Sprint(high)
		want(s, "SaveResult of the first", s.saveResult(key, "first", high-1), fallback.Granted)
		want(s, "SaveResult with a higher fence", s.saveResult(key, "high", high), fallback.Granted)
		want(s, "SaveResult with a lower fence", s.saveResult(key, "low", high-1), fallback.Stale)
		want(s, "SaveResult with fence 1", s.saveResult(key, "lowest", 1), fallback.Stale)
		wantResult(s, key, "high", high)
		want(s, "SaveResult with the same fence", s.saveResult(key, "again", high), fallback.Granted)
		wantResult(s, key, "again", high)
	}
}

func resultAges(s *space) {
	x := s.results()
	const ttl = 300 * time.Millisecond
	saved := time.Now()
	must(x.SaveResult(s.ctx, 0, "k", []byte("v"), 7, ttl))(s)
	var last time.Duration
	eventually(s, "the result expires", func() bool {
		sent := time.Now()
		r := must(x.LoadResult(s.ctx, 0, "k"))(s)
		if r.Fence == 0 {
			if time.Since(saved) < ttl-10*time.Millisecond {
				s.t.Errorf("it has expired after %v, want %v", time.Since(saved), ttl)
			}
			return true
		}
		if sent.Sub(saved) > ttl+patience/2 {
			s.t.Errorf("it is still there after %v", sent.Sub(saved))
		}
		if r.Age < last || r.Age > time.Since(saved)+10*time.Millisecond {
			s.t.Errorf("its age is %v after %v, and was %v", r.Age, time.Since(saved), last)
		}
		last = r.Age
		return false
	})
	s.saveResult("aging", "v", 1)
	eventually(s, "a result ages", func() bool { return s.loadResult("aging").Age > 0 })
	want(s, "SaveResult with a lower fence than an expired one", s.saveResult("k", "new", 1), fallback.Granted)
	// A later save renews the time.
	must(x.SaveResult(s.ctx, 0, "k", []byte("v"), 8, time.Millisecond))(s)
	must(x.SaveResult(s.ctx, 0, "k2", []byte("v"), 8, time.Millisecond))(s)
	must(x.SaveResult(s.ctx, 0, "k2", []byte("v"), 9, time.Hour))(s)
	eventually(s, "the other one expires", func() bool { return s.loadResult("k").Fence == 0 })
	wantResult(s, "k2", "v", 9)
}

func resultsApart(s *space) {
	other := s.settings
	other.Namespace += "2"
	n := must(s.arbiter.Attach(s.ctx, other))(s)
	defer n.Close()
	s.saveResult("k", "v", 5)
	for what, load := range map[string]func() (fallback.Result, error){
		"another key":       func() (fallback.Result, error) { return s.results().LoadResult(s.ctx, 0, "k2") },
		"another partition": func() (fallback.Result, error) { return s.results().LoadResult(s.ctx, 1, "k") },
		"another namespace": func() (fallback.Result, error) { return resultsOf(s, n).LoadResult(s.ctx, 0, "k") },
	} {
		want(s, "the fence of "+what, must(load())(s).Fence, 0)
	}
	want(s, "another process's", must(resultsOf(s, s.attach()).LoadResult(s.ctx, 0, "k"))(s).Fence, 5)
}

func resultsAtOnce(s *space) {
	var work sync.WaitGroup
	for fence := range uint64(50) {
		work.Go(func() {
			if _, err := s.results().SaveResult(s.ctx, 0, "k", fmt.Append(nil, fence+1), fence+1, time.Hour); err != nil {
				s.t.Error(err)
			}
		})
	}
	work.Wait()
	wantResult(s, "k", "50", 50)
}

func resultsAndHolds(s *space) {
	row := s.take(id("alice", 1), "k")
	s.wait(id("bob", 1), "k")
	s.saveResult("k", "v", uint64(row.Token))
	want(s, "the row", s.rows("k"), []fallback.Row{row})
	s.unlock(id("alice", 1), "k")
	want(s, "who was waiting", s.wait(id("bob", 1), "k").Verdict, fallback.Granted)
	wantResult(s, "k", "v", uint64(row.Token))
}

func resultsEnded(s *space) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	x := s.results()
	if _, err := x.LoadResult(ctx, 0, "k"); !errors.Is(err, context.Canceled) {
		s.t.Errorf("LoadResult: %v", err)
	}
	if _, err := x.SaveResult(ctx, 0, "k", nil, 1, time.Hour); !errors.Is(err, context.Canceled) {
		s.t.Errorf("SaveResult: %v", err)
	}
}
