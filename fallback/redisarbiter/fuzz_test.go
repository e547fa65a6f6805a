package redisarbiter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// liar answers in the scripts' place, as a server might whose scripts were changed.
type liar struct{ answer any }

func (l *liar) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *liar) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.lie(cmd) {
			return nil
		}
		return next(ctx, cmd)
	}
}

func (l *liar) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		lies := 0
		for _, cmd := range cmds {
			if l.lie(cmd) {
				lies++
			}
		}
		if lies == len(cmds) {
			return nil
		}
		return next(ctx, cmds)
	}
}

func (l *liar) lie(cmd redis.Cmder) bool {
	c, ok := cmd.(*redis.Cmd)
	if ok && l.answer != nil && strings.HasPrefix(strings.ToLower(c.Name()), "evalsha") {
		c.SetVal(l.answer)
		return true
	}
	return false
}

// answer makes a possible answer of a script from bytes: an integer, a text, nothing, or a list of
// those.
func answer(s *stream, depth int) any {
	switch kind := s.next(); {
	case kind < 96:
		return choose[any](s, "granted", "held", "promised", "owned", "in grace", "conflict", "stale", "lost", "ok", "dead", "alive", "", "1 2",
			"a 1 2 3", "a 1", "a b 1 2 3", " 1 2 3", "7 0 a", "18446744073709551616", "-1", "\x00 1 1 1", "99999999999 1")
	case kind < 160:
		var b [8]byte
		n := copy(b[:], s.data[:min(len(s.data), int(kind%9))])
		s.data = s.data[n:]
		return int64(binary.LittleEndian.Uint64(b[:]))
	case kind < 192 && depth < 2:
		all := []any{}
		for range s.next() % 16 {
			all = append(all, answer(s, depth+1))
		}
		return all
	case kind < 224:
		n := min(len(s.data), int(kind-192))
		text := string(s.data[:n])
		s.data = s.data[n:]
		return text
	}
	return nil
}

// FuzzAnswers: no answer of the server causes a panic, and each result without an error is a
// possible one.
func FuzzAnswers(f *testing.F) {
	client := redistest.Start(f).Client(f)
	l := &liar{}
	n := attach(f, client, shared(client))
	client.AddHook(l)
	f.Cleanup(func() { l.answer = nil })
	results := n.(fallback.ResultStore)
	for i := range byte(22) {
		f.Add([]byte{0, i})
		f.Add([]byte{160, 5, 0, i, 0, 13, 97, i, 98, 1, 99, 1, 1, 0, 15})
		f.Add([]byte{160, 9, 0, i, 0, 13, 97, i, 98, 1, 99, 1, 1, 0, 15, 0, 13, 0, i})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx := context.Background()
		l.answer = answer(&stream{data}, 0)
		if l.answer == nil {
			return
		}
		verdict := func(what string, v fallback.Verdict, err error) {
			if err == nil && (v < fallback.Granted || v > fallback.Lost) {
				t.Errorf("%s: %v of %v", what, v, l.answer)
			}
		}
		row := func(what string, r fallback.Row, err error) {
			if err == nil && r.Session == "" && r != (fallback.Row{}) {
				t.Errorf("%s: %+v of %v", what, r, l.answer)
			}
		}
		a, err := n.Lock(ctx, fallback.LockRequest{Key: "k", Me: id("a", 1), Block: 1})
		verdict("Lock", a.Verdict, err)
		row("Lock", a.Holder, err)
		g, err := n.Acquire(ctx, 0, "a", fallback.Expect{})
		verdict("Acquire", g.Verdict, err)
		for _, r := range g.Rows {
			row("Acquire", r, err)
		}
		d, err := n.Demote(ctx, 0, "a", 1, map[string]fallback.Row{"k": {Identity: id("a", 1), Token: 1}})
		verdict("Demote", d.Verdict, err)
		v, err := redisarbiter.Adopt(ctx, n, 0, "k", fallback.Row{Identity: id("a", 1), Token: 1})
		verdict("Adopt", v, err)
		v, err = redisarbiter.ReclaimOwner(ctx, n, 0, "a", 1)
		verdict("ReclaimOwner", v, err)
		v, err = results.SaveResult(ctx, 0, "k", []byte("v"), 1, time.Second)
		verdict("SaveResult", v, err)
		for _, s := range n.Verify(ctx, []fallback.Read{{Keys: []string{"k", "l"}, Busy: 1}, {Partition: 1}, {Partition: 2}}) {
			for _, r := range s.Rows {
				row("Verify", r, s.Err)
			}
			if s.Err == nil && len(s.Rows) > 2 {
				t.Errorf("Verify: %+v of %v", s, l.answer)
			}
		}
		if r, err := results.LoadResult(ctx, 0, "k"); err == nil && r.Fence == 0 && len(r.Value) > 0 {
			t.Errorf("LoadResult: a value without a fence: %+v of %v", r, l.answer)
		}
		if x, err := n.Dead(ctx, "a", fallback.Stamp{}); err == nil && x.Dead && x.Left > 0 {
			t.Errorf("Dead: %+v of %v", x, l.answer)
		}
		if x, err := n.(fallback.Burier).Bury(ctx, "a", 1, []string{"b"}); err == nil && x.Dead && (x.Left > 0 || x.Version != 0) {
			t.Errorf("Bury: %+v of %v", x, l.answer)
		}
		_, _ = n.Load(ctx, 0)
		_, _ = n.Renew(ctx, "a", fallback.Registration{TTL: time.Second})
		_, _ = n.List(ctx)
		_ = n.Unlock(ctx, []fallback.Release{{Key: "k", Identity: id("a", 1)}})
	})
}

// FuzzArguments: keys, and other texts from outside, may be any bytes. Both arbiters answer the
// same, one key is not taken for another, and nothing is left of it.
func FuzzArguments(f *testing.F) {
	client := redistest.Start(f).Client(f)
	s := plain
	for _, args := range [][4]string{
		{"k", "l", "a", "b"}, {"\x00", "\x00\x00", "{}", "}"}, {"i", "m", "r", "o"}, {"k:w:", "w:k", "ns:p0", "-"}, {"1 2 3", "a 1 2 3", "0", "-1"},
		{"\xff\xfe", "\u2028", "'; return 1 --", "]]"}, {"1e3", "1000", "0x10", "16"}, {" ", "  ", "\r\n", "\n"}, {"%s", "%d", "%%", "*"},
		{"redis", "KEYS[1]", "ARGV[2]", "nil"}, {"k ", "k", "k\x00", "k\n"}, {strings.Repeat("k", 1024), strings.Repeat("k", 1023), "a", "b"},
	} {
		f.Add(args[0], args[1], args[2], args[3], uint64(1), uint32(1))
		f.Add(args[0], args[1], args[2], args[3], uint64(1<<63+1), uint32(1<<31))
	}
	n := attachTo(f, client, cold, s)
	f.Fuzz(func(t *testing.T, key, other, session, rival string, request uint64, block uint32) {
		if key == "" || other == "" || key == other || !named(session) || !named(rival) || session == rival {
			return
		}
		ctx := context.Background()
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := redisarbiter.Reformat(ctx, n); err != nil {
			t.Fatal(err)
		}
		m, err := fallback.NewMemory().Attach(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		block = max(1, block%(1<<16))
		inRedis, inMemory := story(t, n, key, other, id(session, request), id(rival, request+1), block), story(t, m, key, other, id(session, request), id(rival, request+1), block)
		for i := range inRedis {
			if inRedis[i] != inMemory[i] {
				t.Errorf("%q, %q, %q, %q, %d, %d: Redis says\n%s\nMemory\n%s", key, other, session, rival, request, block, inRedis[i], inMemory[i])
			}
		}
		want := []string{"{ns:p0}", "{ns:p1}", "{ns:p2}", "{ns:p3}", "{ns:s}"}
		for end := time.Now().Add(time.Second); ; { // the result expires within a millisecond
			keys := client.Keys(ctx, "*").Val()
			if slices.Sort(keys); slices.Equal(keys, want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%q, %q, %q, %q: %q is left", key, other, session, rival, keys)
			}
		}
	})
}

// FuzzNamespaces: both arbiters refuse the same names. Neither the data of a namespace nor its
// events are seen in another, however alike their names are.
func FuzzNamespaces(f *testing.F) {
	client := redistest.Start(f).Client(f)
	for _, names := range [][2]string{
		{"ns", "ns:p0"}, {"a", "a:s"}, {"a:c", "a"}, {"}", "{"}, {"a}", "a"}, {"a b", "a"}, {"a\n", "\t"}, {"", "a"}, {"\x00", "\x7f"}, {"'", "\\"}, {"]]", "--"},
		{"\xff", "\xfe"}, {"\u2028", "\u00e9"}, {"*", "?"}, {"[a]", "[^a]"}, {"%s", "%d"}, {strings.Repeat("n", 128), strings.Repeat("n", 129)}, {"A", "a"},
	} {
		f.Add(names[0], names[1])
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		ctx := context.Background()
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		memory := fallback.NewMemory()
		attach := func(name string) (inRedis, inMemory fallback.Namespace) {
			s := fallback.Settings{Namespace: name, Partitions: 2, Grace: time.Hour}
			inRedis, err := redisarbiter.New(client, cold).Attach(ctx, s)
			inMemory, err2 := memory.Attach(ctx, s)
			switch {
			case err == nil && err2 == nil:
				t.Cleanup(func() { _ = errors.Join(inRedis.Close(), inMemory.Close()) })
				return inRedis, inMemory
			case !errors.Is(err, fallback.ErrRefused) || !errors.Is(err2, fallback.ErrRefused):
				t.Fatalf("%q: Redis says %v, Memory %v", name, err, err2)
			}
			return nil, nil
		}
		n, m := attach(name)
		n2, _ := attach(other)
		if n == nil || n2 == nil || name == other {
			return
		}
		me := id("a", 1) // of the other namespace, whatever a session of that name does in the first one
		if _, err := n2.Open(ctx, me.Session, fallback.Registration{TTL: time.Hour, Info: "there"}); err != nil {
			t.Fatal(err)
		}
		there, err := n2.Lock(ctx, fallback.LockRequest{Key: "k", Me: me, Block: 1})
		if err != nil || there.Verdict != fallback.Granted {
			t.Fatal(there, err)
		}
		if redisSays, memorySays := story(t, n, "k", "l", id("a", 1), id("b", 1), 1), story(t, m, "k", "l", id("a", 1), id("b", 1), 1); !slices.Equal(redisSays, memorySays) {
			t.Errorf("%q beside %q: Redis says\n%s\nMemory\n%s", name, other, redisSays, memorySays)
		}
		states := n2.Verify(ctx, []fallback.Read{{Keys: []string{"k"}}})
		if states[0].Err != nil || states[0].Rows[0].Identity != me || states[0].Rows[0].Token != there.Token {
			t.Errorf("%q beside %q: %+v", other, name, states[0])
		}
		for _, key := range client.Keys(ctx, "*").Val() {
			if inner, ok := strings.CutPrefix(key, "{"); !ok || !strings.HasPrefix(inner, name+":") && !strings.HasPrefix(inner, other+":") || strings.Count(key, "}") != 1 {
				t.Errorf("%q, %q: the key %q", name, other, key)
			}
		}
	})
}

// named reports whether a session may have the name.
func named(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// story is a lock's life by two sessions, and a partition's. It returns the answers, without epochs
// and times.
func story(t *testing.T, n fallback.Namespace, key, other string, a, b fallback.Identity, block uint32) (answers []string) {
	t.Helper()
	ctx := context.Background()
	say := func(err error, what ...any) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v: %v", what, err)
		}
		answers = append(answers, fmt.Sprintf("%q", fmt.Sprint(what...)))
	}
	for _, who := range []fallback.Identity{a, b} {
		r, err := n.Open(ctx, who.Session, fallback.Registration{TTL: time.Hour, Info: "addr " + key})
		say(err, "open", r.Alive)
	}
	all, err := n.List(ctx)
	say(err, "list", len(all.Sessions), all.Sessions[a.Session], all.Sessions[b.Session], all.Grace)
	var tokens []fallback.Token
	lock := func(key string, who fallback.Identity) {
		t.Helper()
		r, err := n.Lock(ctx, fallback.LockRequest{Key: key, Me: who, Block: block, Wait: true})
		say(err, "lock", r.Verdict, r.Holder.Identity, r.Contended, r.Token.Seq())
		if r.Verdict == fallback.Granted {
			tokens = append(tokens, r.Token)
		}
	}
	unlock := func(key string, who fallback.Identity) {
		t.Helper()
		say(errors.Join(n.Unlock(ctx, []fallback.Release{{Key: key, Identity: who}})...), "unlock")
	}
	lock(key, a)
	lock(key, b)
	lock(other, b) // is free, however like the first one it looks
	states := n.Verify(ctx, []fallback.Read{{Keys: []string{key, other}, Busy: 2}})
	say(states[0].Err, "verify", states[0].Rows[0].Identity, states[0].Rows[1].Identity, states[0].Wanted)
	unlock(key, a)
	lock(key, b)
	r, err := n.Load(ctx, 0)
	say(err, "load", r.Owner)
	own, err := n.Acquire(ctx, 0, a.Session, fallback.Expect{Epoch: r.Epoch})
	say(err, "acquire", own.Verdict, len(own.Rows), own.Rows[key].Identity, own.Rows[other].Identity)
	unlock(key, b)
	mine := fallback.Row{Identity: a, Token: fallback.MakeToken(own.Record.Epoch, block)}
	d, err := n.Demote(ctx, 0, a.Session, own.Record.Epoch, map[string]fallback.Row{key: mine})
	say(err, "demote", d.Verdict)
	states = n.Verify(ctx, []fallback.Read{{Keys: []string{key, other}}})
	say(states[0].Err, "verify", states[0].Rows[0].Identity, states[0].Rows[0].Token.Seq(), states[0].Rows[1].Identity)
	v, err := redisarbiter.Adopt(ctx, n, 0, key, mine)
	say(err, "adopt", v)
	results := n.(fallback.ResultStore)
	v, err = results.SaveResult(ctx, 0, key, []byte(other), uint64(mine.Token), time.Hour)
	say(err, "save", v)
	v, err = results.SaveResult(ctx, 0, key, []byte(key), 1, time.Hour)
	say(err, "save", v)
	one, err := results.LoadResult(ctx, 0, key)
	two, err2 := results.LoadResult(ctx, 0, other)
	say(errors.Join(err, err2), "load", string(one.Value), one.Fence == uint64(mine.Token), two.Fence)
	v, err = results.SaveResult(ctx, 0, key, nil, uint64(mine.Token), time.Millisecond)
	say(err, "save", v)
	unlock(key, a)
	unlock(other, b)
	for _, who := range []fallback.Identity{a, b} {
		say(n.CloseSession(ctx, who.Session), "close")
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("token %v after %v (I2)", tokens[i], tokens[i-1])
		}
	}
	return answers
}

// FuzzInfo: a server's INFO is read as lines, and none causes a panic.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nmaster_replid:" + strings.Repeat("a", 40) + "\r\n")
	f.Add("redis_version:6\nredis_version:\nrole:slave")
	f.Add("maxmemory_policy:allkeys-lru\n:\n::\n")
	f.Fuzz(func(t *testing.T, text string) {
		info := redisarbiter.ParseInfo(text)
		for k, v := range info {
			if strings.Contains(k, ":") || strings.ContainsAny(k+v, "\n") {
				t.Errorf("%q has %q: %q", text, k, v)
			}
		}
		guarded, err := redisarbiter.CheckInfo(info)
		if err != nil && !errors.Is(err, fallback.ErrRefused) && !errors.Is(err, redisarbiter.ErrReplica) {
			t.Error(err)
		}
		if guarded && (len(info["master_replid"]) != 40 || err != nil) {
			t.Errorf("%q is guarded, %v", text, err)
		}
	})
}
