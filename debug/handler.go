// Package debug serves a page about the locks of a cluster, for a person at a browser or on a phone, and for curl:
//
//	mux.Handle("/debug/locks/", http.StripPrefix("/debug/locks", debug.Handler(locks, nil)))
//	expvar.Publish("locks", debug.Var(locks))
//
// The page shows the nodes and which guards which, the streams between them, the keys that are held and waited for
// longest, what was lost and why, and what the nodes have logged of late. It needs no script, and loads nothing from elsewhere.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/logs"
)

// Options are the options of [Handler].
type Options struct {
	// Allow reports whether a request may break locks and drain nodes. The handler itself sees to it that such requests come from its own
	// page. It is called for each request, to show the buttons or not. Nil: none may.
	Allow func(*http.Request) bool

	// LongWait is for how long a caller waits before the page says so where it says what is wrong.
	// Default 5 s: less than that of [coord.Options], as callers behind a middleware give up after
	// 10 s.
	LongWait time.Duration

	// Timeout is for how long nodes may take to answer. Default 2 s.
	Timeout time.Duration
}

// Handler returns the page, for a path that ends with a slash, which http.StripPrefix takes off but for that slash. It shows keys,
// labels and hosts to all that reach it: put it where net/http/pprof would be. locks may be a node of a cluster, a process without
// one, or an observer. opts may be nil.
//
//	GET /            the page; JSON for a client that does not accept text/html, such as curl
//	GET /json        JSON
//	GET /keys/KEY    a key; also /keys/?key=KEY, for keys with "//" or "." in their paths
//	POST /break      form fields key, fence and reason: breaks a lock, if Allow permits; with permits=1 it takes away permits
//	POST /drain      form fields node and reason: drains a node, if Allow permits
//
// The nodes are asked once a second at most, however many look, and about each key once a second,
// two keys at a time. A request that waits for longer than Options.Timeout, as others ask about
// keys, is answered with 503.
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
	h.looks = newLooks(make(chan struct{}, 1), h.ask)
	h.keys = newKeyLooks(h.inspect)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.overview)
	mux.HandleFunc("GET /json", h.overview)
	mux.HandleFunc("GET /keys/{key...}", h.key)
	mux.HandleFunc("POST /break", h.act(h.breakLock))
	mux.HandleFunc("POST /drain", h.act(h.drain))
	return http.NewCrossOriginProtection().Handler(mux)
}

// Var returns what this process tells of itself, as [coord.Coordinator.Report] does, for expvar.Publish.
func Var(locks *coord.Coordinator) expvar.Var {
	return expvar.Func(func() any {
		r, err := locks.Report(context.Background(), "")
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		return r
	})
}

// Look asks all nodes, as the page does, and says what is wrong. It blocks until ctx ends at most; nodes that have not answered by then are
// among the problems.
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

// An Overview is what the page shows, and its JSON.
type Overview struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	From      string    `json:"from"` // the process that serves the page

	Nodes      []Node             `json:"nodes"`
	Partitions int                `json:"partitions"`         // of the namespace
	Unowned    int                `json:"unowned"`            // of which no node that answers is the owner: their keys are locked at the arbiter. 0 with More
	More       int                `json:"more,omitempty"`     // nodes that were not asked, as there are so many
	Grace      time.Duration      `json:"grace,omitempty"`    // left, in which the arbiter grants nothing new
	Held       []coord.KeySummary `json:"held,omitempty"`     // for longest
	Waited     []coord.KeySummary `json:"waited,omitempty"`   // for, longest
	Taken      []coord.KeySummary `json:"taken,omitempty"`    // most often
	Wanted     []coord.KeySummary `json:"wanted,omitempty"`   // by the most callers
	Events     []Event            `json:"events,omitempty"`   // of all nodes, the newest first
	Problems   []string           `json:"problems,omitempty"` // in plain words

	held []coord.KeySummary // the same as Held, more of them
}

// A Node is a process, and what it tells of itself.
type Node struct {
	coord.NodeInfo
	Report *coord.NodeReport `json:"report,omitempty"`
	Error  string            `json:"error,omitempty"` // why there is none
}

// An Event is a record of a node's log.
type Event struct {
	Node string `json:"node"`
	coord.Event
}

// A Key is what the page of a key shows, and its JSON.
type Key struct {
	coord.KeyInfo
	Semaphore *Semaphore `json:"semaphore,omitempty"` // of the same key; nil: its permits are neither in use nor waited for
}

// A Semaphore is what the page shows of a semaphore. Shared are its holders, which may keep permits for their next callers (Free).
type Semaphore struct {
	coord.KeyInfo
	InUse int `json:"inUse"` // permits that callers have
	Of    int `json:"of"`    // how many it has
}

// What the page calls hot, and slow.
const (
	longWait    = 5 * time.Second // by default
	longHold    = 12              // times as long is a lock held that others want, before the page says so
	hotWaiters  = 50              // callers
	slowRenewal = 250 * time.Millisecond
)

// How much the page shows.
const (
	mostKeys   = 10
	mostEvents = 40
	mostNodes  = 100 // that are asked
	mostHeld   = 100 // keys among which it looks for those that others want
)

// ask asks the nodes.
func (h *handler) ask(ctx context.Context) *Overview {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	o := &Overview{Time: time.Now(), Namespace: h.locks.Namespace()}
	o.ask(ctx, h.locks, mostNodes)
	o.judge(h.opts.LongWait)
	return o
}

// ask asks the nodes, at most so many.
func (o *Overview) ask(ctx context.Context, locks *coord.Coordinator, most int) {
	listed := locks.Nodes()
	self, err := locks.Report(ctx, "")
	if err == nil {
		o.From, o.Partitions, o.Grace = self.Name, self.Partitions, self.Grace
	}
	alone := len(listed) == 0
	if alone { // without a cluster: this process
		listed = []coord.NodeInfo{{Name: self.Name, Session: self.Session, Self: true, State: "no node"}}
	}
	o.Nodes = make([]Node, min(len(listed), most))
	o.More = len(listed) - len(o.Nodes)
	var work sync.WaitGroup
	for i := range o.Nodes {
		n := &o.Nodes[i]
		n.NodeInfo = listed[i]
		work.Go(func() {
			id := n.ID
			if n.Self {
				id = ""
			}
			r, err := locks.Report(ctx, id)
			if err != nil {
				n.Error = err.Error()
				return
			}
			n.Report = &r
		})
	}
	tops := []struct {
		by   coord.By
		most int
		to   *[]coord.KeySummary
		list coord.KeyList
		err  error
	}{
		{by: coord.LongestHeld, most: mostHeld, to: &o.held}, {by: coord.LongestWait, most: mostKeys, to: &o.Waited},
		{by: coord.MostTaken, most: mostKeys, to: &o.Taken}, {by: coord.MostWaitedFor, most: mostKeys, to: &o.Wanted},
	}
	top := func(i int) { tops[i].list, tops[i].err = locks.Top(ctx, tops[i].most, tops[i].by) }
	work.Go(func() { top(0) })
	work.Go(func() { top(1) })
	work.Go(func() { top(2); top(3) }) // a node takes four questions of another one at a time: these three, and Report
	work.Wait()
	for _, x := range tops {
		*x.to = x.list.Keys
		if x.err != nil {
			o.lacks("", x.err.Error())
		}
		for _, u := range x.list.Unanswered {
			o.lacks(u.Name, u.Reason)
		}
	}
	o.Held = o.held[:min(len(o.held), mostKeys)]
	o.Unowned = o.Partitions
	for _, n := range o.Nodes {
		if n.Report == nil {
			continue
		}
		o.Unowned -= n.Report.Owned
		o.Grace = max(o.Grace, n.Report.Grace)
		for _, e := range n.Report.Events {
			o.Events = append(o.Events, Event{n.Name, e})
		}
	}
	slices.SortStableFunc(o.Events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	o.Events = logs.Thin(o.Events, mostEvents, func(e Event) string { return e.Text })
	if alone || o.More > 0 { // none is a node, or those that were not asked may own them
		o.Unowned = 0
	}
}

// lacks says that the lists of keys are without those of a node, once for all lists.
func (o *Overview) lacks(node, reason string) {
	text := "The lists of keys may lack some: " + reason
	if node != "" {
		text = "The lists of keys may lack those of node " + node + ": " + reason
	}
	if !slices.Contains(o.Problems, text) {
		o.Problems = append(o.Problems, text)
	}
}

// judge says in words what is wrong.
func (o *Overview) judge(long time.Duration) {
	say := func(parts ...string) { o.Problems = append(o.Problems, strings.Join(parts, "")) }
	if o.Grace > 0 {
		say("Grace: the arbiter has failed over or lost data, and grants nothing new for ", lasting(o.Grace), ". Owners go on granting.")
	}
	for _, n := range o.Nodes {
		r := n.Report
		if r == nil {
			say("Node ", n.Name, " does not answer: ", n.Error)
			continue
		}
		if r.Unfit != "" {
			say("Node ", n.Name, ": the arbiter is not fit for locks, and two processes may have the same one: ", r.Unfit)
		}
		if r.State == "leaving" {
			say("Node ", n.Name, " gives its partitions away.")
		}
		if r.Missing != "" {
			say("Node ", n.Name, " has not settled: ", r.Missing)
		}
		for _, text := range r.Troubles {
			say("Node ", n.Name, ": ", text)
		}
		for _, m := range r.Nodes {
			if m.Refused != "" {
				say("Node ", n.Name, " and node ", m.Name, " refuse each other: ", m.Refused)
			}
		}
		if r.Renewal > slowRenewal {
			say("Node ", n.Name, ": the arbiter is slow: a renewal of its session took ", lasting(r.Renewal), ".")
		}
		for _, f := range r.Failing() {
			say("Node ", n.Name, ": calls of the arbiter fail: ", f.Op, ", the last one ", lasting(r.Clock.Sub(f.Time)), " ago: ", f.Error)
		}
		if r.Sessions > 1 {
			say("Node ", n.Name, " has lost its session, and all its locks, ", strconv.Itoa(r.Sessions-1), " times.")
		}
	}
	if o.Unowned > 0 {
		say(strconv.Itoa(o.Unowned), " partitions have no owner that answers: their keys are locked at the arbiter, or wait.")
	}
	told := make(map[[2]string]bool)
	for _, k := range slices.Concat(o.Wanted, o.Taken) {
		if name := [2]string{k.Key, k.Mode}; k.Waiters >= hotWaiters && !k.Expected && !told[name] {
			told[name] = true
			say("Key ", strconv.Quote(k.Key), " is hot: ", strconv.Itoa(k.Waiters), " callers wait for it.")
		}
	}
	for _, k := range o.held {
		held, waits := !k.Since.IsZero() && o.Time.Sub(k.Since) > longHold*long, !k.Waiting.IsZero() && o.Time.Sub(k.Waiting) > long
		if k.Holder != nil && k.Wanted && held && !k.Expected && !waits {
			say("Key ", strconv.Quote(k.Key), " is wanted, and callers may have given up. ", heldBy(&k, o.Time))
		}
	}
	for _, k := range o.Waited {
		if wait := o.Time.Sub(k.Waiting); !k.Waiting.IsZero() && wait > long && !k.Expected {
			say("Callers wait for key ", strconv.Quote(k.Key), ": ", strconv.Itoa(k.Waiters), ", the first for ", lasting(wait), ". ", heldBy(&k, o.Time))
		}
	}
}

func (h *handler) allowed(r *http.Request) bool { return h.opts.Allow != nil && h.opts.Allow(r) }

// page is what a template gets.
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
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
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
	work.Go(func() { permits, other = h.locks.Semaphore(key, 1).Inspect(ctx) }) // how many it has is in the answer
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
