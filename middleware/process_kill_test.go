package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// A process is killed with SIGKILL while it executes a request with an idempotency key, and the
// request is sent again, to another one. It must not be executed twice without permission.
func TestIdempotentProcessIsKilled(t *testing.T) {
	takes.Seconds(t)
	redis := redistest.Start(t)
	for i, x := range []struct {
		name  string
		at    []string // steps of the first process; it is killed at the last
		rerun bool
		again []string // the second one's steps then
		reply string   // a part of its answer
	}{
		{"before the request is stored", []string{"arrived", "put"}, false,
			[]string{"arrived", "put", "stored", "handler", "put", "stored"}, "by process 2"},
		{"before the handler", []string{"arrived", "put", "stored"}, false, []string{"arrived"}, "TypeOutcome"},
		{"in the handler", []string{"arrived", "put", "stored", "handler"}, false, []string{"arrived"}, "TypeOutcome"},
		{"in the handler, with Rerun", []string{"arrived", "put", "stored", "handler"}, true,
			[]string{"arrived", "put", "stored", "handler", "put", "stored"}, "by process 2"},
		{"before the answer is stored", []string{"arrived", "put", "stored", "handler", "put"}, false, []string{"arrived"}, "TypeOutcome"},
		{"before the client has the answer", []string{"arrived", "put", "stored", "handler", "put", "stored"}, false,
			[]string{"arrived"}, "by process 1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel() // each waits for a dead process's locks
			base, all := listener(t)
			o := processOrder{Redis: redis.Addr, Tell: base, Rerun: x.rerun}
			headers := []string{"Idempotency-Key", fmt.Sprintf(`"k%d"`, i), "Host", "shop"}
			path := fmt.Sprintf("/pay?order=%d", i)

			o.Number = 1
			first := launch(t, o)
			got := first.send(t.Context(), http.MethodPost, path, headers...)
			var did told
			for n, what := range x.at {
				did = from(t, all, what)
				if did.what != what || did.process != 1 {
					t.Fatalf("%d: process %d: %s, want %s", n, did.process, did.what, what)
				}
				if n < len(x.at)-1 {
					close(did.proceed)
				}
			}
			first.kill()
			if r := from(t, got, "the first request"); r.err == nil {
				t.Fatalf("the first client got %d %q", r.StatusCode, r.body)
			}

			o.Number = 2
			second := launch(t, o)
			for n := range 2 { // and once more: the answer stays the same
				got = second.send(t.Context(), http.MethodPost, path, headers...)
				want := x.again
				if n == 1 {
					want = []string{"arrived"}
				}
				for _, what := range want {
					if did = from(t, all, what); did.what != what || did.process != 2 {
						t.Fatalf("process %d: %s, want %s", did.process, did.what, what)
					}
					close(did.proceed)
				}
				r := from(t, got, "an answer")
				if r.err != nil || !strings.Contains(r.body, x.reply) {
					t.Fatalf("%v, %q, want %s", r.err, r.body, x.reply)
				}
				if replayed := n == 1 || strings.Contains(x.reply, "process 1"); strings.HasPrefix(x.reply, "by") && r.replayed() != replayed {
					t.Errorf("request %d: %s is %q", n+1, middleware.ReplayedHeader, r.Header.Get(middleware.ReplayedHeader))
				}
				if x.reply == "TypeOutcome" && r.StatusCode != http.StatusConflict {
					t.Errorf("status %d", r.StatusCode)
				}
			}
		})
	}
}

// Reads that ask for the same share one run of the handler, whichever process they come to.
func TestCoalesceAcrossProcesses(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	redis := redistest.Start(t)
	base, all := listener(t)
	var ready []func() *process
	for n := range 2 {
		ready = append(ready, spawn(t, processOrder{Redis: redis.Addr, Tell: base, Number: n, Nodes: 2}))
	}
	services := []*process{ready[0](), ready[1]()}
	const each = 20
	owners := map[string]bool{}
	for i := 0; len(owners) < 2; i++ { // an order of each owner
		path := fmt.Sprintf("?order=%d", i)
		owner := from(t, services[0].send(t.Context(), http.MethodGet, "/owner"+path), "an owner").body
		if other := from(t, services[1].send(t.Context(), http.MethodGet, "/owner"+path), "an owner").body; other != owner || owner == "" {
			t.Fatalf("the owner is %q and %q", owner, other)
		}
		if owners[owner] {
			continue
		}
		owners[owner] = true
		var answers []<-chan reply
		for range each {
			for _, p := range services {
				answers = append(answers, p.send(t.Context(), http.MethodGet, "/item"+path, "Host", "shop"))
			}
		}
		var run told
		for arrived := 0; arrived < 2*each || run.proceed == nil; {
			did := from(t, all, "requests")
			if services[did.process].url != owner {
				t.Errorf("%s at %s, the owner is %s", did.what, services[did.process].url, owner)
			}
			switch {
			case did.what == "arrived":
				arrived++
				close(did.proceed)
			case run.proceed != nil:
				t.Fatal("a second run")
			default:
				run = did // it goes on when all have come
			}
		}
		close(run.proceed)
		for _, ch := range answers {
			if r := from(t, ch, "an answer"); r.err != nil || r.StatusCode != http.StatusOK || r.body != fmt.Sprintf("by process %d with fence 0", run.process) {
				t.Errorf("%v, %q", r.err, r.body)
			}
		}
	}
}
