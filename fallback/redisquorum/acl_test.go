package redisquorum

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The user of docs/quorum.md has the rights that are needed, also when servers forget. Each command
// that it permits is used.
func TestQuorum_ACL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quorum.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?m)^    (redis-cli ACL SETUSER shop on .*)$`).FindSubmatch(text)
	if rule == nil {
		t.Fatal("docs/quorum.md has no ACL")
	}
	fields := redistest.Pasted(t, string(rule[1]))
	q := startQuorum(t, 3)
	permit := func(i int) {
		var args []any
		for _, f := range fields {
			args = append(args, f)
		}
		if err := q.servers[i].Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var users []*redis.Client
	for i, s := range q.servers {
		permit(i)
		c := redis.NewClient(&redis.Options{Addr: s.Addr, Username: "shop", Password: "secret", DisableIdentity: true})
		t.Cleanup(func() { _ = c.Close() })
		users = append(users, c)
	}
	s := newStore(users, nil)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, restarts := range [][]int{{0}, {0, 2}, nil} {
		look, err := s.Load(t.Context(), []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		change := fallback.Change{Key: "a", Version: look.Values[0].Version, Value: []byte("1")}
		if done, err := s.Swap(t.Context(), look.Server, []fallback.Change{change}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		for _, i := range restarts { // a server without the user's rule lets it in no more
			q.restart(i)
			permit(i)
		}
		await.Until(t, "all are members", func() bool {
			_, err := s.Load(t.Context(), []string{"a"})
			return err == nil && q.members() == 3
		})
	}
	used := ""
	for _, s := range q.servers {
		c := s.Client(t)
		stats, err := c.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		used += stats
		log, err := c.ACLLog(t.Context(), 100).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range log {
			if e.Reason != "auth" { // between a restart and the rule
				t.Errorf("refused: %s %q (%s)", e.Reason, e.Object, e.Context)
			}
		}
	}
	for _, f := range fields {
		if name, ok := strings.CutPrefix(f, "+"); ok && !strings.Contains(used, "cmdstat_"+name+":") {
			t.Errorf("%s is permitted and not used", name)
		}
	}
}
