package coord

import (
	"log/slog"
	"strings"
	"testing"
)

// Keys are in the log as other packages write them, and handlers quote what they have to; an
// attribute without a value is left out.
func TestLogged_ByATextHandler(t *testing.T) {
	for key, want := range map[string]string{
		"order/7":                     "key=order/7",
		"two words":                   `key="two words"`,
		"a\xffb":                      `key=a\xffb`,
		strings.Repeat("k", 70):       `key="` + strings.Repeat("k", 64) + `... (70 bytes)"`,
		strings.Repeat("äö", 20):      `key="` + strings.Repeat("äö", 16) + `... (80 bytes)"`,
		"x" + strings.Repeat("ä", 40): `key="x` + strings.Repeat("ä", 31) + `... (81 bytes)"`,
	} {
		var b strings.Builder
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "key", logged(key), "holder", optional(""), "held", optional(0), "mode", optional("read"))
		_, got, _ := strings.Cut(strings.TrimSpace(b.String()), "msg=m ")
		if got != want+" mode=read" {
			t.Errorf("%q is %s, want %s mode=read", key, got, want)
		}
	}
}
