package tokens

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/oauth2"
)

// A Store keeps one [Record] per account, durably, for all processes. Package storetest checks
// implementations.
//
// Its methods are called by many goroutines and processes at once, and may block until ctx ends.
// They must be atomic for each account, and a Load that begins after a Save has returned must see
// that Save or a later one: no replica that is behind, no cache. A confirmed Save should survive a
// crash of the store: a refresh token that is lost means a new login. A store keeps tokens as they
// are, unless it is wrapped by [Seal].
type Store interface {
	// Load returns the account's record, or an error that Is [ErrNoAccount] if there is none.
	Load(ctx context.Context, account string) (Record, error)

	// Save replaces the account's record, or creates it. If the stored record is of a later version
	// (see [Record.Compare]), Save changes nothing and returns an error that Is [ErrSuperseded].
	// The same version may come twice: then the same is being saved once more. After any other
	// error it is unknown whether r was saved, now or in a while.
	Save(ctx context.Context, account string, r Record) error
}

// A Record is the stored state of an account. It is a plain value, which compares with ==. Its
// tokens are a [Secret] each: a record can be printed and logged. Stores keep either its fields, by
// [Secret.Reveal], or the bytes of [Record.Encode]: its form is stable.
type Record struct {
	// Fence is the token of the lock under which this was written; Step orders the writes under
	// that lock, from 0.
	Fence uint64 `json:"fence"`
	Step  uint32 `json:"step"`

	AccessToken  Secret    `json:"access_token"`
	TokenType    string    `json:"token_type,omitempty"`
	RefreshToken Secret    `json:"refresh_token"`
	Issued       time.Time `json:"issued"`          // by the clock of the process that got it
	Expiry       time.Time `json:"expiry,omitzero"` // zero: the provider has not said; see Options.Life

	// Spending says that RefreshToken is about to be sent to the provider, or was. Its zero value:
	// it is not.
	Spending Mark `json:"spending,omitzero"`

	// Rest is until when the provider wants to be left alone about this account, as it has said in
	// Retry-After. Its zero value, or one more than an hour ahead: it may be asked. A store that
	// loses it does no harm but to the provider.
	Rest time.Time `json:"rest,omitzero"`

	// Rejected is the provider's reason for not taking RefreshToken any more, as "invalid_grant".
	// Empty: it does, as far as known.
	Rejected string `json:"rejected,omitempty"`
}

// A Mark is written before a refresh token is sent, and cleared by the write of the outcome.
type Mark struct {
	Fence uint64    `json:"fence"` // of the sender's lock
	Since time.Time `json:"since"` // when it was sent for the first time, by the clock of that process
	Again bool      `json:"again,omitempty"`
}

// Compare orders the versions of an account's records: it returns -1 if r is older than other, 1 if
// newer, 0 if the same.
func (r Record) Compare(other Record) int {
	return cmp.Or(cmp.Compare(r.Fence, other.Fence), cmp.Compare(r.Step, other.Step))
}

// Empty reports whether there are no tokens, as [Keeper.Forget] leaves it. A store may delete such
// a record when no Save can be on its way any more that began before it: after a day, say.
func (r Record) Empty() bool { return r.AccessToken.Empty() && r.RefreshToken.Empty() }

// LogValue implements [slog.LogValuer], without secrets.
func (r Record) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%+v", bare(r)))
}

// encoded is a Record as JSON: its own fields go before those of the Record.
type encoded struct {
	bare
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
}

// bare is a Record without its methods.
type bare Record

// Encode returns the record as JSON, tokens included: for stores only. [json.Marshal] of a Record
// is an error.
func (r Record) Encode() ([]byte, error) {
	return json.Marshal(encoded{bare(r), r.AccessToken.Reveal(), r.RefreshToken.Reveal()})
}

// DecodeRecord returns the record that Encode has encoded.
func DecodeRecord(text []byte) (Record, error) {
	var e encoded
	if err := json.Unmarshal(text, &e); err != nil {
		return Record{}, err
	}
	r := Record(e.bare)
	r.AccessToken, r.RefreshToken = NewSecret(e.AccessToken), NewSecret(e.RefreshToken)
	return r, nil
}

// Steps under one lock: the record that an earlier holder of this process could not store, the
// mark, and the mark's outcome. A late duplicate of one cannot undo the next.
const (
	keptStep = 0
	markStep = 1
	lastStep = 2
)

func newRecord(t *oauth2.Token, fence uint64, step uint32, now time.Time) Record {
	return Record{
		Fence: fence, Step: step,
		AccessToken: NewSecret(t.AccessToken), TokenType: t.TokenType, RefreshToken: NewSecret(t.RefreshToken),
		Issued: now.UTC().Round(0), Expiry: t.Expiry.UTC().Round(0),
	}
}

// token returns the token for callers.
func (r *Record) token() *oauth2.Token {
	return &oauth2.Token{AccessToken: r.AccessToken.Reveal(), TokenType: r.TokenType, Expiry: r.Expiry}
}

// times returns when to refresh the token, and from when on not to hand it out; zero: never. For
// tokens that do not live long, the times that are set are cut: an access token is used for more
// than half of its life.
func (r *Record) times(spread float64, o *Options) (due, until time.Time) {
	expiry := r.Expiry
	if expiry.IsZero() {
		if o.Life < 0 || r.Empty() {
			return due, until
		}
		expiry = r.Issued.Add(o.Life)
	}
	life := max(0, expiry.Sub(r.Issued))
	until = expiry.Add(-min(o.Leeway, life/10))
	early := min(o.Early, life/3)
	return until.Add(-time.Duration(spread * float64(early))), until
}
