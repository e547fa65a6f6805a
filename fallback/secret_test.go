package fallback_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestSecretsTransitions(t *testing.T) {
	r := newRegistry()
	key := func(c string) string { return strings.Repeat(c, 64) }
	want(t, "first", r.FirstSecret(r.now, key("a")+" 0"), key("a")+" 0")
	want(t, "another first", r.FirstSecret(r.now, key("b")+" 0"), key("a")+" 0")
	var all []string
	for _, c := range []string{"c", "d", "e", "f"} {
		r.pass(time.Second)
		all = strings.Fields(r.Rotate(r.now, key(c)))
		want(t, "again", r.Rotate(r.now, key(c)), strings.Join(all, " "))
	}
	want(t, "kept", len(all), 6)
	for i, c := range []string{"f", "e", "d"} {
		want(t, "order", all[2*i], key(c))
	}
	want(t, "lost table", new(fallback.Sessions).Rotate(r.now, key("a")), "")
}

func FuzzSecrets(f *testing.F) {
	f.Add(strings.Repeat("ab", 32)+" 0", int64(1))
	f.Add("x 0 y", int64(-1))
	f.Fuzz(func(t *testing.T, text string, now int64) {
		all, err := fallback.DecodeSecrets(text, now)
		for _, s := range all {
			if s.Age < 0 {
				t.Errorf("%q: %v", text, s)
			}
		}
		if err != nil && all != (fallback.Secrets{}) {
			t.Error("both secrets and an error")
		}
	})
}
