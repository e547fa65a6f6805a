package fallback

import (
	"encoding/json"
	"strings"
	"testing"
)

// knowing returns a text with a member that no version knows in each object of fixed names. A map
// gets none: there it is a member like others.
func knowing(t *testing.T, x *shape, text []byte) []byte {
	t.Helper()
	var parts []string
	it := enter(text)
	for it.next() {
		value, name, of := string(it.value), "", x.each
		if it.name != nil {
			of, _ = x.knows(it.name)
			name = `"` + string(it.name) + `":`
		}
		if of != nil {
			value = string(knowing(t, of, it.value))
		}
		parts = append(parts, name+value)
	}
	if x.members != nil {
		parts = append(parts, `"later":{"of":["]}\"",-1.5e3,null,{"a":true}]}`)
	}
	text = []byte(string(text[:1]) + strings.Join(parts, ",") + string(text[len(text)-1:]))
	if !json.Valid(text) {
		t.Fatalf("%s", text)
	}
	return text
}

// Members that a later version has put into a record are there after this one has written it, as
// long as their object is.
func TestRecordsText_KeepsWhatALaterVersionAdds(t *testing.T) {
	const later = `"later"`
	hold := func(session string, request uint64) Row { return Row{Identity: Identity{session, request}, Token: 7} }
	p := &Partition{
		Owner: "a", Epoch: 3, Server: "s",
		Rows:   map[string]Row{"k": hold("a", 1), "l<": hold("b", 2)},
		Queues: map[string][]Waiter{"k": {{Identity: Identity{"b", 3}}, {Identity: Identity{"b", 4}, Spec: "r"}}},
	}
	p.enterNames()
	text := knowing(t, partitionShape, encodePartition(p, storedGrace{}))
	keep := func(times int) {
		t.Helper()
		now := partitionShape.keepUnknown(text, encodePartition(p, storedGrace{}))
		back, _, err := decodePartition(now)
		if err != nil || strings.Count(string(now), later) != times || string(encodePartition(back, storedGrace{})) != string(encodePartition(p, storedGrace{})) {
			t.Errorf("want %d of what is not known: %v, %s", times, err, now)
		}
	}
	if now := partitionShape.keepUnknown(text, encodePartition(p, storedGrace{})); string(now) != string(text) {
		t.Errorf("a record that nothing has changed became\n%s, was\n%s", now, text)
	}
	keep(5)
	p.Epoch, p.Rows["m"] = 4, hold("c", 1)
	keep(5)
	p.Rows["k"] = hold("c", 2) // another hold of the key
	keep(4)
	delete(p.Rows, "l<")
	keep(3)
	p.Queues["k"] = p.Queues["k"][1:]
	keep(2)
	p.Queues = nil
	keep(1)
	if got := partitionShape.keepUnknown(text, nil); got != nil {
		t.Errorf("a lost record became %s", got)
	}

	s := &Sessions{Format: "f", Server: "s", Members: map[string]Member{"a": {Expiry: 1, TTL: 1}, "b": {Expiry: 2, TTL: 1}}}
	text = append([]byte(" "), knowing(t, sessionsShape, encodeSessions(s, storedGrace{}))...)
	s.Members["a"], s.Members["c"] = Member{Expiry: 9, TTL: 1}, Member{}
	delete(s.Members, "b")
	now := sessionsShape.keepUnknown(text, encodeSessions(s, storedGrace{}))
	if strings.Count(string(now), later) != 2 || !strings.Contains(string(now), `"a":{"expiry":9,"ttl":1,"later"`) {
		t.Errorf("%s", now)
	}
}

// Names that package json takes for a known one are not kept beside that one.
func TestRecordsText_KnowsWhatJSONTakesForTheSame(t *testing.T) {
	for _, name := range []string{`OWNER`, `\u006fwner`, `\u004fwner`} {
		was := []byte(`{"` + name + `":"x","epoch":1,"server":"s"}`)
		p, g, err := decodePartition(was)
		if err != nil || p.Owner != "x" {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		p.Owner = "y"
		if now := string(partitionShape.keepUnknown(was, encodePartition(p, g))); now != `{"owner":"y","epoch":1,"server":"s"}` {
			t.Errorf("%s: %s", name, now)
		}
	}
}

// Records of today cost no allocation more.
func TestRecordsText_LooksForTheUnknownWithoutAllocations(t *testing.T) {
	was := encodeP(filled[Partition]())
	p := filled[Partition]()
	p.Epoch++
	now := encodeP(p)
	if n := testing.AllocsPerRun(100, func() { partitionShape.keepUnknown(was, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecordsText(b *testing.B) {
	p := &Partition{Epoch: 1, Server: "s", Rows: make(map[string]Row)}
	for i := range 100 {
		p.Rows["orders/"+string(rune('a'+i))] = Row{Identity: Identity{"KJSDHFKJSHDFKJHSDKFJHSDKFJ", uint64(i)}, Token: 1 << 50}
	}
	was := encodeP(p)
	p.Epoch++
	now := encodeP(p)
	b.Run("decode and encode", func(b *testing.B) {
		for b.Loop() {
			q, _, _ := decodePartition(was)
			encodeP(q)
		}
	})
	b.Run("keepUnknown", func(b *testing.B) {
		for b.Loop() {
			partitionShape.keepUnknown(was, now)
		}
	})
}
