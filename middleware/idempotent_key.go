package middleware

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/holdfast-go/holdfast/internal/once"
)

// MaxIdempotencyKey is the length of the longest key that [Idempotent] takes from a client, in
// bytes.
const MaxIdempotencyKey = 255

// parseIdempotencyKey reads the header's value: a string as in RFC 9651, 3.3.3, as the draft wants,
// or, as most clients send it, the bare text: visible ASCII without the characters that separate or
// quote. "k" and k are the same key. There are no parameters.
func parseIdempotencyKey(name string, values []string) (string, error) {
	place := fmt.Sprintf("header %q", name)
	if len(values) != 1 {
		return "", &KeyError{place, "is there more than once"}
	}
	v := strings.Trim(values[0], " \t")
	if len(v) > 2*MaxIdempotencyKey+2 { // all of it escaped
		return "", &KeyError{place, fmt.Sprintf("is too long: a key has at most %d bytes", MaxIdempotencyKey)}
	}
	key, reason := v, ""
	if strings.HasPrefix(v, `"`) {
		key, reason = unquote(v)
	} else if strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`",;\`, c) }) {
		reason = "has characters that need a quoted string, or that no key has"
	}
	switch {
	case reason != "":
		return "", &KeyError{place, reason}
	case key == "":
		return "", &KeyError{place, "is empty"}
	case len(key) > MaxIdempotencyKey:
		return "", &KeyError{place, fmt.Sprintf("is too long: a key has at most %d bytes", MaxIdempotencyKey)}
	}
	return key, nil
}

// unquote reads a string that begins with a quote.
func unquote(v string) (s, reason string) {
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		c := v[i]
		switch {
		case c == '"' && i == len(v)-1:
			return b.String(), ""
		case c == '"':
			return "", "goes on after the closing quote"
		case c == '\\':
			if i++; i == len(v) || v[i] != '"' && v[i] != '\\' {
				return "", "has a backslash before something else than a quote or a backslash"
			}
			c = v[i]
		case c < ' ' || c >= 0x7f:
			return "", "has characters that are not printable ASCII"
		}
		b.WriteByte(c)
	}
	return "", "has no closing quote"
}

// A fingerprint is the digest that a repeated request has to have in common with the first one.
type fingerprint = once.Print

func (m *idempotency) print(r *http.Request, body []byte) fingerprint {
	var d digest
	d.add(r.Method)
	d.add(asked(r).EscapedPath())
	d.add(r.URL.EscapedPath())
	d.add(r.URL.RawQuery)
	d.addAll(r.Header["Content-Type"])
	d.addAll(r.Header["Content-Encoding"])
	sum := sha256.Sum256(body)
	d.add(string(sum[:]))
	return d.sum()
}

// identify returns the name of the request's record: one of the key within its scope.
func (m *idempotency) identify(r *http.Request, key string) (id [sha256.Size]byte, err error) {
	scope, err := m.scope.of(r)
	if e, ok := errors.AsType[*KeyError](err); ok && e.Place == "" {
		err = &KeyError{"the scope of the idempotency key", e.Reason}
	}
	if err != nil {
		return id, err
	}
	var d digest
	d.add(key)
	d.add("scope")
	d.add(scope)
	return d.sum(), nil
}

// asked returns the request's target as the client sent it: a handler outside may have changed the
// URL, and have passed on the old one in another way.
func asked(r *http.Request) *url.URL {
	if unchanged(r.URL, r.RequestURI) {
		return r.URL
	}
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u
	}
	return r.URL
}

// unchanged reports whether a URL is the one that the request URI is parsed to, where that is plain
// to see: most need not be parsed again.
func unchanged(u *url.URL, uri string) bool {
	path, query, asks := strings.Cut(uri, "?")
	return strings.HasPrefix(path, "/") && path == u.Path && u.RawPath == "" && path == u.EscapedPath() &&
		query == u.RawQuery && u.ForceQuery == (asks && query == "") && u.Scheme == "" && u.Host == "" && u.Opaque == ""
}

var (
	errTooLarge = errors.New("middleware: the request's body is larger than IdempotentOptions.MaxRequest")
	errBodyRead = errors.New("middleware: the request's body has been read before Idempotent")
)

// readBody reads the request's body, and puts it back.
func (m *idempotency) readBody(r *http.Request) (*http.Request, []byte, error) {
	if r.ContentLength > m.opts.MaxRequest {
		return nil, nil, errTooLarge
	}
	var body []byte
	if r.Body != nil {
		var b bytes.Buffer
		if r.ContentLength > 0 { // a promise: it is believed as far as it is cheap
			b.Grow(int(min(r.ContentLength, 64<<10)) + bytes.MinRead)
		}
		_, err := b.ReadFrom(io.LimitReader(r.Body, m.opts.MaxRequest+1))
		if int64(b.Len()) > m.opts.MaxRequest {
			return nil, nil, errTooLarge
		}
		if err != nil {
			return nil, nil, err
		}
		body = b.Bytes()
	}
	if short := int64(len(body)) < r.ContentLength; bodyRead(r) || short && (len(body) == 0 || ofServer(r.Body)) {
		return nil, nil, errBodyRead // any other request would look the same
	}
	r = r.WithContext(r.Context()) // a copy
	r.Body, r.ContentLength, r.TransferEncoding = inMemory(body), int64(len(body)), nil
	return r, body, nil
}

// ofServer reports whether a body is the server's own, which has as many bytes as the client has
// announced. Another one may have fewer: a middleware that unpacks a body may leave ContentLength
// as it was.
func ofServer(body io.Reader) bool {
	if a, ok := body.(*ahead); ok {
		return ofServer(a.body)
	}
	v := reflect.ValueOf(body)
	for v.Type() == maxBytesReader {
		inner := v.Elem().FieldByName("r")
		if !inner.IsValid() || inner.Kind() != reflect.Interface || inner.IsNil() {
			return false
		}
		v = inner.Elem()
	}
	if v.Kind() != reflect.Pointer {
		return false
	}
	pkg := v.Type().Elem().PkgPath()
	return strings.HasPrefix(pkg, "net/http") || pkg == "golang.org/x/net/http2"
}

// bodyRead reports whether a form in the body has been parsed.
func bodyRead(r *http.Request) bool { return len(r.PostForm) > 0 || r.MultipartForm != nil }
