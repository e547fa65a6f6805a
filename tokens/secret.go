package tokens

import (
	"errors"
	"unique"
)

// A Secret is a text that package fmt, slog and encoders do not print, at any depth and with any
// verb. Secrets compare with ==. The zero Secret is the empty text.
type Secret struct {
	text unique.Handle[string] // a pointer: fmt prints its address even where it calls no methods
}

// NewSecret returns the text as a Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{unique.Make(text)}
}

// Empty reports whether the text is empty.
func (s Secret) Empty() bool { return s == Secret{} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.Empty() {
		return ""
	}
	return s.text.Value()
}

// String returns "(secret)", or "" if the text is empty.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return "(secret)"
}

// GoString returns String in quotes.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalJSON returns an error, so that no store keeps a placeholder in the place of a token, and
// no log gets one.
func (s Secret) MarshalJSON() ([]byte, error) {
	return nil, errors.New("tokens: a Secret has no JSON form: stores use Record.Encode")
}
