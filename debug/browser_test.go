package debug_test

import (
	"context"
	"flag"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

var screenshots = flag.String("debug.screenshots", "", "directory for pictures of the page, as a browser shows it")

// The page, which lets no script run, in a real browser, on a desk and on a phone. "make page"
// writes the pictures of the documents.
func TestHandler_InABrowser(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-debug.screenshots is not set")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	all := nodes(t, fallback.NewMemory(), "checkout-0", "checkout-1", "checkout-2")
	key := keyOf(t, all[0], "order/")
	l, err := all[1].Lock(coord.WithLabel(t.Context(), "checkout 8123"), key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = all[2].Lock(coord.WithLabel(ctx, "refund 7"), key)
	}()
	defer func() { stop(); <-done; _ = l.Unlock() }()
	for i := range 5 {
		m, err := all[i%3].Lock(t.Context(), keyOf(t, all[(i+1)%3], "sku/"+string(rune('a'+i))+"-"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Unlock() }()
	}
	stuck, err := all[0].Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	if err := all[2].Break(t.Context(), "report", stuck.Fence(), "stuck since 03:00"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a caller waits", func() bool {
		info, err := all[0].Inspect(t.Context(), key)
		return err == nil && len(info.Waiters) == 1
	})
	s := site(t, all[0], &debug.Options{Allow: func(*http.Request) bool { return true }})
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		args = append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		}, args...)
		out, err := exec.CommandContext(ctx, program, args...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out)
	}
	dir, err := filepath.Abs(*screenshots)
	if err != nil {
		t.Fatal(err)
	}
	home, page := s.URL+"/debug/locks/", s.URL+"/debug/locks/keys/"+key
	for name, x := range map[string][2]string{
		"page": {"1280,1000", home}, "page-phone": {"500,900", home}, "page-key": {"800,560", page},
	} {
		run("--window-size="+x[0], "--screenshot="+filepath.Join(dir, name+".png"), x[1])
	}
	for _, address := range []string{home, page} {
		if dom := run("--dump-dom", address); !strings.Contains(dom, "refund 7") && !strings.Contains(dom, key) {
			t.Errorf("the browser shows %s", dom)
		}
	}
}
