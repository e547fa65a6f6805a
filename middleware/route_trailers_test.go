package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// The trailers of requests and of responses arrive, whichever versions the client, the hop and the
// owner speak.
func TestRoute_TrailersOfAllVersions(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	hops := map[string]func(*http.Protocols){
		"the client's": nil,
		"HTTP/1.1":     func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":       func(p *http.Protocols) { p.SetHTTP2(true); p.SetUnencryptedHTTP2(true) },
	}
	for name, serve := range bothVersions {
		for hop, set := range hops {
			t.Run(name+", hop "+hop, func(t *testing.T) {
				nodes := clusterOf(t, 2, serve, func(x *node) http.Handler {
					if set != nil {
						x.tr.Protocols = new(http.Protocols)
						set(x.tr.Protocols)
					}
					return x.routed(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Trailer", "X-Sum")
						body, err := io.ReadAll(r.Body)
						fmt.Fprint(w, x.URL, " ", string(body), " ", err, " ", r.Trailer)
						w.Header().Set("X-Sum", "6")
						w.Header().Set(http.TrailerPrefix+"X-Late", "7")
					})
				})
				x, other := nodes[0], nodes[1]
				order := orderOf(t, x, other)
				for proto, client := range map[string]*http.Client{"HTTP/1.1": oldClient(t, x.Server), "HTTP/2.0": x.Client()} {
					r := request(t, x.Server, order)
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), -1
					r.Trailer = http.Header{"X-Check": {"42"}}
					res, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					if want := other.URL + " body <nil> map[X-Check:[42]]"; string(body) != want || err != nil || res.Proto != proto {
						t.Errorf("%s: %s %s, %v, want %s", proto, res.Proto, body, err, want)
					}
					if res.Trailer.Get("X-Sum") != "6" || res.Trailer.Get("X-Late") != "7" {
						t.Errorf("%s: trailers %v", proto, res.Trailer)
					}
				}
			})
		}
	}
}
