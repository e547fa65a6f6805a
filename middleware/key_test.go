package middleware_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// seen serves one request with a middleware and returns its status and the key that was locked, ""
// if none was.
func seen(t *testing.T, c *coord.Coordinator, pattern string, key middleware.KeyFunc, r *http.Request) (status int, locked string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(pattern, middleware.Serialize(c, key, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if l, ok := middleware.Lock(r.Context()); ok {
			locked = l.Key()
		}
	})))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w.Code, locked
}

func post(target string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestKeys(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	long, longest := strings.Repeat("x", coord.MaxKey+1), strings.Repeat("x", coord.MaxKey)
	path := middleware.Key("order", middleware.PathValue("id"))
	header := middleware.Header("x-order")
	query := middleware.Query("order")
	cookie := middleware.Cookie("order")
	two := middleware.Key("t", middleware.Header("A"), middleware.Header("B"))
	const id, rest = "/orders/{id}", "/files/{id...}"
	for name, x := range map[string]struct {
		pattern string
		key     middleware.KeyFunc
		r       *http.Request
		want    string // "": 400
	}{
		"path":                       {id, path, post("/orders/42"), "order/42"},
		"path, encoded slash":        {id, path, post("/orders/a%2Fb"), "order/a%2Fb"},
		"path, lower case":           {id, path, post("/orders/a%2fb"), "order/a%2Fb"},
		"path, rest":                 {rest, path, post("/files/a/b"), "order/a%2Fb"},
		"path, empty rest":           {rest, path, post("/files/"), ""},
		"path, encoded twice":        {id, path, post("/orders/a%252Fb"), "order/a%252Fb"},
		"path, dots":                 {id, path, post("/orders/%2e%2e"), "order/.."},
		"path, dots and slash":       {id, path, post("/orders/..%2F..%2Fuser%2F1"), "order/..%2F..%2Fuser%2F1"},
		"path, NUL":                  {id, path, post("/orders/a%00"), ""},
		"path, line feed":            {id, path, post("/orders/a%0A"), ""},
		"path, DEL":                  {id, path, post("/orders/%7f"), ""},
		"path, C1 control":           {id, path, post("/orders/%c2%85"), ""},
		"path, bad UTF-8":            {id, path, post("/orders/%ff"), ""},
		"path, overlong slash":       {id, path, post("/orders/a%c0%afb"), ""},
		"path, UTF-8":                {id, path, post("/orders/%c3%a4"), "order/ä"},
		"path, huge":                 {id, path, post("/orders/" + long), ""},
		"path, too long with prefix": {id, path, post("/orders/" + longest), ""},
		"path, too long escaped":     {id, path, post("/orders/" + strings.Repeat("%2F", 400)), ""},
		"path, longest":              {id, path, post("/orders/" + longest[len("order/"):]), "order/" + longest[len("order/"):]},

		"header":                   {"/", header, post("/", "X-Order", "42"), "42"},
		"header, missing":          {"/", header, post("/"), ""},
		"header, empty":            {"/", header, post("/", "X-Order", ""), ""},
		"header, twice":            {"/", header, post("/", "X-Order", "1", "X-Order", "2"), ""},
		"header, twice the same":   {"/", header, post("/", "X-Order", "1", "X-Order", "1"), ""},
		"header, longest":          {"/", header, post("/", "X-Order", longest), longest},
		"header, too long":         {"/", header, post("/", "X-Order", long), ""},
		"header, tab":              {"/", header, post("/", "X-Order", "a\tb"), ""},
		"query":                    {"/", query, post("/?order=42"), "42"},
		"query, encoded":           {"/", query, post("/?order=a%2Fb"), "a/b"},
		"query, missing":           {"/", query, post("/?Order=42"), ""},
		"query, empty":             {"/", query, post("/?order="), ""},
		"query, twice":             {"/", query, post("/?order=1&order=2"), ""},
		"query, one spelled oddly": {"/", query, post("/?order=1&%6frder=2"), ""},
		"query, bad escape":        {"/", query, post("/?order=%zz"), ""},
		"query, bad elsewhere":     {"/", query, post("/?order=1&x=%z"), ""},
		"query, semicolon":         {"/", query, post("/?order=1;order=2"), ""},
		"query, NUL":               {"/", query, post("/?order=1%00"), ""},
		"query, bad UTF-8":         {"/", query, post("/?order=%ff"), ""},
		"cookie":                   {"/", cookie, post("/", "Cookie", "a=b; order=42"), "42"},
		"cookie, missing":          {"/", cookie, post("/", "Cookie", "a=b"), ""},
		"cookie, empty":            {"/", cookie, post("/", "Cookie", "order="), ""},
		"cookie, twice":            {"/", cookie, post("/", "Cookie", "order=1; order=2"), ""},
		"cookie, two headers":      {"/", cookie, post("/", "Cookie", "order=1", "Cookie", "order=2"), ""},

		"two parts":              {"/", two, post("/", "A", "a/b", "B", "c"), "t/a%2Fb/c"},
		"the other two":          {"/", two, post("/", "A", "a", "B", "b/c"), "t/a/b%2Fc"},
		"what looks escaped":     {"/", two, post("/", "A", "a%2Fb", "B", "c"), "t/a%252Fb/c"},
		"two parts, one missing": {"/", two, post("/", "A", "a"), ""},
		"no parts":               {"/", middleware.Key("report"), post("/"), "report"},
		"nested": {"/", middleware.Key("a", middleware.Key("b", middleware.Header("A")), middleware.Header("B")),
			post("/", "A", "1", "B", "2"), "a/b%2F1/2"},
		"one's own":             {"/", func(r *http.Request) (string, error) { return r.Host, nil }, post("/"), "example.com"},
		"one's own, empty part": {"/", middleware.Key("t", func(*http.Request) (string, error) { return "", nil }), post("/"), ""},
		"one's own, empty":      {"/", func(*http.Request) (string, error) { return "", nil }, post("/"), ""},
		"one's own, binary":     {"/", func(*http.Request) (string, error) { return "\x00\xff", nil }, post("/"), ""},
		"one's own, error":      {"/", func(*http.Request) (string, error) { return "k", errors.New("no") }, post("/"), ""},
	} {
		status, locked := seen(t, c, x.pattern, x.key, x.r)
		if want := map[bool]int{true: 200, false: 400}[x.want != ""]; status != want || locked != x.want {
			t.Errorf("%s: status %d, key %q; want %d, %q", name, status, locked, want, x.want)
		}
	}
	idle(t, c)
}

func TestTheMuxNeverSeesDotsAsAKey(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	status, locked := seen(t, c, "/orders/{id}", middleware.PathValue("id"), post("/orders/../users"))
	if status == http.StatusOK || locked != "" {
		t.Errorf("status %d, key %q", status, locked)
	}
}

func TestSkipAndPatternsThatDoNotFit(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	skip := middleware.Key("x", func(*http.Request) (string, error) { return "", middleware.ErrSkip })
	if status, locked := seen(t, c, "/", skip, post("/")); status != 200 || locked != "" {
		t.Errorf("skipped: %d, %q", status, locked)
	}
	if status, _ := seen(t, c, "/orders/{order}", middleware.PathValue("id"), post("/orders/1")); status != 500 {
		t.Errorf("another wildcard: %d", status)
	}
	// Around the mux, which has not chosen yet.
	w := httptest.NewRecorder()
	middleware.Serialize(c, middleware.PathValue("id"), nil)(http.NewServeMux()).ServeHTTP(w, post("/orders/1"))
	if w.Code != 500 || !strings.Contains(w.Body.String(), middleware.TypeMisconfigured) {
		t.Errorf("around the mux: %d %s", w.Code, w.Body)
	}
	// Of a router that is no ServeMux, in whose pattern the wildcard is, or is not.
	for pattern, status := range map[string]int{
		"/orders/:id/payment": 400, "/orders/*id": 400, "/orders/no-:id": 400, "/orders/{id:[0-9]*}/payment": 400,
		"/orders/:ids/payment": 500, "/orders/:order/id": 500, "/orders/id": 500, "/orders/{ids}": 500, "": 500,
	} {
		r, w := post("/orders//payment"), httptest.NewRecorder()
		r.Pattern = pattern
		r.SetPathValue("id", "")
		if middleware.Serialize(c, middleware.PathValue("id"), nil)(http.NewServeMux()).ServeHTTP(w, r); w.Code != status {
			t.Errorf("%s: %d %s", pattern, w.Code, w.Body)
		}
	}
	r := post("/orders/1")
	r.SetPathValue("id", "1")
	if key, err := middleware.PathValue("id")(r); key != "1" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
}

// Routers other than the mux set values from the path as it was sent, or from the decoded one. Each
// value is decoded once.
func TestPathValuesThatWereSetAsTheyWereSent(t *testing.T) {
	for _, x := range []struct{ target, pattern, name, value, want string }{
		{"/orders/%37", "/orders/{id}", "id", "%37", "7"},
		{"/orders/%2537", "/orders/{id}", "id", "%37", "%37"}, // there is no RawPath: it is decoded
		{"/orders/%2537%37", "/orders/{id}", "id", "%2537%37", "%377"},
		{"/orders/%2537%37", "/orders/:id", "id", "%377", "%377"}, // as Gin says
		{"/orders/%2525%37", "/orders/{id}", "id", "%2525%37", "%257"},
		{"/orders/%2525%37", "/orders/{id}", "id", "%257", "%257"},
		{"/orders/a%2Fb", "/orders/{id}", "id", "a%2Fb", "a/b"},
		{"/orders/%00%37", "/orders/{id}", "id", "%00%37", ""},
		{"/orders/%37/payment", "/orders/{id:[0-9%]+}/payment", "id", "%37", "7"},
		{"/orders/no-%37", "/orders/no-:id", "id", "%37", "7"},
		{"/files/a/%62", "/files/*", "*", "a/%62", "a/b"},
		{"/files/%25a/%62", "/files/{rest...}", "rest", "%a/b", "%a/b"},
		{"/files/%25a/%62", "/files/*rest", "rest", "/%a/b", "/%a/b"}, // as Gin says
		{"/files/%253%33", "/files/{rest...}", "rest", "%33", "%33"},  // which RawPath ends with
		{"/a/%37/%2537", "/a/{x}/{y}", "y", "%37", ""},                // made to confuse
		{"/a/%37/%2537", "/a/{x}/{y}", "y", "%2537", "%37"},
		{"/orders/a%20b", "/orders/:id", "id", "a%20b", "a b"}, // as Gin with UseEscapedPath says
		{"/orders/%61%20b", "/orders/:id", "id", "%61%20b", "a b"},
		{"/orders/%2520", "/orders/:id", "id", "%2520", "%20"},
		{"/orders/%2520", "/orders/:id", "id", "%20", "%20"}, // as the same with UnescapePathValues says
		{"/orders/50%25", "/orders/{id:.+}", "id", "50%", "50%"},
		{"/no-a%20b", "/no-:id", "id", "a%20b", "a b"}, // as Gin with UseEscapedPath says
		{"/no-%2520", "/no-:id", "id", "%2520", "%20"},
		{"/no-%2520", "/no-:id", "id", "%20", "%20"},           // as the same with UnescapePathValues says
		{"/no-%20/no-%2520", "/no-:x/no-:id", "id", "%20", ""}, // made to confuse, too
		{"/files/a%20/b", "/files/*rest", "rest", "/a%20/b", "/a /b"},
		{"/files/%61%20/b", "/files/*rest", "rest", "/%61%20/b", "/a /b"},
		{"/a/%20/%2520", "/a/{x}/{y}", "y", "%20", ""}, // made to confuse, too
		{"/no-%37/%37/%2537", "/no-:id/:x/:y", "id", "%37", ""},
	} {
		r := post(x.target)
		r.Pattern = x.pattern
		r.SetPathValue(x.name, x.value)
		key, err := middleware.PathValue(x.name)(r)
		if _, refused := errors.AsType[*middleware.KeyError](err); key != x.want || refused != (x.want == "") {
			t.Errorf("%s, %s = %q: %q, %v; want %q", x.target, x.name, x.value, key, err, x.want)
		}
	}
}

// A mux sets decoded values: none is decoded twice, whatever the path.
func FuzzPathValuesOfTheMux(f *testing.F) {
	f.Add("/a/%37/%2537/%2525")
	f.Add("/a/b%2Fc/%253%33/%25/%3")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		mux := http.NewServeMux()
		mux.HandleFunc("/a/{x}/{y}/{rest...}", func(_ http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"x", "y", "rest"} {
				if key, err := middleware.PathValue(name)(r); err == nil && key != r.PathValue(name) {
					t.Errorf("%s: %s is %q, of %q", path, name, key, r.PathValue(name))
				}
			}
		})
		mux.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: http.MethodPost, URL: u, Host: "h"})
	})
}

func TestWhatAClientIsToldOfItsKey(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for _, x := range []struct {
		key  middleware.KeyFunc
		want string
	}{
		{middleware.Header("X-Order"), `header \"X-Order\" has control characters`},
		{func(*http.Request) (string, error) { return "", errors.New("secret") }, ""},
	} {
		w := httptest.NewRecorder()
		middleware.Serialize(c, x.key, nil)(nil).ServeHTTP(w, post("/", "X-Order", "secret\x01"))
		if w.Code != 400 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), x.want) ||
			!strings.Contains(w.Body.String(), `"type":"`+middleware.TypeKey+`"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

func TestConstructorsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"no prefix":       func() { middleware.Key("") },
		"bad prefix":      func() { middleware.Key("a\n") },
		"nil part":        func() { middleware.Key("a", nil) },
		"no header":       func() { middleware.Header("") },
		"host":            func() { middleware.Header("host") },
		"no wildcard":     func() { middleware.PathValue("") },
		"no parameter":    func() { middleware.Query("") },
		"no cookie":       func() { middleware.Cookie("") },
		"no coordinator":  func() { middleware.Serialize(nil, middleware.Key("a"), nil) },
		"no key":          func() { middleware.Serialize(new(coord.Coordinator), nil, nil) },
		"Route, no coord": func() { middleware.Route(nil, middleware.Key("a"), nil) },
		"Route, no key":   func() { middleware.Route(new(coord.Coordinator), nil, nil) },
		"status":          func() { options(middleware.SerializeOptions{LockedStatus: 500}) },
		"method":          func() { options(middleware.SerializeOptions{Methods: []string{"post"}}) },
		"fence header":    func() { options(middleware.SerializeOptions{FenceHeader: "a b"}) },
		"Wait":            func() { options(middleware.SerializeOptions{Wait: 10}) },
		"BodyTimeout":     func() { options(middleware.SerializeOptions{BodyTimeout: 10}) },
		"Route, Avoid": func() {
			middleware.Route(new(coord.Coordinator), middleware.Key("a"), &middleware.RouteOptions{Avoid: 2})
		},
		"Route, method": func() {
			middleware.Route(new(coord.Coordinator), middleware.Key("a"), &middleware.RouteOptions{Methods: []string{""}})
		},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "middleware: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}

func options(o middleware.SerializeOptions) {
	middleware.Serialize(new(coord.Coordinator), middleware.Key("a"), &o)
}

// Two lists of values, or two kinds, never make the same key.
func FuzzJoinKey(f *testing.F) {
	f.Add("a", "b", "c", "a/b", "c", "")
	f.Add("p", "a/b", "c", "p", "a", "b/c")
	f.Add("p", "%2F", "/", "p", "/", "%2F")
	f.Add("p", "%", "25", "p", "%25", "")
	f.Fuzz(func(t *testing.T, p1, a1, b1, p2, a2, b2 string) {
		one, two := middleware.JoinKey(p1, a1, b1), middleware.JoinKey(p2, a2, b2)
		if same := p1 == p2 && a1 == a2 && b1 == b2; (one == two) != same {
			t.Errorf("(%q %q %q) and (%q %q %q): %q and %q", p1, a1, b1, p2, a2, b2, one, two)
		}
		if shorter := middleware.JoinKey(p1, a1); shorter == one {
			t.Errorf("(%q %q) is (%q %q %q)", p1, a1, p1, a1, b1)
		}
		var back []string
		for _, part := range strings.Split(one, "/") {
			s, err := url.PathUnescape(strings.NewReplacer("%25", "%25", "%2F", "%2F").Replace(part))
			if err != nil {
				t.Fatalf("%q: %v", part, err)
			}
			back = append(back, s)
		}
		if len(back) != 3 || back[0] != p1 || back[1] != a1 || back[2] != b1 {
			t.Errorf("%q came back as %q", one, back)
		}
	})
}

// Whatever a client sends: a usable key that has the value that the handler sees, or an error for
// the client.
func FuzzKeys(f *testing.F) {
	f.Add("/orders/1", "order=2", "3", "order=4")
	f.Add("/orders/a%2f..", "order=%00&order=1", "a\x00", "order=\xff; order=1")
	f.Add("/orders/%c0%af", "order=1;x", strings.Repeat("x", 2000), "order=\"1\"")
	f.Fuzz(func(t *testing.T, path, query, header, cookie string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		u.RawQuery = query
		r := &http.Request{Method: http.MethodPost, URL: u, Host: "h", Header: http.Header{"X-Order": {header}, "Cookie": {cookie}}}
		var keys []string
		mux := http.NewServeMux()
		mux.HandleFunc("/orders/{id}", func(_ http.ResponseWriter, r *http.Request) {
			want := map[string]string{"path": r.PathValue("id"), "query": r.FormValue("order"), "header": r.Header.Get("X-Order")}
			if ck, err := r.Cookie("order"); err == nil {
				want["cookie"] = ck.Value
			}
			for kind, part := range map[string]middleware.KeyFunc{
				"path": middleware.PathValue("id"), "query": middleware.Query("order"),
				"header": middleware.Header("X-Order"), "cookie": middleware.Cookie("order"),
			} {
				key, err := middleware.Key(kind, part)(r)
				if err != nil {
					if _, ok := errors.AsType[*middleware.KeyError](err); !ok {
						t.Errorf("%s: %v", kind, err)
					}
					continue
				}
				keys = append(keys, key)
				if key != middleware.JoinKey(kind, want[kind]) || want[kind] == "" {
					t.Errorf("%s: key %q, the handler sees %q", kind, key, want[kind])
				}
				if !utf8.ValidString(key) || strings.ContainsAny(key, "\x00\r\n") || strings.Count(key, "/") != 1 {
					t.Errorf("%s: key %q", kind, key)
				}
			}
		})
		mux.ServeHTTP(httptest.NewRecorder(), r)
	})
}
