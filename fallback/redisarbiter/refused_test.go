package redisarbiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestRefusalsAreToldFromWhatMayPass(t *testing.T) {
	for _, tt := range []struct {
		text  string
		named string // in the refusal; empty: it is none
	}{
		{"NOAUTH Authentication required.", "password"},
		{"WRONGPASS invalid username-password pair or user is disabled.", "password"},
		{"ERR invalid password", "password"},
		{"ERR Protocol error: unauthenticated multibulk length", "password"},
		{"ERR Protocol error: unauthenticated bulk length", "password"},
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
		err := redisarbiter.Refused(cause)
		if !errors.Is(err, cause) {
			t.Errorf("%s: the cause is lost: %v", tt.text, err)
		}
		if got, want := errors.Is(err, fallback.ErrRefused) || errors.Is(err, redisarbiter.ErrDenied), tt.named != ""; got != want || !strings.Contains(err.Error(), tt.named) {
			t.Errorf("%s: refused %t, want %t that names %q: %v", tt.text, got, want, tt.named, err)
		}
		if full := errors.Is(err, fallback.ErrFull); full != strings.HasPrefix(tt.text, "OOM") {
			t.Errorf("%s: no room %t", tt.text, full)
		}
		if denied, want := errors.Is(err, fallback.ErrDenied), tt.named == "password" || tt.named == "ACL"; denied != want {
			t.Errorf("%s: denied %t", tt.text, denied)
		}
		if replica := errors.Is(err, fallback.ErrReadOnly); replica != strings.HasPrefix(tt.text, "READONLY") {
			t.Errorf("%s: of a replica %t", tt.text, replica)
		}
		if again := redisarbiter.Refused(err); again.Error() != err.Error() {
			t.Errorf("%s: marked twice: %v", tt.text, again)
		}
	}
	if err := redisarbiter.Refused(nil); err != nil {
		t.Errorf("no error: got %v", err)
	}
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
		m, ok := redisarbiter.ParseMessage(text)
		if !ok {
			return
		}
		var want string // the text that a script would have published
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
		if again, ok := redisarbiter.ParseMessage(want); !ok || again != m {
			t.Errorf("%q is %+v, whose text %q is %+v, %t", text, m, want, again, ok)
		}
	})
}

// A real server's answers where a permission is taken away, the password is changed, and where it
// has become a replica.
func TestRefusals_OfAServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	n := attach(t, aclUser(t, s, "app", ""), cold)
	opens := func() error {
		_, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: plain.Lease})
		return err
	}
	set := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := opens(); err != nil {
		t.Fatal(err)
	}
	set("ACL", "SETUSER", "app", "-evalsha")
	if err := opens(); !errors.Is(err, fallback.ErrDenied) || !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("without a permission: %v", err)
	}
	set("ACL", "SETUSER", "app", "+evalsha")
	set("REPLICAOF", "127.0.0.1", "1")
	if err := opens(); !errors.Is(err, fallback.ErrReadOnly) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("of a replica: %v", err)
	}
	set("REPLICAOF", "NO", "ONE")
	set("ACL", "SETUSER", "app", "resetpass", ">another")
	set("CLIENT", "KILL", "USER", "app")
	if err := opens(); !errors.Is(err, fallback.ErrDenied) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("with a password of before: %v", err)
	}
}
