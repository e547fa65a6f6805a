package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/holdfast-go/holdfast/middleware"
)

// atOnce is the number of requests that HttpClient sends concurrently.
const atOnce = 20

// HttpClient prefers HTTP/2: by http:// it offers Upgrade: h2c, by https:// it gets h2.
var javaScenes = []scene{
	{name: "Java GET", tool: "java", keyed: true, handler: echoWithoutOffer, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodGet, "none", 0)
	}},
	{name: "Java POST", tool: "java", keyed: true, handler: echoWithoutOffer, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodPost, "known", 100)
	}},
	{name: "Java upload", tool: "java", keyed: true, handler: count, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodPost, "known", 2<<20)
	}},
	{name: "Java upload of unknown length", tool: "java", keyed: true, handler: count, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodPost, "unknown", 2<<20)
	}},
	{name: "Java upload with 100-continue", tool: "java", keyed: true, handler: count, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodPost, "known", 100_000, "Expect: 100-continue")
	}},
	{name: "Java 304", tool: "java", keyed: true, handler: content, client: func(x *trial, got *seen) {
		java(x, got, 1, http.MethodGet, "none", 0, `If-None-Match: "tag"`)
	}},
	{name: "Java GET concurrently", tool: "java", handler: joined, client: func(x *trial, got *seen) {
		java(x, got, atOnce, http.MethodGet, "none", 0)
	}},
	{name: "Java concurrently", tool: "java", handler: alone, client: func(x *trial, got *seen) {
		java(x, got, atOnce, http.MethodPost, "known", 100)
		if x.crowded.Load() && serializes(x.stack) {
			got.note("the handler ran twice at a time")
		}
	}},
	{name: "Java concurrently with one idempotency key", tool: "java", handler: alone, client: func(x *trial, got *seen) {
		java(x, got, atOnce, http.MethodPost, "known", 100, "Idempotency-Key: k"+x.id)
	}},
}

// java has HttpClient send n requests, and takes the response, which has to be the same for all.
func java(x *trial, got *seen, n int, method, body string, size int, headers ...string) {
	fields := []string{
		x.pair.router + " " + x.pair.proto, fmt.Sprint(n), method, x.pair.at() + "/" + x.stack + "/java?q=%31&r=a+b", body, fmt.Sprint(size),
		fmt.Sprint(2 * patience.Seconds()),
	}
	own := x.headers()
	for _, k := range slices.Sorted(maps.Keys(own)) {
		fields = append(fields, k+": "+own[k])
	}
	all, err := x.pair.k.jvm.send(n, append(fields, headers...)...)
	if err != nil {
		got.failed(err)
		got.note("java: %v", err)
		return
	}
	for i, s := range all {
		if n > 1 { // all but one are replayed
			s.Header.Del(middleware.ReplayedHeader)
		}
		for _, d := range diff(all[0], s) {
			got.note("request %d: %s", i, d)
		}
	}
	first := all[0]
	got.Proto, got.Status, got.Header, got.Body, got.Err = first.Proto, first.Status, first.Header, first.Body, first.Err
	got.Trailer = http.Header{}
	for _, note := range first.Notes {
		got.note("%s", note)
	}
}
