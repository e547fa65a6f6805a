package tokens

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/internal/logs"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [New]. The zero value of each field means its default, and a nil
// *Options means all defaults. Durations are 1 ms or more, but for MinAge and Life.
type Options struct {
	// Early is how long before its end an access token is refreshed in the background at the
	// earliest; each process begins at a time of its own in the second half of it. Default 1 min,
	// and never more than a third of the token's life.
	Early time.Duration

	// Leeway is the last part of an access token's life: the token is no longer handed out then. It
	// has to cover the difference of the clocks of the processes and of the provider. Default 10 s,
	// and never more than a tenth of the token's life.
	Leeway time.Duration

	// Life is the life of an access token if the provider does not name it (expires_in). It counts
	// from when this process, or another one, got the token. Default 1 h; at least 1 s. Negative:
	// for ever, or until it is refused.
	Life time.Duration

	// MinAge is the least age of an access token that makes [Keeper.Refused] count: before, the
	// resource has another reason, or has not heard of the token yet, and the next one would fare
	// no better. Default 10 s; at least 1 µs.
	MinAge time.Duration

	// Timeout is the provider's time to answer; after that the account is in doubt. It is not cut
	// short by callers that leave, by a lost lock, or by Close. Default 30 s.
	Timeout time.Duration

	// SaveTimeout is the store's time to confirm new tokens; Save is repeated until then. If it
	// fails, the tokens are kept in this process only, which tries again when it is next asked.
	// Default 30 s.
	SaveTimeout time.Duration

	// Backoff is the time between a failed refresh and the next: meanwhile its error is returned.
	// Default 1 s. If the provider has said more in Retry-After, that counts (an hour at most), for
	// this account in all processes; a token that another process has got nevertheless, or of a new
	// login, is found all the same. It does not count where ReplayInDoubt would be over by then.
	Backoff time.Duration

	// ReplayInDoubt is the provider's grace for a used refresh token ("grace period", "leeway",
	// "reuse interval"): it accepts that once more, without taking it for stolen. It counts from
	// the first time that the token was sent. A refresh token that the provider may have spent is
	// sent once more within this time, by the process's clock, and never a third time. 0: it is not
	// sent again.
	ReplayInDoubt time.Duration

	// Unspent tells of an error of the provider or the HTTP client whether it proves that the
	// refresh token was not spent. Nil: [Unspent]. To be set for a provider that means this by,
	// say, a 503. It is not asked if there was no connection to send it on, as the hooks of package
	// httptrace tell.
	Unspent func(error) bool

	// HTTPClient asks the provider. Nil: the value oauth2.HTTPClient of the caller's ctx, or
	// http.DefaultClient. It must not send a POST again by itself. Its CheckRedirect is not used:
	// redirects are not followed.
	HTTPClient *http.Client

	// Logger is told of refreshes that failed, with or without callers that wait: at once, and then
	// once per 10 s at most, with how many records were left out (suppressed). Nil: silent.
	Logger *slog.Logger
}

// filled returns a copy with all defaults in place, or the error.
func (o *Options) filled() (Options, error) {
	var f Options
	if o != nil {
		f = *o
	}
	for _, d := range []struct {
		name    string
		field   *time.Duration
		initial time.Duration
		least   time.Duration
		usual   string // how it is written
	}{
		{"Early", &f.Early, time.Minute, time.Millisecond, "2 * time.Minute"},
		{"Leeway", &f.Leeway, 10 * time.Second, time.Millisecond, "10 * time.Second"},
		{"MinAge", &f.MinAge, 10 * time.Second, time.Microsecond, "10 * time.Second"},
		{"Timeout", &f.Timeout, 30 * time.Second, time.Millisecond, "30 * time.Second"},
		{"SaveTimeout", &f.SaveTimeout, 30 * time.Second, time.Millisecond, "30 * time.Second"},
		{"Backoff", &f.Backoff, time.Second, time.Millisecond, "2 * time.Second"},
		{"ReplayInDoubt", &f.ReplayInDoubt, 0, time.Millisecond, "30 * time.Second"},
	} {
		if *d.field < 0 {
			return f, fmt.Errorf("tokens: Options.%s is %v, must not be negative", d.name, *d.field)
		}
		if *d.field == 0 {
			*d.field = d.initial
		}
		if err := unit.Check("tokens: Options."+d.name, *d.field, d.least, d.usual); err != nil {
			return f, err
		}
	}
	if f.Life == 0 {
		f.Life = time.Hour
	}
	if err := unit.Check("tokens: Options.Life", f.Life, time.Second, "time.Hour"); err != nil {
		return f, err
	}
	if f.HTTPClient != nil && f.HTTPClient.Timeout > 0 && f.HTTPClient.Timeout < f.Timeout {
		return f, errors.New("tokens: Options.HTTPClient.Timeout is less than Options.Timeout: it would leave accounts in doubt early")
	}
	if f.Unspent == nil {
		f.Unspent = Unspent
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	f.Logger = logs.Limit(f.Logger)
	return f, nil
}
