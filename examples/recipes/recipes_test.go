package recipes_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// processes returns the locks of n processes; stop closes them. In a service each process calls
// holdfast.Open(ctx, client, &holdfast.Options{Namespace: "shop", Logger: slog.Default()}).
func processes(n int) (all []*coord.Coordinator, stop func()) {
	ctx, arbiter := context.Background(), fallback.NewMemory()
	for range n {
		locks, err := coord.New(ctx, arbiter, nil)
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, locks)
	}
	return all, func() {
		for _, locks := range all {
			if err := locks.Close(ctx); err != nil {
				log.Print(err)
			}
		}
	}
}

// The context of a limited call has the caller's deadline, and ends with the caller and with the
// slot. A panic keeps no slot.
func TestLimiter_Do(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		locks := coordtest.Start(t, a, nil)
		partner := &limiter{locks: locks, name: "partner", burst: 1, every: time.Second}
		defer partner.Close()
		ended := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := partner.Do(late, func(ctx context.Context) error {
			if at, _ := ctx.Deadline(); time.Until(at) > time.Minute || at.IsZero() {
				t.Errorf("the deadline is %v", at)
				return context.DeadlineExceeded
			}
			return ended(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("late: %v", err)
		}
		func() {
			defer func() { recover() }()
			_ = partner.Do(t.Context(), func(context.Context) error { panic("on purpose") })
		}()
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = partner.Do(soon, func(ctx context.Context) error {
			info, err := locks.Inspect(ctx, "partner/0")
			if err != nil {
				return err
			}
			return errors.Join(locks.Break(ctx, "partner/0", info.Holder.Fence, "a test"), ended(ctx))
		})
		if !errors.Is(err, coord.ErrLost) {
			t.Errorf("lost: %v", err)
		}
	})
}

// The page lists every program, and each is as long as it says.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`\]\(\.\./([a-z/_]+\.go)\)`).FindAllSubmatch(page, -1) {
		path := string(m[1])
		listed[filepath.Base(path)] = true
		program, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Error(err)
			continue
		}
		if lines := bytes.Count(program, []byte("\n")); lines < 30 || lines > 100 {
			t.Errorf("%s has %d lines, want 30 to 100", path, lines)
		}
	}
	here, err := filepath.Glob("*_test.go")
	if err != nil || len(here) < 9 {
		t.Fatal(here, err)
	}
	for _, name := range here {
		if name != "recipes_test.go" && !listed[name] {
			t.Errorf("docs/recipes.md does not list %s", name)
		}
	}
}
