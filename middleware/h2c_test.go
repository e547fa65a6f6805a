package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// Java's HttpClient and "curl --http2" offer h2c with each request on http://. It goes to its owner
// all the same, which does not see the offer: it was made to this node.
func TestRoute_UpgradeToH2C(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	var seen atomic.Pointer[http.Request]
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r)
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "at %s: %s", x.URL, body)
		})
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	target, want := x.URL+"/?order="+order, "at "+other.URL+": body"
	check := func(t *testing.T, got string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		h := seen.Load().Header
		if h["Upgrade"] != nil || h["Http2-Settings"] != nil || strings.Contains(strings.ToLower(strings.Join(h["Connection"], ",")), "http2-settings") {
			t.Errorf("the owner got %v", h)
		}
	}
	t.Run("net/http", func(t *testing.T) {
		check(t, exchange(t.Context(), x.Server, "POST", "/?order="+order, "body",
			"Upgrade", "h2c", "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA").body)
	})
	t.Run("another protocol goes with it", func(t *testing.T) {
		exchange(t.Context(), x.Server, "POST", "/?order="+order, "body", "Upgrade", "other", "Connection", "Upgrade")
		if h := seen.Load().Header; h.Get("Upgrade") != "other" {
			t.Errorf("the owner got %v", h)
		}
	})
	t.Run("curl", func(t *testing.T) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip(err)
		}
		out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--noproxy", "*", "--http2", "-d", "body", target).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, string(out))
	})
	t.Run("Java", func(t *testing.T) {
		if _, err := exec.LookPath("java"); err != nil {
			t.Skip(err)
		}
		file := filepath.Join(t.TempDir(), "Post.java")
		if err := os.WriteFile(file, []byte(javaPost), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "java", "-XX:TieredStopAtLevel=1", file, target, "body")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		check(t, string(out))
	})
}

const javaPost = `import java.net.URI;
import java.net.http.*;

class Post {
	public static void main(String[] args) throws Exception {
		var request = HttpRequest.newBuilder(URI.create(args[0])).POST(HttpRequest.BodyPublishers.ofString(args[1])).build();
		System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
	}
}
`
