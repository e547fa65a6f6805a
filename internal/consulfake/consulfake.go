// Package consulfake stands for Consul: an HTTP server that answers PUT /v1/txn as Consul 1.22
// does. Verbs, indices, texts of errors, limits and rights are those of its source. It is one
// process without a log, so it says nothing about the faults that a real one survives.
package consulfake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// A Pair is a key with its value, as Consul writes it.
type Pair struct {
	Key                      string
	CreateIndex, ModifyIndex uint64
	LockIndex, Flags         uint64
	Value                    []byte
}

// op is one operation of a transaction.
type op struct {
	Verb, Key string
	Value     []byte
	Index     uint64
}

type answer struct {
	Results []result
	Errors  []failure
}

type result struct{ KV *Pair }

type failure struct {
	OpIndex int
	What    string
}

// A Fake is a server that runs.
type Fake struct {
	*httptest.Server
	Tokens map[string]string // the prefix that a token may write; nil: there are no rights
	Report func(string)      // is told of reads that are not consistent

	Mu     sync.Mutex // protects the fields below
	Old    bool       // it does not know get-or-empty
	Index  uint64
	Pairs  map[string]Pair
	Calls  int
	Before func(writes bool) (status int, text string) // an answer in the place of a transaction, if the status is not 0
	Lose   func(writes bool) bool                      // no answer comes of a transaction that was executed
}

// Start starts one. Its Close ends it.
func Start(tokens map[string]string, report func(string)) *Fake {
	f := &Fake{Tokens: tokens, Report: report, Pairs: make(map[string]Pair)}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/txn", f.serve)
	f.Server = httptest.NewServer(mux)
	return f
}

// Verbs of operations.
const (
	cas        = "cas"
	getOrEmpty = "get-or-empty"
	checkIndex = "check-index"
)

func (f *Fake) serve(w http.ResponseWriter, r *http.Request) {
	const limit = 512 << 10
	if r.ContentLength > limit {
		http.Error(w, fmt.Sprintf("Request body(%d bytes) too large, max size: %d bytes.", r.ContentLength, limit), http.StatusRequestEntityTooLarge)
		return
	}
	var ops []struct{ KV *op }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&ops); err != nil {
		http.Error(w, "Failed to parse body: "+err.Error(), http.StatusBadRequest)
		return
	}
	if len(ops) > 128 {
		http.Error(w, fmt.Sprintf("Transaction contains too many operations (%d > 128)", len(ops)), http.StatusRequestEntityTooLarge)
		return
	}
	writes := slices.ContainsFunc(ops, func(x struct{ KV *op }) bool { return x.KV.Verb == cas })
	if _, consistent := r.URL.Query()["consistent"]; !writes && !consistent {
		f.Report("a read that is not consistent")
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Calls++
	if f.Before != nil {
		if status, text := f.Before(writes); status != 0 {
			http.Error(w, text, status)
			return
		}
	}
	may := func(string) bool { return true }
	if f.Tokens != nil {
		prefix, known := f.Tokens[r.Header.Get("X-Consul-Token")]
		if !known {
			http.Error(w, "ACL not found", http.StatusForbidden)
			return
		}
		may = func(key string) bool { return strings.HasPrefix(key, prefix) }
	}
	var a answer
	pairs := maps.Clone(f.Pairs)
	index := f.Index
	if writes {
		index++
	}
	for i, x := range ops {
		if f.Old && x.KV.Verb == getOrEmpty {
			x.KV.Verb += " is a later one"
		}
		r, fault := apply(pairs, index, x.KV, may)
		if fault != "" {
			a.Errors = append(a.Errors, failure{i, fault})
		} else if r != nil {
			a.Results = append(a.Results, result{r})
		}
	}
	status := http.StatusOK
	if len(a.Errors) > 0 {
		a.Results, status = nil, http.StatusConflict
	} else {
		f.Pairs = pairs
	}
	f.Index = index
	if f.Lose != nil && f.Lose(writes) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // the client may be gone
}

// apply runs one operation. A pair that may not be read has no result, and no fault.
func apply(pairs map[string]Pair, index uint64, op *op, may func(string) bool) (result *Pair, fault string) {
	p, there := pairs[op.Key]
	if op.Verb != getOrEmpty && !may(op.Key) {
		return nil, fmt.Sprintf("Permission denied: token lacks permission 'key:write' on %q", op.Key)
	}
	switch op.Verb {
	case getOrEmpty:
		switch {
		case !may(op.Key):
			return nil, ""
		case !there:
			return &Pair{Key: op.Key}, ""
		}
		return &p, ""
	case checkIndex:
		switch {
		case !there:
			return nil, fmt.Sprintf("failed to check index, key %q doesn't exist", op.Key)
		case p.ModifyIndex != op.Index:
			return nil, fmt.Sprintf("failed index check for key %q, current modify index %d != %d", op.Key, p.ModifyIndex, op.Index)
		}
	case cas:
		if there != (op.Index != 0) || p.ModifyIndex != op.Index {
			return nil, fmt.Sprintf("failed to set key %q, index is stale", op.Key)
		}
		if !there {
			p = Pair{Key: op.Key, CreateIndex: index}
		}
		if !there || string(p.Value) != string(op.Value) { // the same value changes nothing
			p.Value, p.ModifyIndex = op.Value, index
		}
		pairs[op.Key] = p
	default:
		return nil, fmt.Sprintf("unknown KV operation %q", op.Verb)
	}
	p.Value = nil
	return &p, ""
}
