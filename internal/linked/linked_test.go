package linked

import (
	"os/exec"
	"strings"
	"testing"

	// So that the results of these tests are not taken from a cache when a package imports others
	// than before.
	_ "github.com/holdfast-go/holdfast/gossip"
	_ "github.com/holdfast-go/holdfast/middleware"
)

const module = "github.com/holdfast-go/holdfast/"

// deps returns the packages that a program links that imports the given ones of this module.
func deps(t *testing.T, packages ...string) map[string]bool {
	t.Helper()
	args := []string{"list", "-deps"}
	for _, p := range packages {
		args = append(args, module+p)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for p := range strings.FieldsSeq(string(out)) {
		all[p] = true
	}
	return all
}

// foreign returns the packages of other modules; those of the standard library have no dot.
func foreign(all map[string]bool) map[string]bool {
	f := make(map[string]bool)
	for p := range all {
		first, _, _ := strings.Cut(p, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(p, module) {
			f[p] = true
		}
	}
	return f
}

// A program without a cluster links neither memberlist nor memberlist's dependencies.
func TestLinked_NoClusterNoMemberlist(t *testing.T) {
	gossips := foreign(deps(t, "gossip"))
	if !gossips["github.com/hashicorp/memberlist"] {
		t.Fatal("package gossip does not link memberlist: this test looks at the wrong package")
	}
	for p := range foreign(deps(t, "ring")) {
		delete(gossips, p) // the placement's
	}
	for p := range deps(t, "coord", "fallback", "middleware") {
		if gossips[p] {
			t.Errorf("a program without a cluster links %s", p)
		}
	}
}

// A program whose arbiter is not Redis does not link a Redis client.
func TestLinked_AnotherArbiterNoRedisClient(t *testing.T) {
	const client = "github.com/redis/go-redis/v9"
	if !deps(t, "fallback/redisarbiter")[client] {
		t.Fatal("package redisarbiter does not link go-redis: this test looks for the wrong package")
	}
	if deps(t, "coord", "fallback", "gossip", "election")[client] {
		t.Error("a program with another arbiter than Redis links go-redis")
	}
}
