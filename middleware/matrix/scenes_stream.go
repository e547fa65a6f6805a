package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"time"
)

var streamScenes = []scene{
	{name: "streamed", keyed: true, handler: streamed, client: func(x *trial, got *seen) { follow(x, got, http.MethodPost, "\n") }},
	{name: "head first", handler: func(x *trial, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Head", "1")
		flush(w)
		x.wait()
		fmt.Fprintln(w, "line")
		flush(w)
		x.wait()
	}, client: func(x *trial, got *seen) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		late := time.AfterFunc(patience/2, func() { got.note("the head came late"); x.open() })
		res, err := x.pair.client.Do(x.request(ctx, http.MethodGet, nil))
		if late.Stop() {
			x.open()
		}
		got.head(res, err)
		if err == nil {
			lines(x, got, res, "\n")
		}
	}},
	{name: "SSE", handler: events, client: func(x *trial, got *seen) { follow(x, got, http.MethodGet, "\n\n") }},
	{name: "both ways", handler: func(x *trial, w http.ResponseWriter, r *http.Request) {
		fullDuplex(w, r)
		flush(w)
		in := bufio.NewScanner(r.Body)
		for in.Scan() {
			fmt.Fprintln(w, "echo", in.Text())
			flush(w)
		}
		fmt.Fprintln(w, in.Err())
	}, client: func(x *trial, got *seen) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		pr, pw := io.Pipe()
		defer pw.Close()
		defer context.AfterFunc(ctx, func() { pw.CloseWithError(ctx.Err()) })()
		res, err := x.pair.client.Do(x.request(ctx, http.MethodPost, pr))
		got.head(res, err)
		if err != nil {
			return
		}
		in := bufio.NewReader(res.Body)
		for i := range 3 {
			fmt.Fprintln(pw, "line", i)
			line, err := in.ReadString('\n')
			if got.Body += line; err != nil {
				got.failed(err)
			}
		}
		pw.Close()
		res.Body = io.NopCloser(in)
		got.rest(res)
	}},
	{name: "early answer", only: overHTTP2, handler: early, client: answeredEarly},
	{name: "early answer of a handler that talks both ways", handler: earlyBothWays, client: answeredEarly},
	{name: "informational", handler: func(_ *trial, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusTeapot)
	}, client: func(x *trial, got *seen) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error { got.note("%d %v", code, h["Link"]); return nil },
		})
		x.fetch(got, x.request(ctx, http.MethodGet, nil))
	}},
}

func follow(x *trial, got *seen, method, sep string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	late := time.AfterFunc(patience/2, func() { got.note("the head came late"); x.open(); x.open(); x.open() })
	res, err := x.pair.client.Do(x.request(ctx, method, nil))
	late.Stop()
	got.head(res, err)
	if err == nil {
		lines(x, got, res, sep)
	}
}

// lines reads pieces that the handler sends one by one.
func lines(x *trial, got *seen, res *http.Response, sep string) {
	in := bufio.NewReader(res.Body)
	for {
		late := time.AfterFunc(patience/2, func() { got.note("a line came late"); x.open() })
		piece := ""
		var err error
		for err == nil && !strings.HasSuffix(piece, sep) {
			var line string
			line, err = in.ReadString('\n')
			piece += line
		}
		if late.Stop() {
			select {
			case x.gate <- struct{}{}:
			default:
			}
		}
		got.Body += piece
		if err != nil {
			if !errors.Is(err, io.EOF) {
				got.failed(err)
			}
			break
		}
	}
	res.Body.Close()
	got.Trailer = res.Trailer
}

func streamed(x *trial, w http.ResponseWriter, _ *http.Request) {
	for i := range 3 {
		fmt.Fprintln(w, "line", i)
		flush(w)
		x.wait()
	}
	fmt.Fprintln(w, "end")
}

func events(x *trial, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		fmt.Fprintf(w, "id: %d\ndata: x\n\n", i)
		flush(w)
		x.wait()
	}
}

func earlyBothWays(x *trial, w http.ResponseWriter, r *http.Request) {
	fullDuplex(w, r)
	w.Header().Set("Connection", "close")
	early(x, w, r)
}

func early(_ *trial, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "4")
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	fmt.Fprint(w, "full")
}

// answeredEarly sends the beginning of a body, and the rest not before the answer has come.
func answeredEarly(x *trial, got *seen) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	pr, pw := io.Pipe()
	came := make(chan struct{})
	go func() {
		if _, err := pw.Write(make([]byte, 100_000)); err == nil { // else the answer has come
			select {
			case <-came:
			case <-time.After(patience / 2):
				got.note("the answer came late")
			}
		}
		pw.Close()
	}()
	defer pr.Close()
	res, err := x.pair.client.Do(x.request(ctx, http.MethodPost, pr))
	close(came)
	got.head(res, err)
	if err == nil {
		defer res.Body.Close()
		got.rest(res)
	}
}

// flush sends the bytes that a handler has written. If it cannot, the client sees that.
func flush(w http.ResponseWriter) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		fmt.Fprintln(w, "flush:", err)
	}
}

// fullDuplex lets a handler write while it reads, which HTTP/2 does without.
func fullDuplex(w http.ResponseWriter, r *http.Request) {
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
		fmt.Fprintln(w, "full duplex:", err)
	}
}
