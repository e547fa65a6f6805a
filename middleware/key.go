package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/coord"
)

// A KeyFunc names the resource that a request is about, as a key of a [coord.Coordinator]. Write
// your own for keys that the constructors here do not cover. It may be called concurrently, and
// more than once for a request; it must not read the body.
//
// Errors: [ErrSkip] lets the request pass as if there were no middleware; one that Is [ErrPattern]
// is answered with 500; and any other with 400. A key that a KeyFunc returns without an error is
// checked as well, the constructors' keys too: a key has 1 to [coord.MaxKey] bytes of valid UTF-8
// without control characters, and all else is answered with 400.
type KeyFunc func(r *http.Request) (string, error)

var (
	// ErrSkip is returned by a KeyFunc for a request that is to be left alone.
	ErrSkip = errors.New("middleware: no key for this request")

	// ErrPattern: [PathValue] was asked for a wildcard that the request's pattern does not have.
	// The program is wrong and not the request.
	ErrPattern = errors.New("middleware: the request matched no pattern with this wildcard")
)

// A KeyError says why a request has no usable key. Its text goes to the client: it names the place,
// and never has the value.
type KeyError struct {
	Place  string // such as `header "X-Order"`; empty: the key as a whole
	Reason string
}

func (e *KeyError) Error() string {
	if e.Place == "" {
		return "the key of the request " + e.Reason
	}
	return e.Place + " " + e.Reason
}

// Key joins the values of parts after a prefix that names the kind of thing: Key("order",
// PathValue("id")) makes "order/42". Two lists of values never make the same key: a "/" and a "%"
// in the prefix or in a value become "%2F" and "%25".
//
// The constructors below return the bare value, wherever in the request it was: an order is the
// same order in a path and in a header. So it is the prefix that keeps an order 42 and a user 42
// apart. A KeyFunc without a prefix is for programs that lock one kind of thing only: with it a
// client may name any lock of the namespace. Values are compared byte by byte: where "a" and "A",
// or "7" and "07", are the same thing, make them the same in a KeyFunc of your own.
//
// With no parts the key is the prefix alone: one for all requests. Key panics if prefix is empty or
// could be no key, or if a part is nil. See [JoinKey] for other code that locks the same things.
func Key(prefix string, parts ...KeyFunc) KeyFunc {
	if _, err := checked("middleware: Key: its prefix", prefix); err != nil {
		panic(err.Error())
	}
	for _, p := range parts {
		if p == nil {
			panic("middleware: Key with a part that is nil")
		}
	}
	return func(r *http.Request) (string, error) {
		var buf [4]string
		values := buf[:0]
		for _, p := range parts {
			v, err := p(r)
			if err != nil {
				return "", err
			}
			if v == "" { // or a list with it would look like a shorter one to its readers
				return "", &KeyError{Reason: "has an empty part"}
			}
			values = append(values, v)
		}
		return JoinKey(prefix, values...), nil
	}
}

// JoinKey returns the key that [Key] makes of these values, for code that locks the requests'
// resources by itself: a job may say c.Lock(ctx, middleware.JoinKey("order", id)).
func JoinKey(prefix string, values ...string) string {
	n := len(prefix)
	for _, v := range values {
		n += 1 + len(v)
	}
	var b strings.Builder
	b.Grow(n)
	escape(&b, prefix)
	for _, v := range values {
		b.WriteByte('/')
		escape(&b, v)
	}
	return b.String()
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

func escape(b *strings.Builder, s string) {
	if strings.IndexByte(s, '%') >= 0 || strings.IndexByte(s, '/') >= 0 {
		s = escaper.Replace(s)
	}
	b.WriteString(s)
}

// PathValue is the decoded value of a wildcard: that of the [http.ServeMux]'s pattern, as
// "/orders/{id}" and PathValue("id"), or the one that another router has given to
// [http.Request.SetPathValue]. Of some paths chi and Echo give values as they were sent, of
// /orders/4%32 "4%32", and so may Gin. These are decoded here, so that one order has one key,
// however its path is written; the router's own parameter stays as it was sent. Where the path
// leaves open whether a value is decoded, the request is answered with 400.
//
// The mux sets it before it calls the handler. So the middleware has to be around the handler that
// is registered and not around the mux, where no request has path values: those are answered with
// 500, see [ErrPattern].
func PathValue(name string) KeyFunc {
	place := placed("path value", name)
	return func(r *http.Request) (string, error) {
		v := r.PathValue(name)
		if v == "" && !hasWildcard(r.Pattern, name) {
			return "", fmt.Errorf("%w: {%s} in pattern %q", ErrPattern, name, r.Pattern)
		}
		if bare(v) && len(v) <= coord.MaxKey { // almost all
			return v, nil
		}
		if strings.IndexByte(v, '%') >= 0 {
			var err error
			if v, err = decoded(place, name, v, r); err != nil {
				return "", err
			}
		}
		return checked(place, v)
	}
}

// decoded returns the value of a wildcard decoded once: routers that match RawPath, or, as Gin with
// UseEscapedPath, EscapedPath, give it as it was sent. The path says which of the two v is. A value
// as sent is part of it, and a decoded one is not. Exceptions are paths made to confuse, such as
// /%37/%2537 with the value "%37".
func decoded(place, name, v string, r *http.Request) (string, error) {
	var sent, plain bool
	if fills(r.Pattern, name) {
		path := r.URL.RawPath
		if path == "" {
			path = r.URL.EscapedPath()
		}
		rest := strings.TrimPrefix(v, "/") // Gin's *id begins with one
		sent = strings.Contains(path+"/", "/"+rest+"/")
		plain = strings.HasSuffix(r.URL.Path, "/"+rest)
		for segment := range strings.SplitSeq(path, "/") {
			s, err := url.PathUnescape(segment)
			plain = plain || err == nil && s == v
		}
	}
	if !sent && !plain { // v is part of a segment, or a handler outside has changed the path
		if before, ends := endsSegment(r.Pattern, name); r.URL.RawPath != "" {
			sent, plain = strings.Contains(r.URL.RawPath, v), strings.Contains(r.URL.Path, v)
		} else if ends { // Gin has EscapedPath, and no other router
			end := "/" + before + v + "/"
			sent, plain = strings.Contains(r.URL.EscapedPath()+"/", end), strings.Contains(r.URL.Path+"/", end)
		}
	}
	switch {
	case sent && plain:
		return "", &KeyError{place, "is in the path in two ways"}
	case sent:
		s, err := url.PathUnescape(v)
		if err != nil {
			return "", &KeyError{place, "is not encoded well"}
		}
		return s, nil
	}
	return v, nil
}

// fills reports whether the wildcard is all of a segment of the pattern, or all of its rest: {id},
// {id...}, :id, *id or *.
func fills(pattern, name string) bool {
	for segment := range strings.SplitSeq(pattern, "/") {
		switch segment {
		case "{" + name + "}", "{" + name + "...}", ":" + name, "*" + name:
			return true
		case "*":
			return name == "*"
		}
	}
	return false
}

// endsSegment returns the text before the wildcard in its segment of a pattern of Gin, no- of
// no-:id.
func endsSegment(pattern, name string) (before string, ok bool) {
	for segment := range strings.SplitSeq(pattern, "/") {
		if before, ok = strings.CutSuffix(segment, ":"+name); ok {
			return before, true
		}
	}
	return "", false
}

// hasWildcard reports whether a pattern has the wildcard: {id}, {id...} or {id:...}, or, in those
// of Echo and Gin, :id or *id at the end of a segment.
func hasWildcard(pattern, name string) bool {
	for segment := range strings.SplitSeq(pattern, "/") {
		if strings.HasSuffix(segment, ":"+name) || strings.HasSuffix(segment, "*"+name) || segment == name && name == "*" {
			return true
		}
	}
	return strings.Contains(pattern, "{"+name+"}") || strings.Contains(pattern, "{"+name+"...}") || strings.Contains(pattern, "{"+name+":")
}

// Header is the value of a header, which has to be there once. Host is none of those (see
// [http.Request]).
func Header(name string) KeyFunc {
	place := placed("header", name)
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		panic("middleware: Header(\"Host\"): net/http has it in Request.Host")
	}
	return func(r *http.Request) (string, error) { return single(place, r.Header[name]) }
}

// Query is the value of a parameter of the URL's query, which has to be there once. If any part of
// the query is malformed, its meaning is unknown, and the request is answered with 400.
func Query(name string) KeyFunc {
	place := placed("query parameter", name)
	return func(r *http.Request) (string, error) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", &KeyError{place, "cannot be read: the query is malformed"}
		}
		return single(place, values[name])
	}
}

// Cookie is the value of a cookie, which has to be there once. A client can send any value: see
// that it may do so before.
func Cookie(name string) KeyFunc {
	place := placed("cookie", name)
	return func(r *http.Request) (string, error) {
		all := r.CookiesNamed(name)
		values := make([]string, len(all))
		for i, c := range all {
			values[i] = c.Value
		}
		return single(place, values)
	}
}

func placed(kind, name string) string {
	if name == "" {
		panic("middleware: " + kind + " without a name")
	}
	return fmt.Sprintf("%s %q", kind, name)
}

// single: of two values, the handler might take the other one.
func single(place string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", &KeyError{place, "is missing"}
	case 1:
		return checked(place, values[0])
	default:
		return "", &KeyError{place, "is there more than once"}
	}
}

// checked returns a value that may be a key.
func checked(place, v string) (string, error) {
	switch {
	case printable(v) && len(v) <= coord.MaxKey: // almost all
	case v == "":
		return "", &KeyError{place, "is empty"}
	case len(v) > coord.MaxKey:
		return "", &KeyError{place, fmt.Sprintf("has %d bytes, must have at most %d", len(v), coord.MaxKey)}
	case !utf8.ValidString(v):
		return "", &KeyError{place, "is not valid UTF-8"}
	case strings.ContainsFunc(v, unicode.IsControl):
		return "", &KeyError{place, "has control characters"}
	}
	return v, nil
}

// printable reports whether v is a text of printable ASCII.
func printable(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return v != ""
}

// bare reports whether v is such a text without escapes.
func bare(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' || v[i] == '%' {
			return false
		}
	}
	return v != ""
}

// of returns the key of a request.
func (f KeyFunc) of(r *http.Request) (string, error) {
	key, err := f(r)
	if err != nil {
		return "", err
	}
	return checked("", key)
}

// keyProblem returns the answer to a request without a usable key. err is not ErrSkip.
func keyProblem(err error) Problem {
	if errors.Is(err, ErrPattern) {
		return misconfigured(err)
	}
	p := Problem{Type: TypeKey, Title: "No usable key", Status: http.StatusBadRequest, Err: err}
	if e, ok := errors.AsType[*KeyError](err); ok { // other errors may not be for the client's eyes
		p.Detail = e.Error()
	}
	return p
}

func misconfigured(err error) Problem {
	return Problem{Type: TypeMisconfigured, Title: "Server misconfigured", Status: http.StatusInternalServerError, Err: err}
}
