package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/middleware"
)

// A client that says that its request was forwarded is not believed: the request goes to the owner,
// and no handler sees the header.
func TestRoute_HopHeaderOfAClient(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %q", x.URL, r.Header[middleware.HopHeader])
		})
	})
	x, other := nodes[0], nodes[1]
	here, there := orderOf(t, other, x), orderOf(t, x, other)
	for _, value := range []string{"", "1", "true", x.URL, other.URL} {
		for order, want := range map[string]string{here: x.URL + ` []`, there: other.URL + ` ["1"]`} {
			r := request(t, x.Server, order)
			r.Header.Set(middleware.HopHeader, value)
			if res := do(t, x.Server, r); res.body != want {
				t.Errorf("%q: %s, want %s", value, res.body, want)
			}
		}
	}
}

// The value that a node sets is for nodes: it cannot be had from a handler that answers with its
// request. It ends the way of a request at any node, also where a Route further in has another key.
func TestRoute_HopHeaderOfANode(t *testing.T) {
	t.Parallel()
	marks := make(chan string, 2)
	nodes := cluster(t, 2, func(x *node) http.Handler {
		turned := middleware.Route(x.c, middleware.Key("order", middleware.Query("turn")), &middleware.RouteOptions{Transport: x.tr})
		h := x.routed(turned(http.HandlerFunc(x.name)).ServeHTTP)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v := r.Header.Get(middleware.HopHeader); v != "" {
				marks <- v
			}
			h.ServeHTTP(w, r)
		})
	})
	x, other := nodes[0], nodes[1]
	here, there := orderOf(t, other, x), orderOf(t, x, other)
	r := request(t, x.Server, there)
	r.URL.RawQuery += "&turn=" + here // the Route further in would send it back
	if res := do(t, x.Server, r); res.body != other.URL {
		t.Errorf("served at %s, not %s", res.body, other.URL)
	}
	mark := <-marks
	r = request(t, x.Server, there)
	r.URL.RawQuery += "&turn=" + here
	r.Header.Set(middleware.HopHeader, mark) // it came to another node than it was sent to
	if res := do(t, x.Server, r); res.body != x.URL {
		t.Errorf("served at %s, not %s", res.body, x.URL)
	}
	<-marks
	if len(mark) < 40 {
		t.Errorf("%q can be guessed", mark)
	}
	res, err := x.Client().Get(x.URL + "/?order=" + there + "&turn=" + there)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if again := <-marks; again != mark {
		t.Errorf("%q, then %q", mark, again)
	}
}
