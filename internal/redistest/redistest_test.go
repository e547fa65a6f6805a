package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"runtime"
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
