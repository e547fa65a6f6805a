package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// loadRequests is the number of requests that h2load sends for one key, by loadConnections of them
// with loadStreams each.
const loadRequests, loadConnections, loadStreams = 200, 4, 8

var loadScenes = []scene{
	{name: "h2load GET", tool: "h2load", handler: joined, client: func(x *trial, got *seen) { load(x, got) }},
	{name: "h2load POST", tool: "h2load", handler: alone, client: func(x *trial, got *seen) { loadBody(x, got) }},
	{name: "h2load POST with one idempotency key", tool: "h2load", handler: alone, client: func(x *trial, got *seen) {
		loadBody(x, got, "-H", "Idempotency-Key: k"+x.id)
	}},
}

// joined is alone, and lets another request join where the stack lets reads share a run.
func joined(x *trial, w http.ResponseWriter, r *http.Request) {
	if joins(x.stack) {
		select {
		case <-x.met:
		case <-time.After(patience):
		}
	}
	alone(x, w, r)
}

// alone notes if it runs twice at a time though its stack serializes.
func alone(x *trial, w http.ResponseWriter, r *http.Request) {
	x.enter()
	defer x.leave()
	n, err := io.Copy(io.Discard, r.Body)
	time.Sleep(100 * time.Microsecond)
	fmt.Fprintln(w, r.Method, n, err)
}

// loadBody has h2load send requests with a body.
func loadBody(x *trial, got *seen, args ...string) {
	f, err := os.CreateTemp("", "matrix")
	if err != nil {
		got.failed(err)
		return
	}
	defer func() {
		if err := os.Remove(f.Name()); err != nil {
			got.note("%v", err)
		}
	}()
	_, err = f.WriteString(strings.Repeat("x", 1000))
	if err = errors.Join(err, f.Close()); err != nil {
		got.failed(err)
		return
	}
	load(x, got, append(args, "-d", f.Name())...)
}

func load(x *trial, got *seen, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	all := append([]string{"-n", fmt.Sprint(loadRequests), "-c", fmt.Sprint(loadConnections), "-m", fmt.Sprint(loadStreams)}, args...)
	if x.pair.proto == "HTTP/1.1" {
		all = append(all, "--h1")
	}
	headers := x.headers()
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, "-H", k+": "+headers[k])
	}
	out, err := exec.CommandContext(ctx, "h2load", append(all, x.pair.at()+"/"+x.stack+"/load")...).CombinedOutput()
	if err != nil {
		got.failed(errors.Join(err, ctx.Err()))
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "requests:") || strings.HasPrefix(line, "status codes:") {
			got.note("%s", strings.TrimSpace(line))
			n++
		}
	}
	if n != 2 || !strings.Contains(strings.Join(got.Notes, "\n"), fmt.Sprintf("status codes: %d 2xx", loadRequests)) {
		got.note("h2load: %s", out)
	}
	if x.crowded.Load() && serializes(x.stack) {
		got.note("the handler ran twice at a time")
	}
}
