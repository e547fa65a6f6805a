package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// The handler reads all bytes that were read ahead, whatever length was announced.
func TestBodiesThatAreReadAhead(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 6<<10) // 96 KiB
	broken := errors.New("broken")
	for name, x := range map[string]struct {
		body    io.Reader
		length  int64
		most    int64 // SerializeOptions.ReadAhead
		header  http.Header
		ahead   bool
		want    string
		wantErr error
	}{
		"small":                   {body: strings.NewReader("body"), length: 4, ahead: true, want: "body"},
		"as large as may be":      {body: strings.NewReader(text[:64<<10]), length: 64 << 10, ahead: true, want: text[:64<<10]},
		"in small pieces":         {body: iotest.OneByteReader(strings.NewReader(text[:9999])), length: 9999, ahead: true, want: text[:9999]},
		"with its end":            {body: iotest.DataErrReader(strings.NewReader("body")), length: 4, ahead: true, want: "body"},
		"too large":               {body: strings.NewReader(text), length: 96 << 10, ahead: true, want: text},
		"larger, as was asked":    {body: strings.NewReader(text), length: 96 << 10, most: 1 << 20, ahead: true, want: text},
		"not at all":              {body: strings.NewReader("body"), length: 4, most: -1, want: "body"},
		"of unknown length":       {body: strings.NewReader("body"), length: -1, ahead: true, want: "body"},
		"unknown and too large":   {body: strings.NewReader(text), length: -1, ahead: true, want: text},
		"to be asked for":         {body: strings.NewReader("body"), length: 4, header: http.Header{"Expect": {"100-continue"}}, ahead: true, want: "body"},
		"longer, as was unpacked": {body: strings.NewReader(text), length: 100, ahead: true, want: text},
		"shorter":                 {body: strings.NewReader("body"), length: 100, ahead: true, want: "body"},
		"that breaks off": {
			body: io.MultiReader(strings.NewReader("bo"), iotest.ErrReader(broken)), length: 4, ahead: true, want: "bo", wantErr: broken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			came := &closing{Reader: x.body}
			h := middleware.Serialize(c, middleware.Key("k"), &middleware.SerializeOptions{ReadAhead: x.most})
			r, err := http.NewRequest(http.MethodPost, "/", came)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = x.length
			r.Header = x.header
			h(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if came.touched != x.ahead {
					t.Errorf("read before the handler: %v", came.touched)
				}
				got, err := io.ReadAll(r.Body)
				if string(got) != x.want || !errors.Is(err, x.wantErr) {
					t.Errorf("%d bytes, %v, want %d, %v", len(got), err, len(x.want), x.wantErr)
				}
				if err := r.Body.Close(); err != nil || !came.closed {
					t.Errorf("closed %v, %v", came.closed, err)
				}
				if n, err := r.Body.Read(make([]byte, 1)); x.ahead && (n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose)) {
					t.Errorf("after Close: %d, %v", n, err)
				}
			})).ServeHTTP(blank{http.Header{}}, r)
		})
	}
}

// closing notes reads and a Close.
type closing struct {
	io.Reader
	touched, closed bool
}

func (c *closing) Read(p []byte) (int, error) { c.touched = true; return c.Reader.Read(p) }

func (c *closing) Close() error { c.closed = true; return nil }

// That a client has gone is seen at the owner as well, by way of the node that forwards.
func TestAForwardedClientThatGoesAwayLeavesTheOwnersQueue(t *testing.T) {
	t.Parallel()
	g := newGate()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(middleware.Serialize(x.c, byOrder, nil)(g).ServeHTTP)
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	first := make(chan response, 1)
	go func() { first <- do(t, x.Server, request(t, x.Server, order)) }()
	<-g.in
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r := request(t, x.Server, order).WithContext(ctx)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), 4
		res, err := x.Client().Do(r)
		if err == nil {
			res.Body.Close()
		}
		gone <- err
	}()
	waiting(t, other.c, 1)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	waiting(t, other.c, 0)
	close(g.out)
	if res := <-first; res.body != "done" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}
