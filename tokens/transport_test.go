package tokens_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/tokens"
)

// transport returns alice's transport for the server alone.
func transport(t *testing.T, k *tokens.Keeper, s *httptest.Server) http.RoundTripper {
	t.Helper()
	rt, err := k.Transport("alice", s.Client().Transport, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// echo answers with the Authorization that it gets.
func echo(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTransport_RedirectToAnotherHostGetsNoToken(t *testing.T) {
	p := newProvider()
	provider := httptest.NewServer(p)
	defer provider.Close()
	k := alone(t, provider.URL, &tokens.Options{HTTPClient: provider.Client()})
	other := echo(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		default:
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		}
	}))
	defer s.Close()
	client := &http.Client{Transport: transport(t, k, s)}
	if got := get(t, client, s.URL+"/here"); got != "Bearer a2" {
		t.Errorf("a redirect to the same host: %q, want the token", got)
	}
	if got := get(t, client, s.URL+"/away"); got != "" {
		t.Errorf("a redirect to another host got %q", got)
	}
	if got := get(t, client, other.URL); got != "" {
		t.Errorf("another host got %q", got)
	}
}

// last records the request that is sent last.
type last struct{ r *http.Request }

func (l *last) RoundTrip(r *http.Request) (*http.Response, error) {
	l.r = r
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestTransport_Hosts(t *testing.T) {
	p := newProvider()
	provider := httptest.NewServer(p)
	defer provider.Close()
	k := alone(t, provider.URL, &tokens.Options{HTTPClient: provider.Client()})
	for _, x := range []struct {
		host, url string
		token     bool
	}{
		{"api.example.com", "https://api.example.com/x?y", true},
		{"API.example.com", "https://api.EXAMPLE.com:443/", true},
		{"api.example.com:443", "https://api.example.com", true},
		{"api.example.com", "http://api.example.com", false},
		{"api.example.com", "https://api.example.com:8443", false},
		{"api.example.com", "https://api.example.com.evil.example", false},
		{"api.example.com", "https://www.api.example.com", false},
		{"api.example.com", "https://example.com", false},
		{"api.example.com", "https://api.example.com@evil.example/", false},
		{"api.example.com:8443", "https://api.example.com:8443", true},
		{"api.example.com:8443", "https://api.example.com", false},
		{"http://localhost:8080", "http://localhost:8080/", true},
		{"http://localhost", "http://localhost:80", true},
		{"http://localhost", "https://localhost", false},
		{"[::1]:8443", "https://[::1]:8443", true},
	} {
		var l last
		rt, err := k.Transport("alice", &l, "unused.example.com", x.host)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := l.r.Header.Get("Authorization") != ""; got != x.token {
			t.Errorf("hosts %q, request to %s: token sent: %v, want %v", x.host, x.url, got, x.token)
		}
	}
	for _, bad := range []string{"", "*", "*.example.com", "ftp://example.com", "https://", "example.com/path", "a@example.com", "https://example.com?x", ":443"} {
		if _, err := k.Transport("alice", nil, bad); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("host %q: %v", bad, err)
		}
	}
	if _, err := k.Transport("alice", nil); err == nil || !strings.Contains(err.Error(), "host") {
		t.Errorf("no host: %v", err)
	}
	if _, err := k.Transport("", nil, "example.com"); err == nil {
		t.Error("no account: no error")
	}
}
