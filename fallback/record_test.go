package fallback_test

import (
	"errors"
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

func TestRefusalsAreToldFromWhatMayPass(t *testing.T) {
	for _, tt := range []struct {
		text  string
		named string // in the refusal; empty: it is none
	}{
		{"NOAUTH Authentication required.", "password"},
		{"WRONGPASS invalid username-password pair or user is disabled.", "password"},
		{"ERR invalid password", "password"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", "ACL"},
		{"NOPERM No permissions to access a key", "ACL"},
		{"ERR The user executing the script can't run this command or subcommand script: 5b99, on @user_script:33.", "ACL"},
		{"ERR The user executing the script can't publish to the channel mentioned in the command script: 5b99", "ACL"},
		{"ERR ACL failure in script: User app has no permissions to run the 'hset' command script: 5b99, on @user_script:33.", "ACL"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: 5b99, on @user_script:33.", "maxmemory"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "stop-writes-on-bgsave-error"},
		{"ERR unknown command 'EVALSHA', with args beginning with: ", "lacks a command"},
		{"LOADING Redis is loading the dataset in memory", ""},
		{"READONLY You can't write against a read only replica. script: 5b99", ""},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ""},
		{"BUSY Redis is busy running a script.", ""},
		{"NOREPLICAS Not enough good replicas to write.", ""},
		{"CLUSTERDOWN The cluster is down", ""},
		{"TRYAGAIN Multiple keys request during rehashing of slot", ""},
		{"read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout", ""},
	} {
		cause := errors.New(tt.text)
		err := fallback.Refused(cause)
		if !errors.Is(err, cause) {
			t.Errorf("%s: the cause is lost: %v", tt.text, err)
		}
		if got, want := errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrDenied), tt.named != ""; got != want || !strings.Contains(err.Error(), tt.named) {
			t.Errorf("%s: refused %t, want %t that names %q: %v", tt.text, got, want, tt.named, err)
		}
		if again := fallback.Refused(err); again.Error() != err.Error() {
			t.Errorf("%s: marked twice: %v", tt.text, again)
		}
	}
	if err := fallback.Refused(nil); err != nil {
		t.Errorf("no error: got %v", err)
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

func FuzzParseMessage(f *testing.F) {
	for _, text := range []string{
		"w1 k", "a18446744073709551615 a b\x00c", "r3 4294967295", "w1  ", "", "w", "w1", "w 1", "r1", "r1 ", "r 1 1",
		"r4294967296 1", "r1 4294967296", "a18446744073709551616 k", "w-1 k", "w+1 k", "g1 1", "x1 k", "\xff1 k",
		"fa 1 k", "fa 18446744073709551615 a b", "f 1 k", "fa 1 ", "fa 1", "fa -1 k",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := fallback.ParseMessage(text)
		if !ok {
			return
		}
		var want string // what a script would have published
		switch m.Kind {
		case fallback.Wake, fallback.Ask:
			want = fmt.Sprintf("%c%d %s", m.Kind, m.Request, m.Key)
			if m.Key == "" || m.Partition != 0 || m.Epoch != 0 {
				t.Errorf("%q is %+v", text, m)
			}
		case fallback.Freed:
			want = fmt.Sprintf("f%s %d %s", m.Session, m.Request, m.Key)
			if m.Session == "" || m.Key == "" || m.Partition != 0 || m.Epoch != 0 {
				t.Errorf("%q is %+v", text, m)
			}
		case fallback.Revoked:
			want = fmt.Sprintf("r%d %d", m.Partition, m.Epoch)
			if m.Key != "" || m.Request != 0 {
				t.Errorf("%q is %+v", text, m)
			}
		default:
			t.Fatalf("%q is of kind %q", text, m.Kind)
		}
		if again, ok := fallback.ParseMessage(want); !ok || again != m {
			t.Errorf("%q is %+v, whose text %q is %+v, %t", text, m, want, again, ok)
		}
	})
}
