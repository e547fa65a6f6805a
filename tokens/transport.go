package tokens

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// Transport returns a transport that sends requests with the account's access token. A request
// answered with 401 is sent once more with another token, if there is one (see [Keeper.Refused])
// and its body can be had again: there is none, or GetBody is set, as [http.NewRequest] does for
// bodies in memory. Other requests get the 401, and the next one another token.
//
// Only requests for hosts get the token. Others, as redirects to another host, are sent without it.
// There must be one host at least: "api.example.com" stands for https at port 443,
// "api.example.com:8443" for https at that port, and "http://localhost:8080" permits a connection
// without TLS. Subdomains do not count.
//
// An error of [Keeper.Token] is returned as it is. base sends the requests; nil:
// [http.DefaultTransport].
func (k *Keeper) Transport(name string, base http.RoundTripper, hosts ...string) (http.RoundTripper, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, errors.New("tokens: Transport: there is no host: name those that may get the token")
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{k, name, base, nil}
	for _, host := range hosts {
		o, err := parseOrigin(host)
		if err != nil {
			return nil, err
		}
		t.hosts = append(t.hosts, o)
	}
	return t, nil
}

// maxDrain is the largest rest of an unwanted response that is read rather than to end its
// connection.
const maxDrain = 64 << 10

type transport struct {
	k    *Keeper
	name string
	base http.RoundTripper

	hosts []origin // those that get the token
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !slices.Contains(t.hosts, originOf(r.URL)) {
		return t.base.RoundTrip(r)
	}
	token, err := t.k.Token(r.Context(), t.name)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	res, err := t.send(r, r.Body, token)
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		return res, err
	}
	t.k.Refused(t.name, token.AccessToken)
	body := r.Body
	if body != nil && body != http.NoBody {
		if r.GetBody == nil {
			return res, nil
		}
		if body, err = r.GetBody(); err != nil {
			return res, nil
		}
	}
	next, err := t.k.Token(r.Context(), t.name)
	if err != nil || next.AccessToken == token.AccessToken {
		if body != nil {
			_ = body.Close()
		}
		return res, nil // the resource's response is the better answer
	}
	if 0 <= res.ContentLength && res.ContentLength <= maxDrain { // else it may be a stream without an end to wait for
		_, _ = io.CopyN(io.Discard, res.Body, res.ContentLength) // so that the connection can be used again
	}
	_ = res.Body.Close()
	return t.send(r, body, next)
}

// send sends a copy of the request: a RoundTripper must not change the original.
func (t *transport) send(r *http.Request, body io.ReadCloser, token *oauth2.Token) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = body
	token.SetAuthHeader(r)
	return t.base.RoundTrip(r)
}

// origin is a server that may get a token.
type origin struct{ scheme, host, port string }

func originOf(u *url.URL) origin {
	o := origin{strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()}
	if o.port == "" {
		o.port = map[string]string{"https": "443", "http": "80"}[o.scheme]
	}
	return o
}

// parseOrigin parses one of Transport's hosts.
func parseOrigin(host string) (origin, error) {
	text := host
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Host, "*") || u.Scheme != "https" && u.Scheme != "http" ||
		u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return origin{}, fmt.Errorf(`tokens: Transport: host %q: must be as "api.example.com", "api.example.com:8443" or "http://localhost:8080"`, host)
	}
	return originOf(u), nil
}
