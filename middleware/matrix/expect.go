package main

import (
	"net/http"
	"strings"
)

// unexpected returns how got differs from bare in ways that the middleware is not for.
func unexpected(c cell, bare, got *seen) []string {
	want := bare.clone()
	switch {
	case c.scene.name == "h2load-POST-with-one-idempotency-key" && keeps(c.stack):
		want.Runs = 1
	case c.scene.name == "Java-concurrently-with-one-idempotency-key" && keeps(c.stack):
		want.Runs = 1
	case (c.scene.name == "h2load-GET" || c.scene.name == "Java-GET-concurrently") && joins(c.stack):
		want.Runs = max(1, min(want.Runs-1, got.Runs)) // some share a run; others came after it was over
	case c.scene.name == "two-at-a-time" && joins(c.stack):
		want.Runs = 1
	case forwards(c.stack) && c.elsewhere && (c.scene.name == "panic" || c.scene.name == "abort"):
		// The owner's connection broke off; the owner may have executed the request.
		want.Err, want.Status, want.Proto, want.Header, want.Body = "", http.StatusBadGateway, got.Proto, got.Header, got.Body
		if !strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json") {
			want.Body = "a problem"
		}
	}
	return diff(want, got)
}

func (s *seen) clone() *seen {
	return &seen{Proto: s.Proto, Status: s.Status, Header: s.Header.Clone(), Body: s.Body, Trailer: s.Trailer.Clone(), Err: s.Err,
		Notes: s.Notes, Runs: s.Runs}
}
