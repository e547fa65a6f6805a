package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
)

// keyOf returns a key of a node's own.
func keyOf(t *testing.T, c *coord.Coordinator) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("order-", i)
		if n, ok := c.Owner(key); ok && n.Self {
			return key
		}
	}
	t.Fatal("it owns none")
	return ""
}

// An operator finds the stuck lock, frees it, and takes a node out of service.
func TestCommands_AtThreeInTheMorning(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	key := keyOf(t, anna)
	l, err := berta.Lock(coord.WithLabel(t.Context(), "\x1b[31mcheckout"), key)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		l, err := anna.Lock(t.Context(), key)
		if err == nil {
			err = l.Unlock()
		}
		next <- err
	}()
	await.Until(t, "a caller waits", func() bool { return anna.Stats().Waiting == 1 })

	top := decode[coord.KeyList](n, "top")
	if len(top.Keys) != 1 || top.Keys[0].Key != key || top.Keys[0].Holder.Name != "berta" || top.Keys[0].Waiters != 1 {
		t.Errorf("top: %+v", top)
	}
	locks := decode[coord.KeyList](n, "locks")
	if len(locks.Keys) != 1 || locks.Keys[0].Fence != l.Fence() {
		t.Errorf("locks: %+v", locks)
	}
	if locks = decode[coord.KeyList](n, "locks", "anna"); len(locks.Keys) != 0 {
		t.Errorf("locks of anna: %+v", locks)
	}
	info := decode[coord.KeyInfo](n, "inspect", key)
	if info.Holder == nil || info.Holder.Fence != l.Fence() || info.Owner.Name != "anna" || len(info.Waiters) != 1 {
		t.Errorf("inspect: %+v", info)
	}
	where := decode[struct {
		Partition uint32
		Record    string
	}](n, "key", key)
	if where.Partition != info.Partition || where.Record != fmt.Sprintf("{holdfast:p%d}", info.Partition) {
		t.Errorf("key: %+v", where)
	}
	all := decode[struct{ Nodes []nodeView }](n, "nodes")
	if len(all.Nodes) != 2 || all.Nodes[0].Report == nil || all.Nodes[0].Report.Owned+all.Nodes[1].Report.Owned != 31 {
		t.Errorf("nodes: %+v", all)
	}
	if parts := decode[[]coord.PartitionInfo](n, "partitions"); len(parts) != 31 || parts[0].Owner == nil {
		t.Errorf("partitions: %+v", parts)
	}

	// Text for people has no escape sequences of others in it.
	for _, args := range [][]string{{"top"}, {"locks"}, {"inspect", key}, {"nodes"}, {"partitions"}, {"partitions", "--all"}, {"key", key}} {
		out := n.start(args...).want(0)
		if strings.Contains(out, "\x1b") || len(strings.Split(out, "\n")) < 3 {
			t.Errorf("%v: %q", args, out)
		}
	}
	await.Until(t, "doctor names the holder", func() bool {
		out := n.start("doctor", "--long-wait", "100ms").want(0)
		return strings.Contains(out, fmt.Sprintf("1 caller waits for key %q", key)) && strings.Contains(out, "it is held by berta (") &&
			strings.Contains(out, `checkout", for `)
	})
	out := n.start("inspect", key).want(0)
	freeing := fmt.Sprintf("holdfast break '%s' --fence %v --reason WHY", key, l.Fence())
	if !strings.Contains(out, freeing) {
		t.Errorf("inspect does not say how to free it: %s", out)
	}

	if out := n.start("break", key, "--reason", "x").want(1); !strings.Contains(out, freeing) || l.Context().Err() != nil {
		t.Errorf("break without a token: %s", out)
	}
	n.start("break", key, "--fence", "1", "--reason", "x").want(1)
	n.start("break", key, "--fence", l.Fence().String()).want(1) // without a reason
	n.start("break", key, "--fence", l.Fence().String(), "--reason", "ticket 8123").want(0)
	if err := l.Unlock(); err == nil || !strings.Contains(err.Error(), "ticket 8123 (op)") {
		t.Errorf("its holder was told %v", err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	n.start("drain", "nobody").want(1)
	r := decode[coord.NodeReport](n, "drain", "anna", "--reason", "maintenance")
	if r.Owned != 0 || anna.Stats().Owned != 0 {
		t.Errorf("drain: %+v", r)
	}
	if out := n.start("doctor").want(0); !strings.Contains(out, "Drain was called") {
		t.Errorf("doctor: %s", out)
	}
	if out := n.start("__complete", "drain", "").want(0); !strings.Contains(out, "anna\nberta\n") {
		t.Errorf("completion: %s", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := n.start("completion", shell).want(0); len(out) < 1000 {
			t.Errorf("%s: %q", shell, out)
		}
	}
}

// Readers that are stuck, and permits, are found and freed as locks are.
func TestCommands_ReadersAndPermits(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	key := keyOf(t, anna)
	r, err := berta.RLock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := anna.Semaphore(key, 3).Acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if top := n.start("top").want(0); !strings.Contains(top, "MODE") || !strings.Contains(top, "2 of 3 permits") || strings.Contains(top, `\x00`) {
		t.Errorf("top: %s", top)
	}
	for _, flags := range [][]string{nil, {"--permits"}} {
		info := decode[coord.KeyInfo](n, append([]string{"inspect", key}, flags...)...)
		if len(info.Shared) != 1 || info.Holder != nil || info.Key != key {
			t.Fatalf("inspect %v: %+v", flags, info)
		}
		freeing := fmt.Sprintf("--fence %v --reason WHY", info.Shared[0].Fence)
		if out := n.start(append([]string{"inspect", key}, flags...)...).want(0); !strings.Contains(out, freeing) || strings.Contains(out, "free\n") {
			t.Errorf("inspect %v: %s", flags, out)
		}
		n.start(append([]string{"break", key, "--fence", info.Shared[0].Fence.String(), "--reason", "x"}, flags...)...).want(0)
	}
	if err := errors.Join(r.Unlock(), p.Release()); !errors.Is(err, coord.ErrLost) || strings.Count(err.Error(), "broken") != 2 {
		t.Errorf("they were told %v", err)
	}
}

// Of a block of permits that callers use in part, inspect says how many are free, and how many
// callers there are.
func TestInspect_PermitsOfABlockInPart(t *testing.T) {
	n := newNamespace(t)
	anna := n.open(&coord.Options{
		Name: "anna", Handoff: coord.Handoff{Linger: time.Minute},
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 400 * time.Millisecond},
	})
	settled(t, anna)
	s := anna.Semaphore("reports", 40)
	take := func(n int) coord.Permits {
		p, err := s.Acquire(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := take(10).Release(); err != nil {
		t.Fatal(err)
	}
	two, five := take(2), take(5)
	out := n.start("inspect", "reports", "--permits").want(0)
	for _, columns := range []string{"MODE FREE CALLERS HELD", "10 of 40 permits 3 2 "} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), columns) {
			t.Errorf("%q is not in %s", columns, out)
		}
	}
	if err := errors.Join(two.Release(), five.Release()); err != nil {
		t.Error(err)
	}
	r, err := anna.RLock(t.Context(), "reports")
	if err != nil {
		t.Fatal(err)
	}
	if out := n.start("inspect", "reports").want(0); strings.Contains(out, "FREE") {
		t.Errorf("readers have permits: %s", out)
	}
	if err := r.Unlock(); err != nil {
		t.Error(err)
	}
}

// diagnosis runs doctor, and checks its status and that a finding of that level has the text and
// the advice.
func (n *namespace) diagnosis(status int, level, what, text, do string, args ...string) {
	n.t.Helper()
	x := n.start(append([]string{"doctor"}, args...)...)
	out := x.want(status)
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, strings.ToUpper(level)) && strings.Contains(line, what+": ") && strings.Contains(line, text) &&
			(do == "" || strings.Contains(lines[i+1], do)) {
			return
		}
	}
	n.t.Errorf("no finding %q %q with %q and %q in\n%s%s", level, what, text, do, out, x.err.String())
}

// Each cause is named, with advice.
func TestDoctor(t *testing.T) {
	n := newNamespace(t)
	n.diagnosis(1, "fail", "namespace", "there is no namespace", "--namespace")
	n.diagnosis(1, "fail", "arbiter", "does not answer", "check --url", "--timeout", "500ms", "--url", "redis://:hidden@127.0.0.1:1")
	anna := n.node("anna")
	settled(t, anna)
	for _, what := range []string{"arbiter", "namespace", "settings", "permissions", "clock", "memory", "server", "partitions", "node anna", "locks"} {
		n.diagnosis(0, "ok", what, "", "")
	}
	if all := decode[[]finding](n, "doctor"); len(all) < 8 {
		t.Errorf("%+v", all)
	}
	set := func(name, value string) {
		t.Helper()
		if err := n.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory-policy", "allkeys-lru")
	set("maxmemory", "100mb")
	n.diagnosis(1, "fail", "settings", "allkeys-lru", "do what the error says")
	n.diagnosis(1, "ok", "node anna", "", "")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1mb")
	n.diagnosis(1, "fail", "memory", "noeviction", "raise maxmemory")
	n.diagnosis(1, "ok", "locks", "", "") // also then the nodes can be looked at
	set("maxmemory", "0")
	for user, rules := range map[string][]any{
		"stranger": {"on", ">p", "+@all", "~other*", "&*"}, "deaf": {"on", ">p", "+@all", "~*", "resetchannels"},
		"reader": {"on", ">p", "~*", "&*", "+@read", "+@connection", "+info", "+time"},
	} {
		args := append([]any{"acl", "setuser", user}, rules...)
		if err := n.client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	as := func(user string) []string { return []string{"--url", "redis://" + user + ":p@" + n.server.Addr} }
	n.diagnosis(1, "fail", "arbiter", "WRONGPASS", "user and password", "--url", "redis://deaf:wrong@"+n.server.Addr)
	n.diagnosis(1, "fail", "namespace", "", "", as("stranger")...)
	n.diagnosis(1, "fail", "messages", "", "SUBSCRIBE", as("deaf")...)
	n.diagnosis(1, "fail", "settings", "", "", as("reader")...)
	n.diagnosis(1, "fail", "observer", "NOPERM", "README has the ACL", as("reader")...)
	n.diagnosis(1, "fail", "observer", "no such file", "do what the error says", "--peer-keys", "/no/such/file")
	n.open(&coord.Options{Name: "loner"})
	n.diagnosis(0, "warn", "processes", "such as loner", "set Cluster in all")
}

// A candidate that waits for a leader's key is not stuck, and does not hide a caller that is.
func TestDoctor_CandidatesAreNotStuck(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	defer berta.ExpectLong("leader")()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer func() { cancel(); work.Wait() }()
	waits := func(key string) {
		t.Helper()
		l, err := anna.Lock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Unlock() })
		work.Go(func() { _, _ = berta.Lock(ctx, key) })
		await.Until(t, "it has waited for 200 ms", func() bool {
			list, err := berta.Top(t.Context(), 10, coord.LongestWait)
			i := slices.IndexFunc(list.Keys, func(k coord.KeySummary) bool { return k.Key == key })
			return err == nil && i >= 0 && !list.Keys[i].Waiting.IsZero() && time.Since(list.Keys[i].Waiting) > 200*time.Millisecond
		})
	}
	waits("leader")
	n.diagnosis(0, "ok", "locks", "no caller waits for 100ms", "", "--long-wait", "100ms")
	if out := n.start("top", "--by", "wait").want(0); !strings.Contains(out, "(expected)") {
		t.Errorf("top: %s", out)
	}
	waits("stuck")
	n.diagnosis(0, "warn", "locks", `1 caller waits for key "stuck"`, "", "--long-wait", "100ms")
}

// A lock that is held on and on is told of, also where each caller that wants it gives up before
// its wait is long.
func TestDoctor_CallersGiveUp(t *testing.T) {
	n := newNamespace(t)
	anna, berta := n.node("anna"), n.node("berta")
	settled(t, anna, berta)
	for i := range mostWanted + 1 { // held for longer, and none wants them
		quiet, err := berta.Lock(t.Context(), fmt.Sprint("quiet ", i))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = quiet.Unlock() }()
	}
	l, err := anna.Lock(coord.WithLabel(t.Context(), "export"), "stuck")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := berta.Lock(ctx, "stuck"); !errors.Is(err, coord.ErrLocked) {
		t.Fatal(err)
	}
	await.Until(t, "doctor says so", func() bool {
		out := n.start("doctor", "--long-wait", "100ms").want(0)
		return strings.Contains(out, `WARN  locks: key "stuck" has been held for `) && strings.Contains(out, `, label "export"; others have wanted it since`) &&
			!strings.Contains(out, `key "quiet`)
	})
	if out := n.start("top", "--by", "wanted").want(0); !strings.Contains(out, "stuck") || strings.Contains(out, "quiet") {
		t.Errorf("top: %s", out)
	}
	// A holder that expects callers to wait is no trouble.
	defer anna.ExpectLong("stuck")()
	if out := n.start("doctor", "--long-wait", "100ms").want(0); strings.Contains(out, "has been held for") {
		t.Errorf("doctor of a hold that is expected: %s", out)
	}
}

// Nodes with different keys refuse each other. Both are named, and why.
func TestDoctor_NodesThatRefuseEachOther(t *testing.T) {
	n := newNamespace(t)
	keys := map[string][]byte{"anna": bytes.Repeat([]byte("a"), 32), "berta": bytes.Repeat([]byte("b"), 32)}
	for _, name := range []string{"anna", "berta"} {
		n.open(&coord.Options{Name: name, Cluster: &coord.Cluster{
			Membership: gossip.Start, Gossip: "127.0.0.1:0", PeerKeys: [][]byte{keys[name]}, Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond,
		}})
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(keys["anna"])), 0o600); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "doctor names both", func() bool {
		out := n.start("doctor", "--peer-keys", file).want(1)
		return strings.Contains(out, "FAIL  node anna: it and berta refuse each other: ") && strings.Contains(out, "shared keys") &&
			strings.Contains(out, "FAIL  node berta: it has another key in Cluster.PeerKeys than this command: ")
	})
}

// A node whose process stands still, and one whose port does not answer, are told apart.
func TestDoctor_ANodeThatDoesNotAnswer(t *testing.T) {
	n := newNamespace(t)
	anna := n.node("anna")
	settled(t, anna)
	// A session that a process has left behind, with the address of a port that takes connections,
	// and of one that does not.
	a := &settings{url: "redis://" + n.server.Addr, namespace: "holdfast"}
	arb, err := a.arbiter()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = arb.close() }()
	found, err := arb.Describe(t.Context(), "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := arb.Attach(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for name, addr := range map[string]string{"frozen": n.server.Addr, "gone": "127.0.0.1:1"} {
		info := fmt.Sprintf("name=%s&n=%s/1&p=%s&k=key&q=1&h=pluto&pid=7", name, name, addr)
		if _, err := ns.Open(t.Context(), name, fallback.Registration{TTL: time.Minute, Info: info}); err != nil {
			t.Fatal(err)
		}
	}
	n.diagnosis(1, "warn", "locks", "2 processes could not be asked", "see what is said of the nodes")
	n.diagnosis(1, "fail", "node frozen", "does not answer", "its port is open")
	n.diagnosis(1, "fail", "node gone", "does not answer", "no process listens at its port 127.0.0.1:1,")
	_ = n.start("nodes").want(0)
}

func TestDial(t *testing.T) {
	for text, good := range map[string]bool{
		"redis://h": true, "rediss://u:p@h:1/2": true, "unix:///run/redis.sock": true, "redis+cluster://a:1?addr=b:2": true,
		"redis+sentinel://h:26379?master_name=m": true, "redis+sentinel://h:26379/?master_name=m&addr=i:26379": true,
		"postgres://op:secret@h/shop?table=hf.locks": true, "postgres://op@h:port/shop": false, "sqlite://" + os.Args[0]: true,
		"mysql://op:s%40/c?ret@h/shop?table=hf.locks&timeout=2s": false, "mysql://op:secret%40%2F@h/shop?table=hf.locks&timeout=2s": true,
		"mysql://op:secret@h/shop?timeout=x": false, "sqlite://file": false, "sqlite:///no/such/file": false,
		"http://h": false, "redis+other://h": false, "\x00": false, "": false, "h:6379": false,
	} {
		a, err := (&settings{url: text}).arbiter()
		if (err == nil) != good || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil {
			_ = a.close()
		}
	}
	a, err := (&settings{url: "redis+cluster://a:1?addr=b:2"}).arbiter()
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := a.redis.(*redis.ClusterClient); !ok || len(x.Options().Addrs) != 2 {
		t.Errorf("%T", a.redis)
	}
}

// A URL of PostgreSQL goes to pgx as it is, but for the table and mute: to it, as to libpq, + is no
// space.
func TestPostgresConfig(t *testing.T) {
	const query = "options=-c%20search_path%3Dhf%20-c%20timezone%3DEtc/GMT%2B3&application_name=a+b;c"
	for _, text := range []string{query + "&table=hf.%22my%20locks%22", "table=hf.%22my%20locks%22&" + query + "&mute=true"} {
		u, err := url.Parse("postgres://op@h/shop?" + text)
		if err != nil {
			t.Fatal(err)
		}
		config, o, err := postgresConfig(*u)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p := config.ConnConfig.RuntimeParams
		if p["options"] != "-c search_path=hf -c timezone=Etc/GMT+3" || p["application_name"] != "a+b;c" || len(p) != 2 || o.Table != `hf."my locks"` || o.Mute != strings.Contains(text, "mute") {
			t.Errorf("%s: %v, %+v", text, p, o)
		}
	}
	if _, _, err := postgresConfig(url.URL{Scheme: "postgres", Host: "h", RawQuery: "mute=x"}); err == nil {
		t.Error("mute=x is taken")
	}
}

// The advice that frees a key can be pasted: the shell passes the key on as it is, and runs nothing
// that is in it.
func TestFreeing_RunsNothing(t *testing.T) {
	dir := t.TempDir()
	for _, key := range []string{
		"order/8123", "$(touch made)", "`touch made`", "$HOME", "it's; touch made #", `"; touch made; "`, `a\b`, "'", "a b", "!!", "-n", "--help", "*", "~", "ä", " ",
	} {
		line, ok := strings.CutPrefix(freeing(key, " --permits", 7), "to free it: holdfast break")
		if !ok {
			t.Errorf("%q: %s", key, line)
			continue
		}
		shell := exec.Command("sh", "-c", `holdfast() { for word; do printf '<%s>' "$word"; done; }; holdfast `+line)
		shell.Dir = dir
		out, err := shell.CombinedOutput()
		want := "<" + key + "><--permits><--fence><7><--reason><WHY>"
		if strings.HasPrefix(key, "-") {
			want = "<--permits><--fence><7><--reason><WHY><--><" + key + ">"
		}
		if err != nil || string(out) != want {
			t.Errorf("%q: the shell passes %s, %v, want %s", key, out, err, want)
		}
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("a command in a key was run: %v, %v", made, err)
	}
	for _, key := range []string{"a\nb", "\x1b[2J", "\xff", "\u202e"} {
		if text := freeing(key, "", 7); strings.ContainsAny(text, "'\"\n\x1b") || !utf8.ValidString(text) || !strings.Contains(text, "--fence 7 --reason WHY") {
			t.Errorf("%q: %q", key, text)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, out := range map[string]string{"sku/1 ä": "sku/1 ä", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, "\u202e": `"\u202e"`} {
		if got := printable(in); got != out {
			t.Errorf("%q: %s, want %s", in, got, out)
		}
	}
}
