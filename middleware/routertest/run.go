package routertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

// patience is the longest wait for an event that has to happen.
const patience = 20 * time.Second

// serialize: the route's parameters make the key, the handler has the lock, and does not run
// without.
func (s Suite[H]) serialize(t *testing.T) {
	c := locks(t)
	ran := false
	h := s.Mount(Route, s.Text(func(r *http.Request, id string) (int, string) {
		ran = true
		l, ok := middleware.Lock(r.Context())
		return http.StatusOK, fmt.Sprint(l.Key(), " ", ok, " ", id, " ", r.PathValue("id"))
	}), middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: -1}))
	if w := post(h); w.Body.String() != "order/7 true 7 7" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l, err := c.Lock(t.Context(), "order/7")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ran = false
	if w := post(h); w.Code != http.StatusLocked || ran || !strings.Contains(w.Body.String(), middleware.TypeLocked) {
		t.Errorf("%d %s, ran %v", w.Code, w.Body, ran)
	}
}

// encoded: the ways to write a path make one key, and a "%" that was sent as "%25" stays one.
func (s Suite[H]) encoded(t *testing.T) {
	locked := ""
	h := s.Mount(Route, s.Text(func(r *http.Request, _ string) (int, string) {
		l, _ := middleware.Lock(r.Context())
		locked = l.Key()
		return http.StatusOK, "done"
	}), serialize(t))
	for path, id := range map[string]string{
		"/orders/7": "7", "/orders/%37": "7", "/orders/a:7": "a:7", "/orders/a%3A7": "a:7", "/orders/a%3a%37": "a:7",
		"/orders/%2537": "%37", "/orders/%2537%37": "%377", "/orders/%2525%37": "%257",
	} {
		locked = ""
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil)); locked != middleware.JoinKey("order", id) {
			t.Errorf("%s: %d, key %q", path, w.Code, locked)
		}
	}
}

// panics: a panic goes on to the router's own middleware, and leaves no lock.
func (s Suite[H]) panics(t *testing.T) {
	n := 0
	h := s.Mount(Route, s.Text(func(*http.Request, string) (int, string) {
		if n++; n == 1 {
			panic("on purpose")
		}
		return http.StatusOK, "done"
	}), serialize(t))
	for _, want := range []int{http.StatusInternalServerError, http.StatusOK} {
		if w := post(h); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
}

// asking is a context that tells when a request begins to wait.
type asking struct {
	context.Context
	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

// coalesce: requests at the same time share a run, wherever the middleware is mounted, also one
// that answers with an error.
func (s Suite[H]) coalesce(t *testing.T) {
	for _, where := range []Where{Route, Group, All} {
		var runs, joined atomic.Int32
		gate, in := make(chan struct{}), make(chan struct{}, 3)
		coalesce := middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{
			Observe: func(_ *http.Request, how middleware.Coalesced) {
				if how == middleware.CoalescedShared {
					joined.Add(1)
				}
			},
		})
		h := s.Mount(where, s.Error(func(_ *http.Request, id string) (int, string) {
			runs.Add(1)
			in <- struct{}{}
			<-gate
			return http.StatusNotFound, "no order " + id
		}), coalesce)
		get := func(asked func()) {
			var once sync.Once
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders/7", nil)
			h.ServeHTTP(w, r.WithContext(asking{r.Context(), func() { once.Do(asked) }}))
			if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no order 7") {
				t.Errorf("%s: %d %s", where, w.Code, w.Body)
			}
		}
		var all, waiting sync.WaitGroup
		all.Go(func() { get(func() {}) })
		<-in
		waiting.Add(2)
		for range 2 {
			all.Go(func() { get(waiting.Done) })
		}
		waiting.Wait()
		close(gate)
		all.Wait()
		if runs.Load() != 1 || joined.Load() != 2 {
			t.Errorf("%s: %d runs, %d joined", where, runs.Load(), joined.Load())
		}
	}
}

// streams: flushed bytes arrive at once, and a repeated request gets all of them.
func (s Suite[H]) streams(t *testing.T) {
	step := make(chan string, 1)
	server := httptest.NewServer(s.Mount(Route, s.Stream(func(*http.Request) string { return <-step }), idempotent(t), serialize(t)))
	defer server.Close()
	ask := func() (*http.Response, *bufio.Reader) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/orders/7", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res, bufio.NewReader(res.Body)
	}
	step <- "line 0\n"
	res, in := ask()
	for i := range 3 {
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("%d: %q, %v", i, line, err)
		}
		if i < 2 {
			step <- fmt.Sprintf("line %d\n", i+1)
		}
	}
	close(step)
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	res.Body.Close()
	res, in = ask()
	defer res.Body.Close()
	if all, err := io.ReadAll(in); string(all) != "line 0\nline 1\nline 2\n" || err != nil || res.Header.Get(middleware.ReplayedHeader) == "" {
		t.Errorf("%q, %v, %v", all, err, res.Header)
	}
}

// clientGone: the handler is told, and the lock is free afterwards.
func (s Suite[H]) clientGone(t *testing.T) {
	in, told := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(s.Mount(Route, s.Text(func(r *http.Request, _ string) (int, string) {
		close(in)
		select {
		case <-r.Context().Done():
			close(told)
		case <-time.After(patience):
		}
		return http.StatusOK, ""
	}), serialize(t)))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/orders/7", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-in
		leave()
	}()
	if res, err := server.Client().Do(r); err == nil {
		t.Error("answered")
		res.Body.Close()
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("the handler was not told")
	}
}

// files: the server removes the files of a form that the handler has parsed.
func (s Suite[H]) files(t *testing.T) {
	for name, mw := range map[string][]Middleware{
		"nothing":   {func(h http.Handler) http.Handler { return h }},
		"Serialize": {serialize(t)},
		"both":      {idempotent(t), serialize(t)},
	} {
		path := ""
		server := httptest.NewServer(s.Mount(Route, s.Text(func(r *http.Request, _ string) (int, string) {
			var err error
			if path, err = spilled(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return http.StatusOK, "done"
		}), mw...))
		pr, pw := io.Pipe()
		form := multipart.NewWriter(pw)
		go func() {
			part, err := form.CreateFormFile("f", "f")
			if err == nil {
				_, err = part.Write(make([]byte, 20_000)) // more than is kept in memory
			}
			_ = pw.CloseWithError(errors.Join(err, form.Close()))
		}()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders/7", pr)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.Header.Set("Idempotency-Key", "k")
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		server.Close() // when it has done all
		if _, err := os.Stat(path); path == "" || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file %q of a form is left: %v", name, path, err)
		}
	}
}

// spilled parses a form, and returns the path of its file.
func spilled(r *http.Request) (string, error) {
	if err := r.ParseMultipartForm(1); err != nil {
		return "", err
	}
	f, err := r.MultipartForm.File["f"][0].Open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	file, ok := f.(*os.File)
	if !ok {
		return "", errors.New("the file of the form is in memory")
	}
	return file.Name(), nil
}
