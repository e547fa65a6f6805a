package tokens

import (
	"testing"
	"time"
)

// FuzzRecord: whatever record is stored, it is written as it was read, and no token is handed out
// beyond its life.
func FuzzRecord(f *testing.F) {
	r := Record{Fence: 1<<63 + 1, Step: lastStep, AccessToken: NewSecret("a"), RefreshToken: NewSecret("r"), Issued: time.Unix(1, 2).UTC(), Expiry: time.Unix(3600, 0).UTC(),
		Spending: Mark{Fence: 7, Since: time.Unix(5, 0).UTC(), Again: true}, Rejected: "invalid_grant"}
	text, err := r.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text), 0.5, int64(time.Minute))
	for _, s := range []string{`{}`, `null`, `{"fence":-1}`, `{"fence":1e3}`, `{"expiry":"0001-01-01T00:00:00Z"}`, `{"expiry":"9999-12-31T23:59:59Z","issued":"0001-01-01T00:00:00Z"}`, `{"fence":18446744073709551616}`, `[`} {
		f.Add(s, 1.0, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, spread float64, leeway int64) {
		r, err := DecodeRecord([]byte(text))
		if err != nil {
			return
		}
		b, err := r.Encode()
		if err != nil { // years that RFC 3339 does not have
			return
		}
		if again, err := DecodeRecord(b); err != nil || again.Compare(r) != 0 || again.AccessToken != r.AccessToken || again.RefreshToken != r.RefreshToken ||
			again.Rejected != r.Rejected || !again.Expiry.Equal(r.Expiry) || !again.Issued.Equal(r.Issued) || again.Spending.Fence != r.Spending.Fence {
			t.Errorf("%s became %s: %v", text, b, err)
		}
		if spread < 0 || spread > 1 || spread != spread || leeway < 0 {
			return
		}
		due, until := r.times(spread, &Options{Leeway: time.Duration(leeway), Early: time.Duration(leeway), Life: -1})
		if !r.Expiry.IsZero() && (until.After(r.Expiry) || due.After(until)) {
			t.Errorf("%s: due at %v, used until %v", text, due, until)
		}
		if r.Expiry.IsZero() && !(due.IsZero() && until.IsZero()) {
			t.Errorf("%s: due at %v, used until %v", text, due, until)
		}
	})
}
