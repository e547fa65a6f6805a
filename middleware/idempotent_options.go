package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/unit"
)

// IdempotentOptions are the options of [Idempotent]. The zero value of each field means its
// default, and a nil
// *IdempotentOptions means all defaults.
type IdempotentOptions struct {
	// Requests with one of these Methods may have a key; others pass untouched. Default: POST and
	// PATCH.
	Methods []string

	// Header is the name of the request header with the key. Default "Idempotency-Key".
	Header string

	// Required refuses requests without a key, with 400. By default they pass untouched.
	Required bool

	// Wait is the longest wait of a request for the end of the first with its key. Default 10 s; at
	// least 1 ms. Negative: not at all.
	Wait time.Duration

	// MaxWaiters is the most requests with one key that may wait in this process for the first one,
	// besides the one that runs; others are told at once that it is being executed (409). Each that
	// waits holds its body in memory. Default 32. Negative: no limit.
	MaxWaiters int

	// TTL is the life of a request's record, from its last change; after that the key is new.
	// Default 24 h; at least 1 s.
	TTL time.Duration

	// MaxRequest is the largest body of a request with a key, in bytes; it is held in memory, also
	// while the request waits. Default 1 MiB. Negative: no body.
	MaxRequest int64

	// MaxAnswer is the largest body of an answer that is kept, in bytes. A larger one goes to the
	// first client only, as it is written, and repeated requests learn that they were executed. The
	// store needs room for all answers of TTL: at 10 requests per second and 64 KiB each, 57 GB a
	// day. Default 64 KiB. Negative: only answers without a body are kept.
	MaxAnswer int

	// Final reports whether an answer of that status is final, and to be replayed. After any other
	// the request may be executed again, so the handler must not have done anything that may not be
	// done twice. A panic counts as 500; if that is final, the outcome is unknown. A request that a
	// middleware of this package further in has refused was not executed, and Final is not asked.
	// An answer of gRPC or gRPC-Web has 200, so Final is asked about its code in HTTP, by
	// google/rpc/code.proto: 499 for Canceled, 503 for Unavailable. For Aborted that is 423.
	// Default: all but 408, 423, 425, 429, 499, 502, 503 and 504. So a handler that fails with 500,
	// or panics, is not run again: it may have done half of its work.
	Final func(status int) bool

	// Replayed is called before an answer is replayed, such as to note that on the request's span.
	// Default: nil.
	Replayed func(r *http.Request)

	// Rerun executes a request again if its outcome is unknown. By default it is refused, with 409,
	// until TTL is over. For handlers that themselves see to it that nothing happens twice: by a
	// unique key in a database, or the token of [Lock].
	Rerun bool

	// FollowClient ends the handler's context with the request's. By default the handler goes on
	// when the client has gone, so that the answer is there when it asks again. By default the
	// handler gets no Grpc-Timeout or Connect-Timeout-Ms, either.
	FollowClient bool

	// KeepCookies stores and replays Set-Cookie. By default only the first answer has it, as it may
	// be a credential.
	KeepCookies bool

	// StoreTimeout is the limit for one call of the store. Default 5 s; at least 1 ms.
	StoreTimeout time.Duration

	// RetryAfter is the Retry-After of answers to clients that may try again, in whole seconds,
	// rounded up. Default 1 s. Negative: nothing.
	RetryAfter time.Duration

	// Problem answers a request that is not let through. It may be called concurrently. Default
	// [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each answer that could not be stored, each lock that a running
	// handler lost, and each error of the program. It also gets one for each handler that returned
	// without an answer or ran on after it. At the start it gets one if the server of a
	// [RedisStore] may run out of memory for locks, or evicts records. Nil: silent.
	Logger *slog.Logger
}

func (o *IdempotentOptions) filled() IdempotentOptions {
	f := IdempotentOptions{}
	if o != nil {
		f = *o
	}
	if len(f.Methods) == 0 {
		f.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	f.Methods = slices.Clone(f.Methods)
	setDefault(&f.Header, "Idempotency-Key")
	f.Header = http.CanonicalHeaderKey(f.Header)
	setDefault(&f.Wait, 10*time.Second)
	setDefault(&f.MaxWaiters, 32)
	setDefault(&f.TTL, 24*time.Hour)
	setDefault(&f.MaxRequest, 1<<20)
	setDefault(&f.MaxAnswer, 64<<10)
	f.MaxRequest = min(max(f.MaxRequest, 0), math.MaxInt64-1) // one byte more is read, to see that it is too much
	f.MaxAnswer = max(f.MaxAnswer, 0)
	setDefault(&f.StoreTimeout, 5*time.Second)
	setDefault(&f.RetryAfter, time.Second)
	if f.Final == nil {
		f.Final = final
	}
	return f
}

func (o *IdempotentOptions) validate() error {
	var all []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"TTL", o.TTL}, {"StoreTimeout", o.StoreTimeout}} {
		if d.value < 0 {
			all = append(all, fmt.Errorf("middleware: IdempotentOptions.%s is %v, must not be negative", d.name, d.value))
		}
	}
	return errors.Join(append(all, unit.Check("middleware: IdempotentOptions.Wait", o.Wait, time.Millisecond, "10 * time.Second"),
		unit.Check("middleware: IdempotentOptions.TTL", o.TTL, time.Second, "24 * time.Hour"),
		unit.Check("middleware: IdempotentOptions.StoreTimeout", o.StoreTimeout, time.Millisecond, "5 * time.Second"),
		checkMethods("IdempotentOptions.Methods", o.Methods),
		checkHeader("IdempotentOptions.Header", o.Header))...)
}

// final is the default of IdempotentOptions.Final.
func final(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests,
		statusClientClosed, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}
