package tokens

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
)

// outcome is the fate of a refresh token that was sent.
type outcome uint8

const (
	renewed  outcome = iota // it was spent, and there is a new one
	unspent                 // it is as good as before
	rejected                // it is not accepted, and will not be
	doubtful                // unknown
)

// spend sends the refresh token, once; sent is false if it is sure that it did not get that far.
// Nothing but Options.Timeout cuts it short: giving up would not bring the token back.
func (k *Keeper) spend(ctx context.Context, refresh string) (t *oauth2.Token, sent bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.Timeout)
	defer cancel()
	client := k.opts.HTTPClient
	if client == nil {
		client, _ = ctx.Value(oauth2.HTTPClient).(*http.Client)
	}
	if client == nil {
		client = http.DefaultClient
	}
	once := *client
	// Followed, a redirect would send the token once more, or hide the answer behind that of
	// another page.
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &once)

	// An http.Transport that has looked for a connection and got none has sent nothing, whatever
	// its error looks like: often it is only that ctx has ended. Other transports may not tell, and
	// are taken to have sent it.
	var looked, connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { looked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	t, err = k.conf.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	return t, connected.Load() || !looked.Load(), err
}

// judge tells the outcome by the error.
func (k *Keeper) judge(sent bool, err error) outcome {
	switch {
	case err == nil:
		return renewed
	case !sent:
		return unspent
	}
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok && r.ErrorCode == "invalid_grant" && answered(r) {
		return rejected
	}
	if k.opts.Unspent(err) {
		return unspent
	}
	return doubtful
}

// Unspent is the default of [Options.Unspent]. A refresh token is unspent for certain if no
// connection was made: the address could not be resolved or dialled, or the server's certificate is
// wrong. It is also unspent if the provider itself said that it refuses the request: with a status
// of 4xx; with an error code and a status of 2xx; or with a redirect that means that the whole
// request belongs elsewhere (301, 307, 308; none is followed). A 5xx does not tell whether it comes
// from before the work or after.
func Unspent(err error) bool {
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return answered(r)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// answered reports whether the provider's answer is a decision not to spend the refresh token.
func answered(r *oauth2.RetrieveError) bool {
	if r.Response == nil {
		return false
	}
	switch s := r.Response.StatusCode; s {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	default:
		return s >= 400 && s < 500 || s >= 200 && s < 300 && r.ErrorCode != ""
	}
}

// maxRest is the longest rest of a provider.
const maxRest = time.Hour

// retryAfter returns the rest that the provider wants, maxRest at most.
func retryAfter(err error, now time.Time) time.Duration {
	r, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || r.Response == nil {
		return 0
	}
	text := r.Response.Header.Get("Retry-After")
	wait := time.Duration(0)
	if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	} else if s, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // which gives the highest
		wait = time.Duration(s) * time.Second
	}
	return min(max(wait, 0), maxRest)
}

// quietError is an error of a request, with a text that may be logged.
type quietError struct {
	text string
	err  error
}

func (e *quietError) Error() string { return e.text }

func (e *quietError) Unwrap() error { return e.err }

// quiet keeps tokens out of err's text: package oauth2 puts all that the provider has answered into
// it, and some providers repeat the refresh token.
func quiet(err error, refresh string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok && r.ErrorCode == "" && r.Response != nil {
		text = "oauth2: cannot fetch token: " + r.Response.Status // without the body
	}
	return &quietError{strings.ReplaceAll(text, refresh, "[refresh token]"), err}
}
