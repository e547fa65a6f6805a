package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var curlScenes = func() []scene {
	var all []scene
	for _, version := range []struct {
		flag string
		only []string
	}{
		{"--http1.1", nil},
		{"--http2", nil}, // by http:// it offers Upgrade: h2c
		{"--http2-prior-knowledge", []string{"h2c"}},
	} {
		for _, s := range curlRequests {
			if s.name == "early answer" && version.flag == "--http2-prior-knowledge" {
				continue // curl 7.88 loses some of these answers without any middleware
			}
			made := s.scene
			made.tool, made.only, made.name = "curl", version.only, "curl "+version.flag+" "+s.name
			made.client = func(x *trial, got *seen) { s.client(&curl{trial: x, flag: version.flag}, got) }
			all = append(all, made)
		}
	}
	return all
}()

type curlRequest struct {
	scene
	client func(c *curl, got *seen)
}

var curlRequests = []curlRequest{
	{scene{name: "GET", keyed: true, handler: echoWithoutOffer}, func(c *curl, got *seen) {
		c.ask(got, nil, "-H", "X-Many: 1", "-H", "X-Many: 2")
	}},
	{scene{name: "HEAD", keyed: true, handler: echoWithoutOffer}, func(c *curl, got *seen) { c.ask(got, nil, "-I", "-o", os.DevNull) }},
	{scene{name: "POST", keyed: true, handler: echoWithoutOffer}, func(c *curl, got *seen) {
		c.ask(got, strings.NewReader("body"), "--data-binary", "@-", "-H", "Content-Type: text/x-test")
	}},
	{scene{name: "upload with 100-continue", keyed: true, handler: count}, func(c *curl, got *seen) {
		c.ask(got, strings.NewReader(strings.Repeat("x", 100_000)), "--data-binary", "@-", "-H", "Expect: 100-continue", "--expect100-timeout", "9")
	}},
	{scene{name: "upload of unknown length", keyed: true, handler: count}, func(c *curl, got *seen) {
		c.ask(got, strings.NewReader(strings.Repeat("0123456789abcdef", 2<<20/16)), "-X", "POST", "-T", "-")
	}},
	{scene{name: "range", keyed: true, handler: content}, func(c *curl, got *seen) { c.ask(got, nil, "-r", "5-9") }},
	{scene{name: "304", keyed: true, handler: content}, func(c *curl, got *seen) { c.ask(got, nil, "-H", `If-None-Match: "tag"`) }},
	{scene{name: "trailers", keyed: true, handler: trailers}, func(c *curl, got *seen) {
		c.ask(got, strings.NewReader("body"), "--data-binary", "@-")
	}},
	{scene{name: "streamed", keyed: true, handler: streamed}, func(c *curl, got *seen) { c.follow(got, "\n", "-X", "POST") }},
	{scene{name: "SSE", keyed: true, handler: events}, func(c *curl, got *seen) { c.follow(got, "\n\n", "-H", "Accept: text/event-stream") }},
	{scene{name: "early answer", handler: earlyToCurl}, func(c *curl, got *seen) {
		pr, pw, err := os.Pipe() // and not an io.Pipe: Wait would wait for the copying
		if err != nil {
			got.failed(err)
			return
		}
		defer pr.Close()
		came := make(chan struct{})
		var sent sync.WaitGroup
		sent.Go(func() {
			defer pw.Close()
			if _, err := pw.Write(make([]byte, 50_000)); err != nil { // curl has ended
				return
			}
			select {
			case <-came:
			case <-time.After(patience):
				got.note("the answer came late")
			}
		})
		c.ask(got, pr, "-X", "POST", "-T", ".", "-H", "Expect:")
		close(came)
		sent.Wait()
	}},
}

// curl is a trial with the command of that name as its client.
type curl struct {
	*trial
	flag string
}

// ask runs curl and takes the response.
func (c *curl) ask(got *seen, body io.Reader, args ...string) {
	c.run(got, body, args, func(out io.Reader) {
		b, _ := io.ReadAll(out)
		got.Body = string(b)
	})
}

// follow runs curl and lets the handler go on whenever a piece of the response has come.
func (c *curl) follow(got *seen, sep string, args ...string) {
	c.run(got, nil, args, func(out io.Reader) {
		lines(c.trial, got, &http.Response{Body: io.NopCloser(out)}, sep)
	})
}

func (c *curl) run(got *seen, body io.Reader, args []string, read func(out io.Reader)) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	all := append([]string{"-q", "-sS", "-N", "-k", "--noproxy", "*", c.flag, "-D", "/dev/fd/3"}, args...)
	headers := c.headers()
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, "-H", k+": "+headers[k])
	}
	cmd := exec.CommandContext(ctx, "curl", append(all, c.pair.at()+"/"+c.stack+"/"+c.scene.name+"?q=%31&r=a+b")...)
	cmd.Stdin = body
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		got.failed(err)
		return
	}
	heads, headsEnd, err := os.Pipe()
	if err != nil {
		got.failed(err)
		return
	}
	defer heads.Close()
	cmd.ExtraFiles = []*os.File{headsEnd}
	err = cmd.Start()
	headsEnd.Close()
	if err != nil {
		got.failed(err)
		return
	}
	dump := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(heads)
		dump <- b
	}()
	read(out)
	if err := cmd.Wait(); err != nil {
		got.failed(errors.Join(err, ctx.Err()))
		for line := range strings.Lines(complaint.String()) { // with -T . it shows its progress as well
			if _, text, ok := strings.Cut(line, "curl: "); ok {
				got.note("curl: %s", strings.TrimSpace(text))
			}
		}
	}
	got.dump(string(<-dump))
}

// dump takes the heads and trailers that curl -D has written.
func (s *seen) dump(text string) {
	s.Header, s.Trailer = http.Header{}, http.Header{}
	into := s.Trailer
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		name, value, isField := strings.Cut(line, ":")
		if proto, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(proto, "HTTP/") {
			code, _, _ := strings.Cut(rest, " ")
			s.Proto = proto
			s.Status, _ = strconv.Atoi(code) // 0 is no status
			if into = s.Header; s.Status/100 == 1 {
				s.note("%d", s.Status)
			}
		} else if line == "" {
			if s.Status/100 == 1 { // another head follows
				clear(s.Header)
			}
			into = s.Trailer
		} else if isField {
			into.Add(name, strings.TrimSpace(value))
		}
	}
	for _, name := range []string{"Date", "Connection", "Trailer", "Transfer-Encoding"} {
		delete(s.Header, name)
	}
}

// earlyToCurl keeps an HTTP/2 connection open: curl 7.88 may lose the answer on one that is about
// to close.
func earlyToCurl(x *trial, w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		early(x, w, r)
		return
	}
	earlyBothWays(x, w, r)
}

// echoWithoutOffer leaves out headers that Route does not pass on: those of an offered upgrade, and
// the length of an empty body.
func echoWithoutOffer(x *trial, w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{"Upgrade", "Http2-Settings", "Connection"} {
		r.Header.Del(name)
	}
	if r.Method == http.MethodGet && r.Header.Get("Content-Length") == "0" { // as Java's HttpClient says
		r.Header.Del("Content-Length")
	}
	echoRequest(x, w, r)
}
