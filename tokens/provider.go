package tokens

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"golang.org/x/oauth2"
)

// outcome is what became of a refresh token that was sent.
type outcome uint8

const (
	renewed  outcome = iota // it was spent, and there is a new one
	unspent                 // it is as good as before
	rejected                // it is not accepted, and will not be
	doubtful                // nobody knows
)

// judge tells the outcome by the error.
func (k *Keeper) judge(err error) outcome {
	if err == nil {
		return renewed
	}
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok && r.ErrorCode == "invalid_grant" && answered(r) {
		return rejected
	}
	if k.opts.Unspent(err) {
		return unspent
	}
	return doubtful
}

// Unspent is the default of [Options.Unspent]: it is sure that a refresh token was not spent if no connection was made (as
// the address could not be resolved or dialled, or the server's certificate is wrong), and if the provider itself said that it
// refuses the request: with a status of 4xx, or with an error code and a status of 2xx. Of a 5xx nobody knows whether it
// comes from before the work or after.
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

// answered tells whether the provider's answer is a decision not to spend the refresh token.
func answered(r *oauth2.RetrieveError) bool {
	if r.Response == nil {
		return false
	}
	s := r.Response.StatusCode
	return s >= 400 && s < 500 || s >= 200 && s < 300 && r.ErrorCode != ""
}

// spend sends the refresh token. Nothing but Options.Timeout cuts it short: giving up would not bring the token back.
func (k *Keeper) spend(ctx context.Context, refresh string) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.Timeout)
	defer cancel()
	if k.opts.HTTPClient != nil {
		ctx = context.WithValue(ctx, oauth2.HTTPClient, k.opts.HTTPClient)
	}
	return k.conf.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
}
