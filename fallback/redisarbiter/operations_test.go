package redisarbiter_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// An old namespace is deleted as docs/operations.md says: nothing of it is left, and those with a
// name that begins as its own stay.
func TestOperations_DeletesOneNamespace(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`redis-cli --scan --pattern '([^']*)' \| (?:grep -aE '([^']*)' \| )?xargs`).FindStringSubmatch(string(text))
	if said == nil {
		t.Fatal("the page does not say how")
	}
	grep, err := regexp.CompilePOSIX(said[2])
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Start(t)
	c := s.Client(t)
	keys := func(begin string) (all []string) {
		t.Helper()
		for i := c.Scan(t.Context(), 0, "*", 100).Iterator(); i.Next(t.Context()); {
			if strings.HasPrefix(i.Val(), begin) {
				all = append(all, i.Val())
			}
		}
		slices.Sort(all)
		return all
	}
	others := []string{"shop:eu", "shop:p3", "shop:s", "shop-2"}
	for _, name := range append(others, "shop") {
		settings := plain
		settings.Namespace = name
		use(t, attachTo(t, c, cold, settings))
	}
	before := make(map[string][]string)
	for _, name := range others {
		before[name] = keys("{" + name + ":")
	}
	unlink(t, c, said[1], grep)
	for _, name := range others {
		if after := keys("{" + name + ":"); len(before[name]) < 2 || !slices.Equal(after, before[name]) {
			t.Errorf("%s had %q, has %q", name, before[name], after)
		}
	}
	for _, key := range keys("{shop:") {
		if !slices.ContainsFunc(others, func(name string) bool { return strings.HasPrefix(key, "{"+name+":") }) {
			t.Errorf("there is %q", key)
		}
	}
}

// unlink deletes the keys of a pattern that grep lets through.
func unlink(t *testing.T, c *redis.Client, pattern string, grep *regexp.Regexp) {
	t.Helper()
	n := 0
	for i := c.Scan(t.Context(), 0, pattern, 100).Iterator(); i.Next(t.Context()); {
		if !grep.MatchString(i.Val()) {
			continue
		}
		n++
		if err := c.Unlink(t.Context(), i.Val()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n < 2 {
		t.Errorf("%d keys are deleted", n)
	}
}
