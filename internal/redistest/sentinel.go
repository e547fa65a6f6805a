package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/await"
)

// StartSentinel starts a Sentinel that watches a primary by a name, waits until it answers, and
// returns its address. It is stopped when the test ends.
func StartSentinel(t testing.TB, primary *Server, name string) (addr string) {
	t.Helper()
	for range 5 { // another process may take the port meanwhile
		if addr, ok := launchSentinel(t, primary, name); ok {
			return addr
		}
	}
	t.Fatal("no Sentinel starts")
	return ""
}

func launchSentinel(t testing.TB, primary *Server, name string) (addr string, ok bool) {
	t.Helper()
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor %s %s %s 1\n", port, name, primary.host(), primary.Port())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	endWithParent(cmd)
	ended, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // as Restart does
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd, ended) })
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer c.Close()
	await.Until(t, "the Sentinel answers, or has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			ok = c.GetMasterAddrByName(t.Context(), name).Err() == nil
			return ok
		}
	})
	return addr, ok
}
