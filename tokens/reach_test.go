package tokens_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/tokens"
)

// alone returns a process's keeper, with the account "alice" whose token has expired.
func alone(t *testing.T, url string, opts *tokens.Options) *tokens.Keeper {
	t.Helper()
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := tokens.New(locks, config(url), tokens.NewMemoryStore(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.Close()
		_ = locks.Close(context.Background())
	})
	if err := k.Replace(t.Context(), "alice", expired()); err != nil {
		t.Fatal(err)
	}
	return k
}

// A network that loses everything, a firewall or a proxy that is down must not log all accounts
// out.
func TestAProviderThatCannotBeReachedLeavesNoDoubt(t *testing.T) {
	unreached := func(t *testing.T, url string, transport *http.Transport) {
		t.Helper()
		defer transport.CloseIdleConnections()
		k := alone(t, url, &tokens.Options{HTTPClient: &http.Client{Transport: transport}, Timeout: 100 * time.Millisecond})
		if _, err := k.Token(t.Context(), "alice"); err == nil || errors.Is(err, tokens.ErrInDoubt) {
			t.Errorf("got %v", err)
		}
	}
	t.Run("nothing comes back", func(t *testing.T) {
		unreached(t, "http://provider/token", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	})
	t.Run("no TLS handshake", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close() // those that were not accepted are closed with it
		unreached(t, "https://"+silent.Addr().String(), &http.Transport{})
	})
	t.Run("the proxy refuses", func(t *testing.T) {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
		defer proxy.Close()
		at, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		unreached(t, "https://provider/token", &http.Transport{Proxy: http.ProxyURL(at)})
	})
}

// A redirect would make net/http send the refresh token once more, and ask elsewhere whether it was
// spent.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, x := range []struct {
		status  int
		inDoubt bool
	}{{301, false}, {307, false}, {308, false}, {302, true}, {303, true}} {
		var elsewhere atomic.Int32
		mux := http.NewServeMux()
		mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", x.status) })
		mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) {
			elsewhere.Add(1)
			w.WriteHeader(http.StatusNotFound)
		})
		server := httptest.NewServer(mux)
		k := alone(t, server.URL+"/token", &tokens.Options{HTTPClient: server.Client()})
		_, err := k.Token(t.Context(), "alice")
		if p, ok := errors.AsType[*oauth2.RetrieveError](err); !ok || p.Response.StatusCode != x.status || errors.Is(err, tokens.ErrInDoubt) != x.inDoubt {
			t.Errorf("%d: got %v", x.status, err)
		}
		if n := elsewhere.Load(); n != 0 {
			t.Errorf("%d: it went elsewhere", x.status)
		}
		server.Close()
	}
}

// Error texts go to logs, and a provider's answer may have anything in it.
func TestErrorTextsHaveNoSecrets(t *testing.T) {
	const old, young = "refresh-1", "refresh-2"
	for _, x := range []struct {
		status     int
		body, want string
	}{
		{500, `{"access_token":"a2","refresh_token":"` + young + `"}`, "500 Internal Server Error"},
		{400, "what is " + old + "?", "400 Bad Request"},
		{400, `{"error":"invalid_request","error_description":"unknown: ` + old + `"}`, `"invalid_request" "unknown: `},
		{400, `{"error":"invalid_grant","error_description":"used: ` + old + `"}`, "invalid_grant"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(x.status)
			_, _ = io.WriteString(w, x.body)
		}))
		var log bytes.Buffer
		k := alone(t, server.URL, &tokens.Options{HTTPClient: server.Client(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		login := expired()
		login.RefreshToken = old
		if err := k.Replace(t.Context(), "alice", login); err != nil {
			t.Fatal(err)
		}
		_, err := k.Token(t.Context(), "alice")
		k.Close() // and it writes no logs any more
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %s", err, x.want)
			continue
		}
		for _, text := range []string{err.Error(), log.String()} {
			if text == "" || strings.Contains(text, old) || strings.Contains(text, young) {
				t.Errorf("%d: got %q", x.status, text)
			}
		}
		if p, ok := errors.AsType[*oauth2.RetrieveError](err); !ok || string(p.Body) != x.body {
			t.Errorf("%d: the answer is not to be had", x.status)
		}
		server.Close()
	}
}
