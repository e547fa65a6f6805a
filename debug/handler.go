// Package debug serves a page about the locks of a cluster, for a person at a browser or on a
// phone, and for curl:
//
//	mux.Handle("/debug/locks/", http.StripPrefix("/debug/locks", debug.Handler(locks, nil)))
//	expvar.Publish("locks", debug.Var(locks))
//
// The page shows the nodes, their guards and the streams between them. It shows the keys that are
// held and waited for longest, the losses with their reasons, and the nodes' latest log lines. It
// needs no script, and loads nothing from elsewhere.
package debug

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"expvar"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [Handler].
type Options struct {
	// Allow reports whether a request may break locks and drain nodes. The handler itself sees to
	// it that such requests come from its own page. It is called for each request, to show the
	// buttons or not. Nil: none may.
	Allow func(*http.Request) bool

	// LongWait is the wait that makes a caller one of the page's problems. Default 5 s: less than
	// that of [coord.Options], as callers behind a middleware give up after 10 s. At least 1 ms.
	LongWait time.Duration

	// Timeout is the nodes' time to answer. Default 2 s; at least 1 ms.
	Timeout time.Duration
}

// Handler returns the page, for a path that ends with a slash, which http.StripPrefix takes off but
// for that slash. It shows keys, labels and hosts to all that reach it: put it where net/http/pprof
// would be. locks may be a node of a cluster, a process without one, or an observer. opts may be
// nil.
//
//	GET /            the page; JSON for a client that does not accept text/html, such as curl
//	GET /json        JSON
//	GET /keys/KEY    a key; also /keys/?key=KEY, for keys with "//" or "." in their paths
//	POST /break      form fields key, fence and reason: breaks a lock, if Allow permits; with permits=1 it takes away permits
//	POST /drain      form fields node and reason: drains a node, if Allow permits
//
// However many look, the nodes are asked once a second at most, and about each key once a second.
// Two keys are asked about at a time, and none while the overview asks. A request that waits for
// longer than twice Options.Timeout, as others ask, is answered with 503.
//
// It panics if a time of the options is too short to be meant.
func Handler(locks *coord.Coordinator, opts *Options) http.Handler {
	h := &handler{locks: locks}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.Timeout <= 0 {
		h.opts.Timeout = 2 * time.Second
	}
	if h.opts.LongWait <= 0 {
		h.opts.LongWait = longWait
	}
	if err := errors.Join(unit.Check("debug: Options.LongWait", h.opts.LongWait, time.Millisecond, "5 * time.Second"),
		unit.Check("debug: Options.Timeout", h.opts.Timeout, time.Millisecond, "2 * time.Second")); err != nil {
		panic(err.Error())
	}
	nodes := newRoom()
	h.looks = newLooks(nodes, ofTheOverview, h.ask)
	h.keys = newKeyLooks(nodes, h.inspect)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.overview)
	mux.HandleFunc("GET /json", h.overview)
	mux.HandleFunc("GET /keys/{key...}", h.key)
	mux.HandleFunc("POST /break", h.act(h.breakLock))
	mux.HandleFunc("POST /drain", h.act(h.drain))
	return http.NewCrossOriginProtection().Handler(mux)
}

// Var returns this process's report, that of [coord.Coordinator.Report], for expvar.Publish.
func Var(locks *coord.Coordinator) expvar.Var {
	return expvar.Func(func() any {
		r, err := locks.Report(context.Background(), "")
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		return r
	})
}

// Look asks all nodes, as the page does, and names the problems. It blocks until ctx ends at most;
// nodes that have not answered by then are among the problems.
func Look(ctx context.Context, locks *coord.Coordinator) *Overview {
	o := &Overview{Time: time.Now(), Namespace: locks.Namespace()}
	o.ask(ctx, locks, mostNodes)
	o.judge(longWait)
	return o
}

type handler struct {
	locks *coord.Coordinator
	opts  Options
	looks *looks[*Overview]
	keys  *keyLooks
}

func (h *handler) allowed(r *http.Request) bool { return h.opts.Allow != nil && h.opts.Allow(r) }

// page is the data of a template.
type page struct {
	*Overview
	Root    string // of the links
	Allowed bool
	Every   int // seconds, 0: not again

	Key  *Key
	Asks string // the key that is asked for
	Err  string
	Done string
}

func (h *handler) overview(w http.ResponseWriter, r *http.Request) {
	o, ok := h.looks.look(r.Context())
	if !ok { // the client has gone, or a limit of the request's context has passed
		fail(w, http.StatusServiceUnavailable, "the request has ended while another one asked the nodes")
		return
	}
	if r.URL.Path == "/json" || !wantsHTML(r) {
		reply(w, o)
		return
	}
	every, err := strconv.Atoi(r.URL.Query().Get("every"))
	if err != nil || every < 0 {
		every = 0
	}
	h.show(w, http.StatusOK, "overview.html", &page{Overview: o, Root: rootOf(r), Allowed: h.allowed(r), Every: every})
}

func (h *handler) key(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if key == "" {
		key = r.URL.Query().Get("key")
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*h.opts.Timeout) // the overview may take one
	defer cancel()
	info, err := h.keys.look(ctx, key)
	status := http.StatusOK
	switch {
	case errors.Is(err, errCrowded):
		status = http.StatusServiceUnavailable
	case errors.Is(err, coord.ErrInvalidKey):
		status = http.StatusBadRequest
	case err != nil:
		status = http.StatusBadGateway
	}
	p := &page{Overview: &Overview{Namespace: h.locks.Namespace(), Time: time.Now()}, Root: rootOf(r), Allowed: h.allowed(r), Key: &info, Asks: key}
	if err != nil {
		p.Key, p.Err = nil, err.Error()
	}
	if !wantsHTML(r) {
		if err != nil {
			fail(w, status, p.Err)
			return
		}
		reply(w, info)
		return
	}
	h.show(w, status, "key.html", p)
}

// inspect looks at the lock and the semaphore of a key.
func (h *handler) inspect(ctx context.Context, key string) (k Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	var permits coord.KeyInfo
	var other error
	var work sync.WaitGroup
	work.Go(func() { permits, other = h.locks.Semaphore(key, 1).Inspect(ctx) }) // the answer has their number
	k.KeyInfo, err = h.locks.Inspect(ctx, key)
	work.Wait()
	if err = cmp.Or(err, other); err != nil || len(permits.Shared) == 0 && len(permits.Waiters) == 0 && !permits.Unknown {
		return k, err
	}
	k.Semaphore = &Semaphore{KeyInfo: permits}
	for _, x := range permits.Shared {
		k.Semaphore.Of = x.Of
		if x.Locked {
			k.Semaphore.InUse += x.Permits - x.Free
		}
	}
	for _, x := range permits.Waiters {
		k.Semaphore.Of = max(k.Semaphore.Of, x.Of)
	}
	return k, nil
}

// act is for requests that change something.
func (h *handler) act(f func(context.Context, url.Values) (done string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
		if !h.allowed(r) {
			fail(w, http.StatusForbidden, "it is not allowed here: see debug.Options.Allow")
			return
		}
		if err := r.ParseForm(); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
		defer cancel()
		done, err := f(ctx, r.PostForm)
		status := http.StatusOK
		p := &page{Overview: &Overview{Namespace: h.locks.Namespace(), Time: time.Now()}, Root: rootOf(r), Asks: r.PostForm.Get("key"), Done: done}
		if err != nil {
			status, p.Err = http.StatusConflict, err.Error()
		}
		switch {
		case wantsHTML(r):
			h.show(w, status, "done.html", p)
		case err != nil:
			fail(w, status, p.Err)
		default:
			reply(w, map[string]string{"done": done})
		}
	}
}

func (h *handler) breakLock(ctx context.Context, form url.Values) (string, error) {
	var fence coord.Fence
	if err := fence.UnmarshalText([]byte(form.Get("fence"))); err != nil {
		return "", err
	}
	if form.Get("reason") == "" {
		return "", errors.New("a reason is missing: the holder is told it")
	}
	defer h.keys.forget(form.Get("key"))
	if form.Get("permits") != "" {
		return "The permits were taken away.", h.locks.Semaphore(form.Get("key"), 1).Break(ctx, fence, form.Get("reason"))
	}
	return "The lock was broken.", h.locks.Break(ctx, form.Get("key"), fence, form.Get("reason"))
}

func (h *handler) drain(ctx context.Context, form url.Values) (string, error) {
	if form.Get("node") == "" {
		return "", errors.New("a node is missing")
	}
	err := h.locks.DrainNode(ctx, form.Get("node"), form.Get("reason"))
	return "The node gives its partitions away.", err
}

// wantsHTML reports whether the client is a browser.
func wantsHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// rootOf returns the way from a page to the root, as the handler does not know its prefix.
func rootOf(r *http.Request) string {
	if n := strings.Count(r.URL.EscapedPath(), "/") - 1; n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

func header(w http.ResponseWriter, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
}

func reply(w http.ResponseWriter, v any) {
	header(w, "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

func fail(w http.ResponseWriter, status int, text string) {
	header(w, "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

//go:embed page/*.html
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"lasting": lasting, "ago": ago, "keyURL": keyURL, "percent": percent, "streams": streams, "guards": guards, "sum": sum, "list": func(all ...any) []any { return all },
}).ParseFS(files, "page/*.html"))

func (h *handler) show(w http.ResponseWriter, status int, name string, p *page) {
	header(w, "text/html; charset=utf-8")
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String()))
}
