package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
)

const childEnv = "REDISTEST_CHILD"

// TestChild is the process that TestServerEndsWithItsProcess starts: its clean-up never runs.
func TestChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child")
	}
	s := Start(t)
	println("server at " + s.Addr)
	select {}
}

func TestServerEndsWithItsProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a server that is left over ends with its parent on Linux only")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGQUIT, os.Kill} { // by hand, go test's timeout, anything
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
			cmd.Env = append(os.Environ(), childEnv+"=1")
			out, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var addr string
			for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
				_, addr, _ = strings.Cut(lines.Text(), "server at ")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if addr == "" {
				t.Skip("no server was started: redis-server is missing")
			}
			await.Within(t, 10*time.Second, "the server at "+addr+" ends", func() bool {
				c, err := net.Dial("tcp", addr)
				if err == nil {
					_ = c.Close()
				}
				return err != nil
			})
		})
	}
}

// A server that is killed while another process rewrites its file leaves none that writes to its
// directory.
func TestKill_EndsWhatTheServerForked(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("groups of processes are killed on Linux only")
	}
	s := Start(t, "--appendonly", "yes", "--rdb-key-save-delay", "10000")
	c := s.Client(t)
	p := c.Pipeline()
	for i := range 2000 { // at 10 ms a key, the rewriting takes 20 s
		p.Set(t.Context(), strconv.Itoa(i), i, 0)
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.BgRewriteAOF(t.Context())
	await.Until(t, "it has said how far it is, which it does once a second, and it ends where that fails", func() bool {
		processed := regexp.MustCompile("current_save_keys_processed:[1-9]")
		return processed.MatchString(c.Info(t.Context(), "persistence").Val())
	})
	s.Kill()
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if dir, err := os.Readlink(p); err == nil && strings.HasPrefix(dir, s.dir) {
			t.Errorf("%s is still at work in %s", p, dir)
		}
	}
}

// A command that is pasted reaches redis-cli as it is meant.
func TestPasted(t *testing.T) {
	t.Parallel()
	got := Pasted(t, "redis-cli ACL SETUSER shop '>secret' '&{shop:*' '+script|load' \\\n  +ping")
	if want := []string{"ACL", "SETUSER", "shop", ">secret", "&{shop:*", "+script|load", "+ping"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
