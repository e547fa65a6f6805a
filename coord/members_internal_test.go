package coord

import (
	"slices"
	"testing"
	"time"
)

// A session that the arbiter lists no more may be dead, and its node is known for as long as it may take to renew, however long ago it was listed.
func TestMembers_ASessionThatIsListedNoMore(t *testing.T) {
	now := time.Now()
	m := newMembers(&cluster{c: &Coordinator{opts: Options{SessionTTL: 10 * time.Second}}})
	both := map[string]string{"a": card{Node: "one"}.encode(), "b": card{Node: "two"}.encode()}
	one := map[string]string{"a": both["a"]}
	list := func(all map[string]string, at time.Time, want ...string) {
		t.Helper()
		if _, missed := m.list(all, at); !slices.Equal(missed, want) {
			t.Errorf("it misses %q, not %q", missed, want)
		}
	}
	list(both, now)
	now = now.Add(time.Minute)
	list(one, now, "b")
	list(one, now.Add(10*time.Second))
	if !m.lists("b") {
		t.Error("it was forgotten when it was missed")
	}
	list(both, now.Add(11*time.Second))
	now = now.Add(time.Minute)
	list(one, now, "b")
	list(one, now.Add(11*time.Second))
	if m.lists("b") || !m.lists("a") {
		t.Error("it is known for longer")
	}
}

// A server that was deposed does not list a session that was opened at the new one: it is not asked whether it is dead.
func TestMembers_ASessionThatWasJustOpened(t *testing.T) {
	now := time.Now()
	m := newMembers(&cluster{c: &Coordinator{opts: Options{SessionTTL: 10 * time.Second, Margin: time.Second, Grace: 12 * time.Second}}})
	all := map[string]string{"a": card{Node: "one"}.encode()}
	m.list(all, now)
	if _, missed := m.list(nil, now.Add(900*time.Millisecond)); len(missed) > 0 || !m.lists("a") {
		t.Errorf("it misses %q", missed)
	}
	if _, missed := m.list(nil, now.Add(1200*time.Millisecond)); len(missed) != 1 {
		t.Errorf("then it misses %q", missed)
	}
}

// A list that was asked for before the arbiter said that a session is dead does not bring its node back.
func TestMembers_AListOfBefore(t *testing.T) {
	c := &Coordinator{opts: Options{SessionTTL: 10 * time.Second}}
	m := newMembers(&cluster{c: c})
	both := map[string]string{"a": card{Node: "one"}.encode(), "b": card{Node: "two"}.encode()}
	asked := c.now().Add(-time.Second)
	m.list(both, asked)
	m.forget("b")
	m.list(both, asked)
	if m.has("two") || !m.gone("two") || !m.has("one") {
		t.Error("the node is back")
	}
	m.list(both, c.now().Add(time.Second)) // the server has lost that it is dead, or it was another session
	if !m.has("two") || m.gone("two") {
		t.Error("the node is not back")
	}
}
