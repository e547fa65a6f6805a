package fallback

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Secret is known to the processes of a namespace, and to the arbiter, which keeps it beside the
// sessions. Keys that derive from it protect the messages between processes on the network.
type Secret struct {
	Key [32]byte
	Age time.Duration // since it was stored, by the arbiter's clock; the first one of a namespace is old
}

// Format tells the age only, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "a secret that is %v old", s.Age.Round(time.Second))
}

// Secrets are those of a namespace, newest first; the zero Secret is none. Two are kept besides the
// newest, as nodes may still use them.
type Secrets [3]Secret

// NewSecret makes a secret at random, as it is kept: in hexadecimal digits.
func NewSecret() string {
	var key [32]byte
	rand.Read(key[:]) // never fails
	return hex.EncodeToString(key[:])
}

// NewSecrets returns the first secret of a namespace, as it is kept: stored long ago, as no node
// can still use an earlier one.
func NewSecrets() string { return NewSecret() + " 0" }

// DecodeSecrets decodes the kept text: for each secret, newest first, the key in hexadecimal digits
// and when it was stored, in Unix milliseconds, with blanks between.
func DecodeSecrets(text string, now int64) (all Secrets, err error) {
	f := strings.Fields(text)
	for i := range min(len(f)/2, len(all)) {
		key, err := hex.DecodeString(f[2*i])
		at, err2 := strconv.ParseInt(f[2*i+1], 10, 64)
		if err != nil || err2 != nil || len(key) != len(all[i].Key) || at < 0 {
			return Secrets{}, fmt.Errorf("fallback: secret %d of the namespace is malformed", i+1)
		}
		age := time.Duration(min(max(0, now-at), maxAge)) * time.Millisecond
		all[i] = Secret{[32]byte(key), age}
	}
	return all, nil
}

// maxAge bounds an age in milliseconds, for a Duration: the first secret is stored in 1970.
const maxAge = 1 << 40

// FirstSecret stores secrets, in the form of Secrets, if there are none, and returns those in
// force.
func (s *Sessions) FirstSecret(m Moment, text string) string {
	if !s.enter(m) {
		return ""
	}
	if s.Secrets == "" {
		s.Secrets = text
	}
	return s.Secrets
}

// Rotate puts a secret, 64 hexadecimal digits, before the others, unless it is one of them.
func (s *Sessions) Rotate(m Moment, key string) string {
	if !s.enter(m) {
		return ""
	}
	if !strings.Contains(s.Secrets, key) {
		f := append([]string{key, strconv.FormatInt(m.Now, 10)}, strings.Fields(s.Secrets)...)
		s.Secrets = strings.Join(f[:min(len(f), 2*len(Secrets{}))], " ")
	}
	return s.Secrets
}
