package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// seen is the answer that the client of a trial saw.
type seen struct {
	Proto   string
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Err     string // empty: none
	Notes   []string
	Runs    int // of the handler

	mu sync.Mutex // protects Notes
}

func (s *seen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// head takes the beginning of a response.
func (s *seen) head(res *http.Response, err error) {
	if err != nil {
		s.failed(err)
		return
	}
	s.Proto, s.Status, s.Header = res.Proto, res.StatusCode, res.Header.Clone()
	delete(s.Header, "Date")
	delete(s.Header, "Connection")
	delete(s.Header, "Trailer") // the client has it in res.Trailer
}

// rest takes the rest of the body, and the trailers.
func (s *seen) rest(res *http.Response) {
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	s.Body += string(b)
	s.Trailer = res.Trailer
	if err != nil {
		s.failed(err)
	}
}

func (s *seen) failed(err error) {
	switch {
	case errors.Is(err, context.Canceled):
		s.Err = "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		s.Err = "timeout"
	default:
		s.Err = "broken"
	}
}

// diff returns how got differs from bare, the answer without a middleware.
func diff(bare, got *seen) []string {
	var d []string
	add := func(what string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			d = append(d, fmt.Sprintf("%s: %s, not %s", what, brief(b), brief(a)))
		}
	}
	add("protocol", bare.Proto, got.Proto)
	add("status", bare.Status, got.Status)
	for _, name := range names(bare.Header, got.Header) {
		add("header "+name, bare.Header[name], got.Header[name])
	}
	add("body", bare.Body, got.Body)
	for _, name := range names(bare.Trailer, got.Trailer) {
		add("trailer "+name, bare.Trailer[name], got.Trailer[name])
	}
	add("error", bare.Err, got.Err)
	add("notes", strings.Join(bare.Notes, "; "), strings.Join(got.Notes, "; "))
	add("runs", bare.Runs, got.Runs)
	return d
}

func names(a, b http.Header) []string {
	set := map[string]bool{}
	for _, h := range []http.Header{a, b} {
		for name := range h {
			set[name] = true
		}
	}
	var all []string
	for name := range set {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func brief(v any) string {
	s := fmt.Sprintf("%q", fmt.Sprint(v))
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return s
}
