//go:build unix

package consul

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
)

// A fake answers PUT /v1/txn as Consul 1.22 does: verbs, indices, texts of errors, limits and rights are those of its source. It is one process
// without a log, so it says nothing about what a real one survives.
type fake struct {
	t      *testing.T
	http   *httptest.Server
	tokens map[string]string // the prefix that a token may write; nil: there are no rights

	mu     sync.Mutex // protects what follows
	old    bool       // it does not know get-or-empty
	index  uint64
	pairs  map[string]api.KVPair
	calls  int
	before func(writes bool) (status int, text string) // an answer in the place of a transaction, if the status is not 0
	lose   func(writes bool) bool                      // no answer comes of a transaction that was executed
}

func startFake(t *testing.T, tokens map[string]string) *fake {
	t.Helper()
	f := &fake{t: t, tokens: tokens, pairs: make(map[string]api.KVPair)}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/txn", f.serve)
	f.http = httptest.NewServer(mux)
	t.Cleanup(f.http.Close)
	return f
}

// client is one with connections of its own.
func (f *fake) client(token string) *api.Client {
	f.t.Helper()
	transport := &http.Transport{}
	f.t.Cleanup(transport.CloseIdleConnections)
	c, err := api.NewClient(&api.Config{Address: f.http.URL, Token: token, HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	const limit = 512 << 10
	if r.ContentLength > limit {
		http.Error(w, fmt.Sprintf("Request body(%d bytes) too large, max size: %d bytes.", r.ContentLength, limit), http.StatusRequestEntityTooLarge)
		return
	}
	var ops []struct{ KV *api.KVTxnOp }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&ops); err != nil {
		http.Error(w, "Failed to parse body: "+err.Error(), http.StatusBadRequest)
		return
	}
	if len(ops) > 128 {
		http.Error(w, fmt.Sprintf("Transaction contains too many operations (%d > 128)", len(ops)), http.StatusRequestEntityTooLarge)
		return
	}
	writes := slices.ContainsFunc(ops, func(op struct{ KV *api.KVTxnOp }) bool { return op.KV.Verb == api.KVCAS })
	if _, consistent := r.URL.Query()["consistent"]; !writes && !consistent {
		f.t.Error("a read that is not consistent")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.before != nil {
		if status, text := f.before(writes); status != 0 {
			http.Error(w, text, status)
			return
		}
	}
	may := func(string) bool { return true }
	if f.tokens != nil {
		prefix, known := f.tokens[r.Header.Get("X-Consul-Token")]
		if !known {
			http.Error(w, "ACL not found", http.StatusForbidden)
			return
		}
		may = func(key string) bool { return strings.HasPrefix(key, prefix) }
	}
	var answer api.TxnResponse
	pairs := maps.Clone(f.pairs)
	index := f.index
	if writes {
		index++
	}
	for i, op := range ops {
		if f.old && op.KV.Verb == api.KVGetOrEmpty {
			op.KV.Verb += " is a later one"
		}
		result, err := apply(pairs, index, op.KV, may)
		if err != nil {
			answer.Errors = append(answer.Errors, &api.TxnError{OpIndex: i, What: err.Error()})
		} else if result != nil {
			answer.Results = append(answer.Results, &api.TxnResult{KV: result})
		}
	}
	status := http.StatusOK
	if len(answer.Errors) > 0 {
		answer.Results, status = nil, http.StatusConflict
	} else {
		f.pairs = pairs
	}
	f.index = index
	if f.lose != nil && f.lose(writes) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		f.t.Log(err)
	}
}

// apply runs one operation. What may not be read has no result.
func apply(pairs map[string]api.KVPair, index uint64, op *api.KVTxnOp, may func(string) bool) (*api.KVPair, error) {
	p, there := pairs[op.Key]
	if op.Verb != api.KVGetOrEmpty && !may(op.Key) {
		return nil, fmt.Errorf("Permission denied: token lacks permission 'key:write' on %q", op.Key)
	}
	switch op.Verb {
	case api.KVGetOrEmpty:
		switch {
		case !may(op.Key):
			return nil, nil
		case !there:
			return &api.KVPair{Key: op.Key}, nil
		}
		return &p, nil
	case api.KVCheckIndex:
		switch {
		case !there:
			return nil, fmt.Errorf("failed to check index, key %q doesn't exist", op.Key)
		case p.ModifyIndex != op.Index:
			return nil, fmt.Errorf("failed index check for key %q, current modify index %d != %d", op.Key, p.ModifyIndex, op.Index)
		}
	case api.KVCAS:
		if there != (op.Index != 0) || p.ModifyIndex != op.Index {
			return nil, fmt.Errorf("failed to set key %q, index is stale", op.Key)
		}
		if !there {
			p = api.KVPair{Key: op.Key, CreateIndex: index}
		}
		if !there || string(p.Value) != string(op.Value) { // the same value changes nothing
			p.Value, p.ModifyIndex = op.Value, index
		}
		pairs[op.Key] = p
	default:
		return nil, fmt.Errorf("unknown KV operation %q", op.Verb)
	}
	p.Value = nil
	return &p, nil
}

// snapshot returns what puts the data of now back, with the indices that go on from there.
func (f *fake) snapshot() (restore func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index, pairs := f.index, maps.Clone(f.pairs)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.index, f.pairs = index, maps.Clone(pairs)
	}
}

// election is one: connections end, of calls on their way it stays unknown whether they were executed, and the next ones have no leader.
func (f *fake) election() {
	left := 5
	f.mu.Lock()
	f.lose = func(bool) bool { return true }
	f.mu.Unlock()
	f.http.CloseClientConnections()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = nil
	f.before = func(bool) (int, string) {
		if left--; left < 0 {
			return 0, ""
		}
		return http.StatusInternalServerError, "No cluster leader"
	}
}

// leaderless has no leader for two seconds.
func (f *fake) leaderless() {
	end := time.Now().Add(2 * time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = func(bool) (int, string) {
		if time.Now().After(end) {
			return 0, ""
		}
		return http.StatusInternalServerError, "No cluster leader"
	}
}

// answerLost loses every other answer for two seconds.
func (f *fake) answerLost() {
	end, n := time.Now().Add(2*time.Second), 0
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = func(bool) bool {
		n++
		return n%2 == 0 && time.Now().Before(end)
	}
}

// remove deletes a record.
func (f *fake) remove(t *testing.T, key string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.pairs)
	f.pairs = maps.Clone(f.pairs)
	maps.DeleteFunc(f.pairs, func(k string, _ api.KVPair) bool { return strings.HasSuffix(k, "/records/"+key) })
	if len(f.pairs) != before-1 {
		t.Fatalf("%d records of %q", before-len(f.pairs), key)
	}
}

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (f *fake) injuries() arbitertest.Cluster {
	injure := func(*testing.T) { f.election() }
	empty := f.snapshot()
	return arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return New(f.client(""), isNew) },
		Kill:    injure,
		Restart: injure,
		Careful: func(*testing.T) fallback.Arbiter { return New(f.client(""), nil) },
		Empty:   func(*testing.T) { empty() },
		Delete:  f.remove,
	}
}
