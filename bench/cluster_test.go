package main

import (
	"strings"
	"sync"
	"testing"
)

func TestStore(t *testing.T) {
	var h hotWorker
	addr, err := h.serveStore()
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	s := newStore(addr)
	defer s.close()
	var work sync.WaitGroup
	var mu sync.Mutex // the lock
	token := uint64(0)
	for range 4 {
		work.Go(func() {
			for range 50 {
				mu.Lock()
				token++
				if err := s.increment(2, 7, token); err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if wrong, stale, err := s.counts(2); wrong != 0 || stale != 0 || err != nil {
		t.Errorf("wrong %d, stale %d, %v", wrong, stale, err)
	}
	c, err := s.conn()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.do(storeRead, 2, 7, 0, 0); n != 200 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	c.do(storeWrite, 2, 7, 200, 0)   // another worker has written meanwhile
	c.do(storeWrite, 2, 7, 201, 200) // the same token again
	c.do(storeWrite, 2, 8, 1, 1)     // another key
	s.put(c)
	if wrong, stale, err := s.counts(2); wrong != 1 || stale != 1 || err != nil {
		t.Errorf("wrong %d, stale %d, %v", wrong, stale, err)
	}
	if wrong, stale, _ := s.counts(1); wrong != 0 || stale != 0 {
		t.Errorf("variants share numbers")
	}
	if _, err := c.do(storeRead, len(variants), 0, 0, 0); err == nil {
		t.Error("there is no such variant")
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureOwn(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, text := range []string{"Lock and Unlock, times", "hand-over among 64", "SET NX PX and EVALSHA"} {
		if c := named(t, r, text); !(c.got > 0) {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
}

// checkContest checks what must be so of shared and zipf.
func checkContest(t *testing.T, r result, lines int) {
	t.Helper()
	checkMeasured(t, r)
	if len(r.table) != lines+1 || !strings.HasPrefix(r.table[1][0], "Holdfast cluster") {
		t.Errorf("%q", r.table)
	}
	for _, row := range r.table[1:] {
		if _, ok := findPostgres(); ok == (row[1] == notRun) && strings.HasPrefix(row[0], advisory) {
			t.Errorf("%q", row)
		}
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r := withRates(t, &b.sizes.shared.round, func() (result, error) { return measureShared(t.Context(), b) })
	checkContest(t, r, 9)
	if c := named(t, r, "of one worker without a lock"); !(c.got > 0) {
		t.Errorf("%s: %v", c.text, c.got)
	}
}

func TestZipf(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.pin = false
	r := withRates(t, &b.sizes.zipf.round, func() (result, error) { return measureZipf(t.Context(), b) })
	checkContest(t, r, 9)
}

func TestForward(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureForward(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, c := range r.claims[:3] {
		if !(c.got > 0) {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureIdle(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	if c := named(t, r, "on average"); !(c.got > 0) {
		t.Errorf("%v round trips", c.got)
	}
}
