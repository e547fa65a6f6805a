package debug_test

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	takes.SideBySide(4)
	leak.Main(m)
}

func open(t *testing.T, a fallback.Arbiter, o *coord.Options) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// nodes starts nodes of one cluster.
func nodes(t *testing.T, a fallback.Arbiter, names ...string) (all []*coord.Coordinator) {
	t.Helper()
	for _, name := range names {
		all = append(all, open(t, a, &coord.Options{
			// A busy machine's delays are not taken for faults.
			Namespace: "shop", Name: name, SessionTTL: time.Minute, Grace: 80 * time.Second, Partitions: 61,
			Cluster: &coord.Cluster{
				Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 2 * time.Second, Takeover: 30 * time.Second,
			},
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a busy machine
	defer cancel()
	for _, c := range all {
		if err := c.Settled(ctx, len(all)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// site serves the page as an application would, under a prefix.
func site(t *testing.T, c *coord.Coordinator, opts *debug.Options) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", http.StripPrefix("/debug/locks", debug.Handler(c, opts)))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// do sends a request, as a browser or as curl.
func do(t *testing.T, s *httptest.Server, method, path, accept string, form url.Values, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

const (
	browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	curl    = "*/*"
)

// contains checks a page.
func contains(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
}

// Where not all nodes are asked, partitions of the others are not taken for ones without an owner.
func TestLook_MoreNodesThanAreAsked(t *testing.T) {
	t.Parallel()
	anna := nodes(t, fallback.NewMemory(), "anna", "berta", "clara")[0]
	for most, more := range []int{3, 2, 1, 0} {
		o := debug.LookAt(t.Context(), anna, most)
		if o.Partitions != 61 || o.Unowned != 0 || o.More != more || len(o.Nodes) != most || len(o.Problems) > 0 {
			t.Errorf("%d are asked: %+v", most, o)
		}
	}
}

func keyOf(t *testing.T, c *coord.Coordinator, prefix string) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint(prefix, i)
		if n, ok := c.Owner(key); ok && n.Self {
			return key
		}
	}
	t.Fatal("it owns none")
	return ""
}

// The page shows nodes, keys and events, escaped, without a script and with nothing from elsewhere.
// curl gets JSON.
func TestHandler_ThePage(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	all := nodes(t, a, "anna", "berta")
	anna, berta := all[0], all[1]
	evil := `<script>alert(1)</script>//..` + "\x00\"'"
	l, err := berta.Lock(coord.WithLabel(t.Context(), "<b>label"), evil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	plain := keyOf(t, anna, "order/")
	m, err := anna.Lock(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Unlock() }()
	ctx, stop := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = berta.Lock(coord.WithLabel(ctx, "refund 7"), plain)
	}()
	defer func() { stop(); <-waited }()
	await.Until(t, "a caller waits", func() bool {
		info, err := anna.Inspect(t.Context(), plain)
		return err == nil && len(info.Waiters) == 1
	})
	op := open(t, a, &coord.Options{Namespace: "shop", Name: "op", Observe: true, SessionTTL: time.Minute})
	for _, c := range []*coord.Coordinator{anna, op} {
		s := site(t, c, nil)
		status, page, h := do(t, s, "GET", "/debug/locks/?every=7", browser, nil, nil)
		if status != 200 || h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%d, %v", status, h)
		}
		contains(t, page, "Locks of shop", "anna", "berta", "&lt;script&gt;", "&lt;b&gt;label", `content="7"`, plain, "session begins", "All is well")
		for _, bad := range []string{"<script", "<b>label", "src=", "http://", "https://", "<form action=\"./drain\""} {
			if strings.Contains(page, bad) {
				t.Errorf("the page has %q", bad)
			}
		}
		var o debug.Overview
		for _, path := range []string{"/debug/locks/", "/debug/locks/json"} {
			status, text, h := do(t, s, "GET", path, curl, nil, nil)
			if err := json.Unmarshal([]byte(text), &o); status != 200 || err != nil || h.Get("Content-Type") != "application/json" {
				t.Errorf("%d, %v: %s", status, err, text)
			}
		}
		if len(o.Nodes) != 2 || o.Partitions != 61 || o.Unowned != 0 || len(o.Held) != 2 || len(o.Waited) != 1 || len(o.Events) == 0 {
			t.Errorf("%+v", o)
		}

		status, page, _ = do(t, s, "GET", "/debug/locks/keys/"+plain, browser, nil, nil)
		if status != 200 || strings.Contains(page, "Break this lock") {
			t.Errorf("%d: %s", status, page)
		}
		contains(t, page, "held by", "refund 7", m.Fence().String(), `href="../../"`)
		status, page, _ = do(t, s, "GET", "/debug/locks/keys/?key="+url.QueryEscape(evil), browser, nil, nil)
		if status != 200 {
			t.Errorf("%d", status)
		}
		contains(t, page, l.Fence().String(), "&lt;b&gt;label")
		var info coord.KeyInfo
		_, text, _ := do(t, s, "GET", "/debug/locks/keys/"+plain, curl, nil, nil)
		if err := json.Unmarshal([]byte(text), &info); err != nil || info.Holder == nil || info.Holder.Fence != m.Fence() {
			t.Errorf("%v: %s", err, text)
		}
		if status, _, _ := do(t, s, "GET", "/debug/locks/keys/", browser, nil, nil); status != http.StatusBadRequest {
			t.Errorf("no key: %d", status)
		}
	}
}

// Among the problems the page names the key that callers wait for, and its holder.
func TestHandler_NamesTheHolderThatCallersWaitFor(t *testing.T) {
	t.Parallel()
	all := nodes(t, fallback.NewMemory(), "anna", "berta")
	key := keyOf(t, all[0], "order/")
	l, err := all[1].Lock(coord.WithLabel(t.Context(), "export"), key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	ctx, stop := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = all[0].Lock(ctx, key)
	}()
	defer func() { stop(); <-waited }()
	s, patient := site(t, all[0], &debug.Options{LongWait: 100 * time.Millisecond}), site(t, all[0], &debug.Options{LongWait: time.Hour})
	want := fmt.Sprintf("Callers wait for key %q: 1, the first for ", key)
	await.Until(t, "the page says so", func() bool {
		var o debug.Overview
		_, text, _ := do(t, s, "GET", "/debug/locks/", curl, nil, nil)
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return len(o.Problems) == 1 && strings.HasPrefix(o.Problems[0], want) && strings.Contains(o.Problems[0], "It is held by berta (") &&
			strings.Contains(o.Problems[0], `label "export", for `)
	})
	_, page, _ := do(t, s, "GET", "/debug/locks/", browser, nil, nil)
	contains(t, page, "It is held by berta (")
	_, page, _ = do(t, patient, "GET", "/debug/locks/", browser, nil, nil)
	contains(t, page, "All is well")
}

// Nothing is broken or drained unless it is allowed, and by a request of the page itself.
func TestHandler_BreaksAndDrainsOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	all := nodes(t, fallback.NewMemory(), "anna", "berta")
	anna, berta := all[0], all[1]
	key := keyOf(t, anna, "order/")
	l, err := berta.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"key": {key}, "fence": {l.Fence().String()}, "reason": {"ticket 8123"}}
	closed := site(t, anna, nil)
	allowing := site(t, anna, &debug.Options{Allow: func(r *http.Request) bool { return r.Header.Get("User") == "op" }})
	as := func(name string, and ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("User", name)
			for i := 0; i < len(and); i += 2 {
				r.Header.Set(and[i], and[i+1])
			}
		}
	}
	refused := func(what string, s *httptest.Server, path string, form url.Values, change func(*http.Request), want int) {
		t.Helper()
		if status, text, _ := do(t, s, "POST", path, browser, form, change); status != want {
			t.Errorf("%s: %d, want %d: %s", what, status, want, text)
		}
		if err := l.Context().Err(); err != nil {
			t.Fatalf("%s: the lock was broken", what)
		}
	}
	refused("without Allow", closed, "/debug/locks/break", form, as("op"), 403)
	refused("another user", allowing, "/debug/locks/break", form, as("eve"), 403)
	refused("from another site", allowing, "/debug/locks/break", form, as("op", "Sec-Fetch-Site", "cross-site"), 403)
	refused("from another origin", allowing, "/debug/locks/break", form, as("op", "Origin", "https://evil.example"), 403)
	refused("fields in the address", allowing, "/debug/locks/break?"+form.Encode(), nil, as("op"), 409)
	if status, _, _ := do(t, allowing, "GET", "/debug/locks/break?"+form.Encode(), browser, nil, as("op")); status != 405 || l.Context().Err() != nil {
		t.Errorf("by GET: %d", status)
	}
	refused("another token", allowing, "/debug/locks/break", url.Values{"key": {key}, "fence": {"1"}, "reason": {"x"}}, as("op"), 409)
	refused("no token", allowing, "/debug/locks/break", url.Values{"key": {key}, "reason": {"x"}}, as("op"), 409)
	refused("no reason", allowing, "/debug/locks/break", url.Values{"key": {key}, "fence": {l.Fence().String()}}, as("op"), 409)
	refused("a form without end", allowing, "/debug/locks/break", url.Values{"key": {strings.Repeat("k", 1<<20)}}, as("op"), 400)
	refused("drain without Allow", closed, "/debug/locks/drain", url.Values{"node": {"berta"}}, as("op"), 403)
	refused("drain no node", allowing, "/debug/locks/drain", url.Values{"node": {"nobody"}}, as("op"), 409)

	_, page, _ := do(t, allowing, "GET", "/debug/locks/keys/"+key, browser, nil, as("op"))
	contains(t, page, "Break this lock", `action="../../break"`, l.Fence().String())
	if _, page, _ = do(t, allowing, "GET", "/debug/locks/keys/"+key, browser, nil, as("eve")); strings.Contains(page, "Break this lock") {
		t.Error("a button for a user who may not")
	}
	status, page, _ := do(t, allowing, "POST", "/debug/locks/break", browser, form, as("op", "Sec-Fetch-Site", "same-origin"))
	if status != 200 || l.Context().Err() == nil {
		t.Errorf("%d: %s", status, page)
	}
	contains(t, page, "was broken")
	if err := l.Unlock(); err == nil || !strings.Contains(err.Error(), "ticket 8123") {
		t.Error(err)
	}
	if status, text, _ := do(t, allowing, "POST", "/debug/locks/drain", curl, url.Values{"node": {"berta"}}, as("op")); status != 200 {
		t.Errorf("%d: %s", status, text)
	}
	await.Until(t, "it owns nothing", func() bool { return berta.Stats().Owned == 0 })
	await.Until(t, "the page says so", func() bool {
		_, page, _ := do(t, closed, "GET", "/debug/locks/", browser, nil, nil)
		return strings.Contains(page, "gives its partitions away") && strings.Contains(page, "was broken")
	})
}

// A key that is read is not free: the page names the processes that read it, and breaks their
// locks.
func TestHandler_Readers(t *testing.T) {
	t.Parallel()
	all := nodes(t, fallback.NewMemory(), "anna", "berta")
	key := keyOf(t, all[0], "catalog/")
	l, err := all[1].RLock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := site(t, all[0], &debug.Options{Allow: func(*http.Request) bool { return true }})
	_, page, _ := do(t, s, "GET", "/debug/locks/keys/"+key, browser, nil, nil)
	contains(t, page, "readers, or callers with permits", "berta", "read", "Break those of berta", l.Fence().String())
	form := url.Values{"key": {key}, "fence": {l.Fence().String()}, "reason": {"ticket 8123"}}
	if status, text, _ := do(t, s, "POST", "/debug/locks/break", browser, form, nil); status != 200 {
		t.Errorf("%d: %s", status, text)
	}
	if err := l.Unlock(); err == nil || !strings.Contains(err.Error(), "ticket 8123") {
		t.Error(err)
	}
}

// The page of a key shows its semaphore: permits in use, of how many, the holders with their labels
// and the waiters.
func TestHandler_Permits(t *testing.T) {
	t.Parallel()
	all := nodes(t, fallback.NewMemory(), "anna", "berta")
	var mine []coord.Permits
	for i, c := range all {
		p, err := c.Semaphore("reports", 4).Acquire(coord.WithLabel(t.Context(), fmt.Sprint("print ", i)), i+1)
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, p)
	}
	granted := make(chan error, 1)
	go func() {
		granted <- all[0].Semaphore("reports", 4).Do(coord.WithLabel(t.Context(), "print 2"), 3, func(context.Context) error { return nil })
	}()
	s := site(t, all[0], &debug.Options{Allow: func(*http.Request) bool { return true }})
	var k debug.Key
	await.Until(t, "one caller waits", func() bool {
		_, text, _ := do(t, s, "GET", "/debug/locks/keys/reports", curl, nil, nil)
		k = debug.Key{}
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			t.Fatal(err)
		}
		return k.Semaphore != nil && len(k.Semaphore.Waiters) == 1 && len(k.Semaphore.Shared) == 2
	})
	if x := k.Semaphore; k.Holder != nil || x.InUse != 3 || x.Of != 4 || x.Waiters[0].Permits != 3 {
		t.Errorf("%+v", x)
	}
	_, page, _ := do(t, s, "GET", "/debug/locks/keys/reports", browser, nil, nil)
	contains(t, page, "3 of 4 permits in use", "1 of 4 permits", "2 of 4 permits", "3 of 4 permits", "print 0", "print 1", "print 2", "Break those of berta")
	for _, h := range k.Semaphore.Shared {
		if h.Name == "berta" {
			form := url.Values{"key": {"reports"}, "fence": {h.Fence.String()}, "permits": {"1"}, "reason": {"ticket 8123"}}
			if status, text, _ := do(t, s, "POST", "/debug/locks/break", browser, form, nil); status != 200 {
				t.Errorf("%d: %s", status, text)
			}
		}
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
	if err := mine[1].Release(); err == nil || !strings.Contains(err.Error(), "ticket 8123") {
		t.Error(err)
	}
	if err := mine[0].Release(); err != nil {
		t.Error(err)
	}
	if _, page, _ = do(t, s, "GET", "/debug/locks/keys/other", browser, nil, nil); strings.Contains(page, "permits in use") {
		t.Error("a key without a semaphore shows one")
	}
}

// Of a block of permits that callers use in part, the page shows the numbers of permits in use, of
// free ones, and of callers.
func TestHandler_PermitsOfABlockInPart(t *testing.T) {
	t.Parallel()
	c := open(t, fallback.NewMemory(), &coord.Options{Name: "anna", Handoff: coord.Handoff{Linger: time.Minute}})
	take := func(n int) coord.Permits {
		p, err := c.Semaphore("reports", 40).Acquire(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := take(10).Release(); err != nil {
		t.Fatal(err)
	}
	look := func() (k debug.Key, row string) {
		s := site(t, c, nil) // which asks anew
		_, text, _ := do(t, s, "GET", "/debug/locks/keys/reports", curl, nil, nil)
		if err := json.Unmarshal([]byte(text), &k); err != nil || k.Semaphore == nil || len(k.Semaphore.Shared) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		_, page, _ := do(t, s, "GET", "/debug/locks/keys/reports", browser, nil, nil)
		contains(t, page, fmt.Sprintf("%d of 40 permits in use", k.Semaphore.InUse), `<th class="n">free`)
		_, row, _ = strings.Cut(page, "<td>10 of 40 permits")
		row, _, _ = strings.Cut(row, "</tr>")
		return k, row
	}
	if k, row := look(); k.Semaphore.InUse != 0 || !strings.HasPrefix(row, `, kept or not known<td class="n">10<td class="n">0<td>`) {
		t.Errorf("kept: %+v, %s", k.Semaphore, row)
	}
	mine := []coord.Permits{take(1), take(2), take(4)}
	if k, row := look(); k.Semaphore.InUse != 7 || !strings.HasPrefix(row, `<td class="n">3<td class="n">3<td>`) {
		t.Errorf("7 of 10 in use: %+v, %s", k.Semaphore, row)
	}
	mine = append(mine, take(3))
	if k, row := look(); k.Semaphore.InUse != 10 || !strings.HasPrefix(row, `<td class="n">0<td class="n">4<td>`) {
		t.Errorf("10 of 10 in use: %+v, %s", k.Semaphore, row)
	}
	for _, p := range mine {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
}

// The problems are at the top: a node that does not answer. Without a cluster there is a page as
// well.
func TestHandler_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	all := nodes(t, a, "anna")
	// A session that a process has left behind.
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "shop", Partitions: 61, Grace: 80 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ns.Open(t.Context(), "frozen", fallback.Registration{TTL: time.Minute, Info: "name=frozen&n=frozen/1&p=127.0.0.1:1&k=key&q=1"}); err != nil {
		t.Fatal(err)
	}
	op := open(t, a, &coord.Options{Namespace: "shop", Name: "op", Observe: true})
	var page string
	s := site(t, op, nil)
	await.Until(t, "the observer has a stream to the node that answers", func() bool {
		_, page, _ = do(t, s, "GET", "/debug/locks/", browser, nil, nil)
		return strings.Contains(page, "61 <span")
	})
	contains(t, page, "Node frozen does not answer", "may lack those of node frozen", "61 <span", all[0].Stats().Session)

	lonely := open(t, fallback.NewMemory(), &coord.Options{Name: "lonely", SessionTTL: time.Minute})
	l, err := lonely.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	_, page, _ = do(t, site(t, lonely, nil), "GET", "/debug/locks/", browser, nil, nil)
	contains(t, page, "lonely", "All is well", ">k</a>")
}

func TestVar(t *testing.T) {
	c := open(t, fallback.NewMemory(), &coord.Options{Name: "anna"})
	name := fmt.Sprintf("locks of %p", c) // a process publishes a name once, and -count runs this again
	expvar.Publish(name, debug.Var(c))
	var r coord.NodeReport
	if err := json.Unmarshal([]byte(expvar.Get(name).String()), &r); err != nil || r.Name != "anna" || r.PID != os.Getpid() || r.Calls["open"] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A number without a unit is in nanoseconds: no node would answer in time.
func TestHandler_RefusesTimesThatAreTooShortToBeMeant(t *testing.T) {
	for want, opts := range map[string]*debug.Options{"Options.LongWait is 5ns": {LongWait: 5}, "Options.Timeout is 2ns": {Timeout: 2}} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("panics with %q, want %q", said, want)
				}
			}()
			debug.Handler(nil, opts)
		}()
	}
}
