package middleware_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A writer answers a call with a code, as servers of gRPC do that are handlers of net/http.
type writer struct {
	kind string // the Content-Type
	end  func(w http.ResponseWriter, code string)
}

var writers = map[string]writer{
	"grpc.Server": {"application/grpc", func(w http.ResponseWriter, code string) {
		for _, name := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
			w.Header().Add("Trailer", name)
		}
		frame(w, 0, "message")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("Grpc-Status", code)
		w.Header().Set("Grpc-Message", "why")
		w.Header().Add(http.TrailerPrefix+"more", "1")
	}},
	"Connect's": {"application/grpc+proto", func(w http.ResponseWriter, code string) {
		w.Header().Add(http.TrailerPrefix+"Grpc-Status", code)
		_ = http.NewResponseController(w).Flush()
	}},
	"small letters": {"application/grpc;x=1", func(w http.ResponseWriter, code string) {
		frame(w, 0, "message")
		_ = http.NewResponseController(w).Flush()
		w.Header()[http.TrailerPrefix+"grpc-status"] = []string{code}
	}},
	"all in the header": {"application/grpc", func(w http.ResponseWriter, code string) {
		w.Header().Set("Grpc-Status", code)
		w.WriteHeader(http.StatusOK)
	}},
	"Web": {"application/grpc-web+proto", func(w http.ResponseWriter, code string) {
		frame(w, 0, "message")
		frame(w, 0x80, "grpc-message: why\r\ngrpc-status: "+code+"\r\n")
	}},
	"Web, all in the header": {"application/grpc-web+proto", func(w http.ResponseWriter, code string) {
		w.Header().Set("Grpc-Status", code)
		w.WriteHeader(http.StatusOK)
	}},
	"Web in base64": {"application/grpc-web-text", func(w http.ResponseWriter, code string) {
		for _, text := range []string{"\x00\x00\x00\x00\x01x", "\x80\x00\x00\x00" + string(rune(14+len(code))) + "grpc-status:" + code + "\r\n"} {
			io.WriteString(w, base64.StdEncoding.EncodeToString([]byte(text)))
		}
	}},
}

func frame(w io.Writer, flag byte, text string) {
	_, _ = w.Write(append([]byte{flag, 0, 0, 0, byte(len(text))}, text...))
}

// calls serves a handler behind Idempotent.
func calls(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, opts *middleware.IdempotentOptions,
	answer http.HandlerFunc) (s *httptest.Server, runs *atomic.Int64) {
	t.Helper()
	runs = new(atomic.Int64)
	idempotent := middleware.Idempotent(start(t, fallback.NewMemory(), nil), middleware.NewMemoryStore(nil), middleware.Unscoped, opts)
	return serve(t, idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		answer(w, r)
	}))), runs
}

// A call that may be repeated, by its code, is executed again. All others get the first answer.
func TestIdempotent_GRPCCodes(t *testing.T) {
	for name, by := range writers {
		t.Run(name, func(t *testing.T) {
			s, runs := calls(t, overHTTP2["h2c"], nil, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", by.kind)
				by.end(w, r.URL.Query().Get("code"))
			})
			for code := range 18 {
				want := int64(1)
				if slices.Contains([]int{1, 4, 8, 10, 14}, code) { // as package holdgrpc has it
					want = 2
				}
				runs.Store(0)
				for range 2 {
					r := exchange(t.Context(), s, http.MethodPost, fmt.Sprint("/?code=", code), "call",
						"Content-Type", by.kind, "Idempotency-Key", fmt.Sprint(code))
					r.is(t, http.StatusOK, "")
				}
				if runs.Load() != want {
					t.Errorf("code %d: %d runs, want %d", code, runs.Load(), want)
				}
			}
		})
	}
}

// A repeated call gets the first call's answer, trailers included.
func TestIdempotent_GRPCReplay(t *testing.T) {
	servers := map[string]func(testing.TB, http.Handler) *httptest.Server{"HTTP/1.1": serving}
	for name, serve := range overHTTP2 {
		servers[name] = serve
	}
	for version, serve := range servers {
		for name, by := range writers {
			t.Run(name+" "+version, func(t *testing.T) {
				s, runs := calls(t, serve, nil, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", by.kind)
					w.Header().Set("X-Header", "1")
					by.end(w, "5")
				})
				var got [2]reply
				for i := range got {
					got[i] = exchange(t.Context(), s, http.MethodPost, "/", "call", "Content-Type", by.kind, "Idempotency-Key", "k")
					got[i].is(t, http.StatusOK, "")
					if got[i].replayed() != (i == 1) {
						t.Errorf("answer %d: %v", i, got[i].Header)
					}
					got[i].Header.Del(middleware.ReplayedHeader)
					got[i].Header.Del("Date")
				}
				if runs.Load() != 1 || got[0].body != got[1].body || !reflect.DeepEqual(got[0].Header, got[1].Header) ||
					!reflect.DeepEqual(got[0].Trailer, got[1].Trailer) {
					t.Errorf("%d runs:\n%v %q %v\n%v %q %v", runs.Load(), got[0].Header, got[0].body, got[0].Trailer,
						got[1].Header, got[1].body, got[1].Trailer)
				}
			})
		}
	}
}

// Final is asked about the status of HTTP that says the same.
func TestIdempotent_GRPCFinal(t *testing.T) {
	var asked []int
	opts := &middleware.IdempotentOptions{Final: func(status int) bool { asked = append(asked, status); return status < 500 }}
	s, runs := calls(t, overHTTP2["h2c"], opts, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		writers["grpc.Server"].end(w, r.URL.Query().Get("code"))
	})
	call := func(code string) {
		exchange(t.Context(), s, http.MethodPost, "/?code="+code, "call", "Content-Type", "application/grpc", "Idempotency-Key", "k"+code)
	}
	codes := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "x", "-1", "", "4294967296"}
	for _, code := range codes {
		call(code)
	}
	want := []int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 423, 400, 501, 500, 503, 500, 401, 500, 500, 500, 500, 500}
	if !slices.Equal(asked, want) {
		t.Errorf("asked about %v, want %v", asked, want)
	}
	runs.Store(0)
	call("13")
	call("10")
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A response of gRPC without a status is the rest of one that was given up: the call's outcome is
// not known.
func TestIdempotent_GRPCWithoutStatus(t *testing.T) {
	s, runs := calls(t, overHTTP2["h2c"], nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		frame(w, 0, "half")
		_ = http.NewResponseController(w).Flush()
	})
	for i := range 2 {
		r := exchange(t.Context(), s, http.MethodPost, "/", "call", "Content-Type", "application/grpc", "Idempotency-Key", "k")
		if code := r.Header.Get("Grpc-Status"); i == 1 && code != "9" {
			t.Errorf("code %q, want FailedPrecondition", code)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// An answer without a readable code is kept as any answer, and nothing is read past the end.
func TestIdempotent_GRPCBodiesWithoutCode(t *testing.T) {
	bodies := []string{
		"", "\x80", "\x80\x00\x00\x00", "\x80\xff\xff\xff\xffgrpc-status:14", "\x81\x00\x00\x00\x0egrpc-status:14",
		"\x80\x00\x00\x00\x00grpc-status:14", "\x00\x00\x00\x00\x0egrpc-status:14", "====", "AAA", "not of base64",
	}
	for _, kind := range []string{"application/grpc-web", "application/grpc-web-text", "application/connect+proto", "application/json"} {
		s, runs := calls(t, serving, nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(body)
		})
		for i, body := range bodies {
			for range 2 {
				exchange(t.Context(), s, http.MethodPost, "/", body, "Idempotency-Key", fmt.Sprint("k", i)).is(t, http.StatusOK, body)
			}
		}
		if runs.Load() != int64(len(bodies)) {
			t.Errorf("%s: %d runs", kind, runs.Load())
		}
	}
}

// The status of a call whose answer is too large to keep counts as well, where it is in trailers.
func TestIdempotent_GRPCTooLarge(t *testing.T) {
	s, runs := calls(t, overHTTP2["h2c"], &middleware.IdempotentOptions{MaxAnswer: 5}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		frame(w, 0, strings.Repeat("x", 100))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", r.URL.Query().Get("code"))
	})
	for _, code := range []string{"0", "14"} {
		for range 2 {
			exchange(t.Context(), s, http.MethodPost, "/?code="+code, "call", "Content-Type", "application/grpc", "Idempotency-Key", code)
		}
	}
	if runs.Load() != 3 {
		t.Errorf("%d runs, want 1 and 2", runs.Load())
	}
}
