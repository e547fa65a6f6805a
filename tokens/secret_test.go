package tokens_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/tokens"
)

const access, refresh = "ACCESSxyzzy", "REFRESHplugh"

func secretRecord(fence uint64) tokens.Record {
	return tokens.Record{Fence: fence, Step: 2, AccessToken: tokens.NewSecret(access), TokenType: "Bearer",
		RefreshToken: tokens.NewSecret(refresh), Issued: time.Unix(1_800_000_000, 0).UTC(), Rejected: "invalid_grant"}
}

// shows reports whether the text has one of the tokens, as it is or in an encoding that fmt uses.
func shows(text string) bool {
	text = strings.ToLower(text)
	for _, secret := range []string{access, refresh} {
		codes := fmt.Sprintf("%d", []byte(secret))
		for _, form := range []string{
			secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("% x", secret), fmt.Sprintf("%# x", secret),
			base64.StdEncoding.EncodeToString([]byte(secret))[:12], codes[1 : len(codes)-1],
		} {
			if strings.Contains(text, strings.ToLower(form)) {
				return true
			}
		}
	}
	return false
}

// plainRecord has its tokens as texts: shows finds them.
type plainRecord struct{ AccessToken, RefreshToken string }

func TestRecord_PrintsNoSecret(t *testing.T) {
	r := secretRecord(7)
	type hidden struct{ record tokens.Record } // fmt calls no methods of a value in an unexported field
	memory := tokens.NewMemoryStore()
	if err := memory.Save(t.Context(), "alice", r); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"record": r, "pointer": &r, "in a slice": []tokens.Record{r}, "in a map": map[string]tokens.Record{"a": r},
		"exported field": struct{ R tokens.Record }{r}, "unexported field": hidden{r}, "pointer to that": &hidden{r},
		"secret": r.RefreshToken, "pointer to a secret": &r.RefreshToken, "store": memory, "store's value": []any{memory},
	} {
		for verb := rune('A'); verb <= 'z'; verb++ {
			for _, flag := range []string{"", "+", "#", "-", " ", "0", "# ", "+#", "40", ".40"} {
				if text := fmt.Sprintf("%"+flag+string(verb), v); shows(text) {
					t.Errorf("%s by %%%s%c: %s", name, flag, verb, text)
				}
			}
		}
		extra, width, wrap := []any{1, v}, "%*d", "x: %w" // variables: go vet knows that they are wrong
		if text := fmt.Sprint(v) + fmt.Sprintf("%d", extra...) + fmt.Sprintf(width, v, 1) + fmt.Errorf(wrap, v).Error(); shows(text) {
			t.Errorf("%s: %s", name, text)
		}
		var b bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
			l := slog.New(h)
			l.Info("x", "v", v, slog.Group("g", "v", v), "s", struct{ V any }{v})
			l.With("v", v).Info("x")
		}
		if shows(b.String()) {
			t.Errorf("%s by slog: %s", name, b.String())
		}
		if text, _ := json.Marshal(v); shows(string(text)) {
			t.Errorf("%s by JSON: %s", name, text)
		}
		if text, _ := xml.Marshal(v); shows(string(text)) {
			t.Errorf("%s by XML: %s", name, text)
		}
	}
	if text := fmt.Sprintf("%+v", r); !strings.Contains(text, "Fence:7") || !strings.Contains(text, "RefreshToken:(secret)") {
		t.Errorf("%s does not say what it is", text)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "% x", "%q", "%p", "%w", "%d"} { // shows is no use unless it finds a token
		if text := fmt.Sprintf(verb, plainRecord{access, refresh}); !shows(text) {
			t.Errorf("no token found in %s", text)
		}
	}
}

// A store that encodes records by itself gets an error, not a placeholder in the place of a token.
func TestRecord_JSON(t *testing.T) {
	r := secretRecord(7)
	if text, err := json.Marshal(r); err == nil || !strings.Contains(err.Error(), "Record.Encode") {
		t.Errorf("json.Marshal: %s, %v", text, err)
	}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tokens.DecodeRecord(text); err != nil || again != r {
		t.Errorf("%s became %+v, %v", text, again, err)
	}
	const before = `{"fence":7,"step":2,"access_token":"` + access + `","token_type":"Bearer","refresh_token":"` + refresh +
		`","issued":"2027-01-15T08:00:00Z","rejected":"invalid_grant"}` // as it was written before there were Secrets
	if old, err := tokens.DecodeRecord([]byte(before)); err != nil || old != r {
		t.Errorf("%s became %+v, %v", before, old, err)
	}
	if r, err := tokens.DecodeRecord([]byte(`{`)); err == nil || errors.Is(err, tokens.ErrNoAccount) {
		t.Errorf("got %+v, %v", r, err)
	}
}
