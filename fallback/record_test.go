package fallback_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestTokensAreInTheOrderOfEpochAndSeq(t *testing.T) {
	var last fallback.Token
	for _, part := range [][2]uint32{{0, 1}, {0, math.MaxUint32}, {1, 0}, {1, 1}, {7, 1 << 31}, {math.MaxUint32, 0}, {math.MaxUint32, math.MaxUint32}} {
		token := fallback.MakeToken(part[0], part[1])
		if token.Epoch() != part[0] || token.Seq() != part[1] {
			t.Errorf("%v: got epoch %d and seq %d, want %v", token, token.Epoch(), token.Seq(), part)
		}
		if token <= last {
			t.Errorf("%v is not above %v", token, last)
		}
		if want := fmt.Sprintf("%d.%d", part[0], part[1]); token.String() != want {
			t.Errorf("String: got %s, want %s", token, want)
		}
		last = token
	}
}

func TestVerdictsHaveNames(t *testing.T) {
	seen := make(map[string]bool)
	for v := fallback.Granted; v <= fallback.Lost; v++ {
		if s := v.String(); s == "" || seen[s] || strings.Contains(s, "Verdict") {
			t.Errorf("verdict %d is called %q", v, s)
		}
		seen[v.String()] = true
	}
	for _, v := range []fallback.Verdict{0, fallback.Lost + 1, 255} {
		if want := fmt.Sprintf("Verdict(%d)", uint8(v)); v.String() != want {
			t.Errorf("got %q, want %q", v, want)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, text := range []string{
		"", "alice 1 2 3", "alice 18446744073709551615 4294967295 4294967295", "alice 0 0 0",
		"alice 18446744073709551616 1 1", "alice 1 4294967296 1", "alice 1 1 4294967296", "alice -1 1 1", "alice 1 1",
		"alice 1 1 1 1", " 1 1 1", "alice  1 1", "alice 1.0 1 1", "alice 1e3 1 1", "alice 0x1 1 1", "\x00 1 1 1", "\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		row, err := fallback.DecodeRow(text)
		if err != nil {
			if row != (fallback.Row{}) && row.Token != 0 {
				t.Errorf("%q: a token with an error: %+v", text, row)
			}
			return
		}
		if (row.Session == "") != (text == "") {
			t.Errorf("%q: session %q", text, row.Session)
		}
		if text == "" {
			return
		}
		again, err := fallback.DecodeRow(row.Encode())
		if err != nil || again != row {
			t.Errorf("%q is %+v, whose text %q is %+v, %v", text, row, row.Encode(), again, err)
		}
	})
}
