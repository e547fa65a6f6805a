package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A scene is an exchange between a client and a handler.
type scene struct {
	name    string
	keyed   bool     // has an idempotency key, so its body is read first: not if both sides talk
	only    []string // protocols; nil: all
	tool    string   // the command that is the client; empty: this process
	whole   bool     // the handler answers at once and in whole, which all routers can
	handler func(x *trial, w http.ResponseWriter, r *http.Request)
	client  func(x *trial, got *seen)
}

var scenes = slices.Concat(plainScenes, streamScenes, failScenes, grpcScenes, socketScenes, curlScenes, loadScenes, javaScenes)

func init() {
	for i := range scenes {
		scenes[i].name = strings.ReplaceAll(scenes[i].name, " ", "-")
	}
}

var plainScenes = []scene{
	{name: "plain GET", keyed: true, whole: true, handler: echoRequest, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodGet, nil, "X-Many", "1", "X-Many", "2")
	}},
	{name: "plain HEAD", keyed: true, whole: true, handler: echoRequest, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodHead, nil)
	}},
	{name: "plain POST", keyed: true, whole: true, handler: echoRequest, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodPost, strings.NewReader("body"), "Content-Type", "text/x-test")
	}},
	{name: "empty", keyed: true, whole: true, handler: func(_ *trial, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Set", "1")
		w.WriteHeader(http.StatusNoContent)
	}, client: func(x *trial, got *seen) { x.ask(got, http.MethodPost, nil) }},
	{name: "range", keyed: true, whole: true, handler: content, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodGet, nil, "Range", "bytes=5-9")
	}},
	{name: "ranges", keyed: true, whole: true, handler: content, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodGet, nil, "Range", "bytes=0-1,5-9", "If-Range", `"tag"`)
		// The boundary is a random one.
		if _, boundary, ok := strings.Cut(got.Header.Get("Content-Type"), "boundary="); ok {
			got.Body = strings.ReplaceAll(got.Body, boundary, "BOUNDARY")
			got.Header.Set("Content-Type", "multipart/byteranges; boundary=BOUNDARY")
		}
	}},
	{name: "304", keyed: true, whole: true, handler: content, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodGet, nil, "If-None-Match", `"tag"`)
	}},
	{name: "upload", keyed: true, whole: true, handler: count, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodPost, strings.NewReader(strings.Repeat("0123456789abcdef", 2<<20/16)))
	}},
	{name: "upload of unknown length", keyed: true, whole: true, handler: count, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodPost, io.MultiReader(strings.NewReader(strings.Repeat("0123456789abcdef", 2<<20/16))))
	}},
	{name: "upload with 100-continue", keyed: true, whole: true, handler: count, client: func(x *trial, got *seen) {
		x.ask(got, http.MethodPost, strings.NewReader(strings.Repeat("x", 100_000)), "Expect", "100-continue")
	}},
	{name: "trailers", keyed: true, handler: trailers, client: func(x *trial, got *seen) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r := x.request(ctx, http.MethodPost, io.MultiReader(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Check": {"42"}}
		x.fetch(got, r)
	}},
	{name: "two at a time", handler: func(x *trial, w http.ResponseWriter, _ *http.Request) {
		x.enter()
		defer x.leave()
		x.in <- struct{}{}
		x.wait()
		fmt.Fprint(w, "done")
	}, client: func(x *trial, got *seen) {
		var all [3]seen
		done := make(chan struct{}, len(all))
		for i := range all {
			go func() { x.ask(&all[i], http.MethodGet, nil); done <- struct{}{} }()
		}
		if !x.together(len(all)) {
			got.note("the requests did not come together")
		}
		for range all {
			x.open()
		}
		for range all {
			<-done
		}
		if x.crowded.Load() && (serializes(x.stack) || joins(x.stack)) {
			got.note("the handler ran twice at a time")
		}
		for i := range all {
			for _, d := range diff(&all[0], &all[i]) {
				got.note("request %d: %s", i, d)
			}
		}
		got.Body, got.Status, got.Proto = all[0].Body, all[0].Status, all[0].Proto
	}},
}

// together waits until n requests run, or await a run or the lock, whatever their stack is for.
func (x *trial) together(n int) bool {
	return until(func() bool {
		waiting := 0
		for _, c := range x.pair.k.nodes {
			waiting = max(waiting, c.Stats().Waiting) // where Route is, the other node has it in another count
		}
		switch {
		case joins(x.stack):
			return len(x.in) == 1 && int(x.joined.Load()) == n
		case serializes(x.stack):
			return len(x.in) == 1 && waiting >= n-1
		}
		return len(x.in) == n
	})
}

// ask sends a request and takes the response.
func (x *trial) ask(got *seen, method string, body io.Reader, headers ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	x.fetch(got, x.request(ctx, method, body, headers...))
}

// fetch takes the response to a request.
func (x *trial) fetch(got *seen, r *http.Request) {
	res, err := x.pair.client.Do(r)
	got.head(res, err)
	if err == nil {
		defer res.Body.Close()
		got.rest(res)
	}
}

// echoRequest answers with the request.
func echoRequest(x *trial, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header()["X-Many"] = []string{"a", "b"}
	w.Header().Set("Content-Type", "text/x-answer")
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(w, "%s %s %s %s %q %v length %d\n", r.Method, r.Proto, r.Host[:3], strings.TrimPrefix(r.RequestURI, "/"+x.stack), body, err, r.ContentLength)
	for _, name := range names(r.Header, nil) {
		if name != "Trial" && name != "Order" && name != "Idempotency-Key" && !strings.HasPrefix(name, "X-Forwarded-") && name != "Holdfast-Hop" {
			fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
		}
	}
}

func content(_ *trial, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"tag"`)
	http.ServeContent(w, r, "x.txt", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), strings.NewReader("0123456789abcdef"))
}

func count(_ *trial, w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintln(w, n, err)
}

func trailers(_ *trial, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	body, err := io.ReadAll(r.Body)
	fmt.Fprintln(w, string(body), err, r.Trailer)
	w.Header().Set("X-Sum", "6")
	w.Header().Set(http.TrailerPrefix+"X-Late", "7")
}

var failScenes = []scene{
	{name: "panic", whole: true, handler: func(*trial, http.ResponseWriter, *http.Request) { panic("on purpose") },
		client: func(x *trial, got *seen) { x.ask(got, http.MethodPost, strings.NewReader("body")) }},
	{name: "abort", whole: true, handler: func(*trial, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		client: func(x *trial, got *seen) { x.ask(got, http.MethodPost, strings.NewReader("body")) }},
	{name: "panic in the middle", handler: func(_ *trial, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "begin")
		flush(w)
		panic(http.ErrAbortHandler)
	}, client: func(x *trial, got *seen) { x.ask(got, http.MethodPost, strings.NewReader("body")) }},
	{name: "client gone", handler: gone, client: func(x *trial, got *seen) { leave(x, got, nil) }},
	{name: "client gone after it was sent something", handler: func(x *trial, w http.ResponseWriter, r *http.Request) {
		flush(w)
		gone(x, w, r)
	}, client: func(x *trial, got *seen) { leave(x, got, nil) }},
	{name: "client gone while it sends", handler: func(x *trial, w http.ResponseWriter, r *http.Request) {
		x.in <- struct{}{}
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			x.gate <- struct{}{}
			return
		}
		gone(x, w, r)
	}, client: func(x *trial, got *seen) {
		pr, pw := io.Pipe()
		go func() {
			if _, err := pw.Write(make([]byte, 100_000)); err == nil {
				<-x.done
			}
			pw.CloseWithError(errors.New("over"))
		}()
		leave(x, got, pr)
	}},
}

// gone waits for the end of its context, and tells.
func gone(x *trial, _ http.ResponseWriter, r *http.Request) {
	select {
	case x.in <- struct{}{}:
	default:
	}
	select {
	case <-r.Context().Done():
		x.open()
	case <-time.After(2 * patience):
	}
}

// leave sends a request and goes away once it has arrived.
func leave(x *trial, got *seen, body io.Reader) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	if c, ok := body.(io.Closer); ok { // an HTTP/1.1 client waits for the end of a Read
		defer context.AfterFunc(ctx, func() { c.Close() })()
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		res, err := x.pair.client.Do(x.request(ctx, method, body))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if got.Err = "none"; err != nil {
			got.Err = "left" // by its context or by its body, whichever was first
		}
	}()
	if !x.arrived() {
		got.note("the request did not arrive")
	}
	cancel()
	<-sent
	select {
	case <-x.gate:
	case <-time.After(patience):
		got.note("the handler was not told")
	}
}
