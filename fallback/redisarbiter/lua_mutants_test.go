package redisarbiter_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

var (
	luaMutants  = flag.Bool("lua.mutants", false, "take each guard of the scripts out, and look whether the differential test notices")
	luaPatience = flag.Duration("lua.patience", 4*time.Second, "how long to look for each by random choices, when the stories are told")
	luaOthers   = flag.String("lua.others", "", "`regexp` of further tests for what the differential test does not notice")
	luaOnly     = flag.String("lua.only", "", "`regexp` of the mutants to look for")
)

// luaMutant is a file of the scripts with one guard taken out.
type luaMutant struct{ file, what, text string }

func (m luaMutant) String() string { return m.file + ".lua: " + m.what }

var (
	luaCondition = regexp.MustCompile(`^(\s*(?:if|elseif) )(.+)( then.*)$`)
	luaStatement = regexp.MustCompile(`^\s*(redis\.call|call|enter|witness|advance|save|enqueue|promised?|send)\(.*\)$`)
)

// mutate takes out of a file each condition, which becomes true and false; each operand of one; and
// each statement that only calls something.
func mutate(file string) (all []luaMutant) {
	text := redisarbiter.LuaFile(file)
	lines := strings.Split(text, "\n")
	add := func(i int, line, what string) {
		with := append(append(append([]string(nil), lines[:i]...), line), lines[i+1:]...)
		all = append(all, luaMutant{file, fmt.Sprintf("line %d: %s", i+1, what), strings.Join(with, "\n")})
	}
	for i, line := range lines {
		code, _, _ := strings.Cut(line, " -- ")
		if m := luaCondition.FindStringSubmatch(code); m != nil {
			for _, is := range []string{"true", "false"} {
				add(i, m[1]+is+m[3], fmt.Sprintf("%q is %s", m[2], is))
			}
			if parts := operands(m[2]); len(parts) > 1 {
				for j := range parts {
					rest := append(append([]operand(nil), parts[:j]...), parts[j+1:]...)
					add(i, m[1]+join(rest)+m[3], fmt.Sprintf("%q without %q", m[2], parts[j].text))
				}
			}
		} else if luaStatement.MatchString(strings.TrimSpace(code)) {
			add(i, "", fmt.Sprintf("without %q", strings.TrimSpace(code)))
		}
	}
	return all
}

// operand is one of a condition, with the operator before it.
type operand struct{ operator, text string }

func operands(cond string) (parts []operand) {
	depth, begin, operator := 0, 0, ""
	for i := 0; i < len(cond); i++ {
		switch cond[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		for _, op := range []string{" and ", " or "} {
			if depth == 0 && strings.HasPrefix(cond[i:], op) {
				parts = append(parts, operand{operator, cond[begin:i]})
				begin, operator = i+len(op), op
			}
		}
	}
	return append(parts, operand{operator, cond[begin:]})
}

func join(parts []operand) (cond string) {
	for i, p := range parts {
		if i > 0 {
			cond += p.operator
		}
		cond += p.text
	}
	return cond
}

// unnoticed are mutants that no test notices, with the reason. They are named without their lines.
var unnoticed = map[string]string{
	`lock.lua: "spec ~= ''" is true`:                                         "only spares two calls: it is about holds beside which others fit",
	`acquire.lua: "ARGV[6] == '1'" is true`:                                  "only spares a write that leaves nothing",
	`lock.lua: "ARGV[5] ~= ''" is true`:                                      "only spares a look at the key's holds",
	`lock.lua: "ARGV[6] ~= ''" is true`:                                      "only spares a look at the key's queue",
	`witness.lua: without "redis.call('HDEL', rec, 'e')"`:                    "the end of that Grace removes it as well, and until then it only counts if it is that end",
	`rules.lua: without "redis.call('HDEL', rec, 'e')"`:                      "of three the one where the clock stepped back: the same",
	`unlock.lua: "not row and grace == 0 and owner == ''" without "not row"`: "only spares a look at the queue: under a hold of the name the next one was promised the key before, or does not fit",
	`process.lua: "not told" is true`:                                        "only spares a call: the server tells the same twice",

	`renew.lua: "OPENED and grace == 0 and math.floor(now / 1000) % 16 == 0" without "grace == 0"`: "only spares a look at the sessions: none is swept in Grace",
	`renew.lua: "needs < length(' grace=') and grace == 0" without "grace == 0"`:                   "only spares a look at the sessions: no Grace is lowered in Grace",
	`round.lua: "is and is ~= f[6]" without "is ~= f[6]"`:                                          "only spares a command",
	`round.lua: "ARGV[14] ~= '1' or name == '' or not complete()" without "name == ''"`:            "only spares a look at the sessions: the one that asks has not spoken",
	`restore.lua: "string.byte(field, -1) == 255" is true`:                                         "only spares a call: enterName looks as well",
	`mark.lua: without "enter()"`:                                                                  "only later: the session that opens next sees the other server",

	`renew.lua: "answer[4] <= tonumber(ARGV[10])" is false`: usual,

	// Without these the usual case takes the way of the others, which is slower and does the same,
	// by the same commands.
	`many.lua: "f[1] == server" is false`:                                                                                         usual,
	`many.lua: "byte(m, e + 1) == 48 or (last and find(m, last, e, true) == e)" is false`:                                         usual,
	`many.lua: "byte(m, e + 1) == 48 or (last and find(m, last, e, true) == e)" without "byte(m, e + 1) == 48"`:                   usual,
	`many.lua: "byte(m, e + 1) == 48 or (last and find(m, last, e, true) == e)" without "(last and find(m, last, e, true) == e)"`: usual,
	`many.lua: "g" is false`:    usual,
	`many.lua: "not g" is true`: usual,
	`state.lua: "string.byte(name, -1) ~= 255 or string.byte(name, -2) ~= 0" is false`:                               usual,
	`state.lua: "string.byte(name, -1) ~= 255 or string.byte(name, -2) ~= 0" without "string.byte(name, -1) ~= 255"`: usual,
	`state.lua: "string.byte(name, -1) ~= 255 or string.byte(name, -2) ~= 0" without "string.byte(name, -2) ~= 0"`:   usual,

	`rules.lua: "clock > 2147483647 or (epoch > 0 and clock > epoch + 315360000)" without "clock > 2147483647"`: "no test has a server whose clock says 2068 " +
		"and which has lost the record",
}

const usual = "it is only slower"

// onAllPatiently has a replica that may be slow to answer.
var onAllPatiently = &redisarbiter.Options{ColdStart: true, AllReplicas: 1, ReplicaTimeout: 10 * time.Second}

// luaTable are the files that are about the table of sessions.
var luaTable = regexp.MustCompile(`^(sessions|round|renew)$`)

var luaLine = regexp.MustCompile(`line \d+: `)

// TestLuaMutants takes out one guard of the scripts after another. Each time the scripts and Memory
// have to differ, or the tests that -lua.others names have to fail.
func TestLuaMutants(t *testing.T) {
	if !*luaMutants {
		t.Skip("only with -lua.mutants: it takes minutes")
	}
	only := regexp.MustCompile(*luaOnly)
	for _, file := range redisarbiter.LuaFiles() {
		for _, m := range mutate(file) {
			if !only.MatchString(m.String()) {
				continue
			}
			t.Run(m.String(), func(t *testing.T) {
				defer redisarbiter.ReplaceLua(m.file, m.text)()
				begin := time.Now()
				by := differs(t, cold)
				if by == "" {
					by = differs(t, observed)
				}
				if by == "" && luaTable.MatchString(m.file) {
					by = differs(t, onAllPatiently)
				}
				if by == "" && *luaOthers != "" {
					by = othersNotice(t, m)
				}
				switch why := unnoticed[luaLine.ReplaceAllString(m.String(), "")]; {
				case by != "":
					t.Logf("noticed after %v: %s", time.Since(begin).Round(time.Millisecond), by)
				case why != "":
					t.Skip("not noticed: " + why)
				default:
					t.Error("not noticed")
				}
			})
		}
	}
}

// differs runs operations on both until they differ. It returns how they do, or nothing.
func differs(t *testing.T, opts *redisarbiter.Options) string {
	var args []string
	if opts == onAllPatiently {
		args = always
	}
	s := redistest.Start(t, args...)
	x := &twins{client: s.Client(t), onAll: opts == onAllPatiently}
	if x.onAll {
		follow(t, s, args...)
	}
	ctx := t.Context()
	var err error
	if x.redis, err = redisarbiter.New(x.client, opts).Attach(ctx, diffSettings); err != nil {
		return err.Error()
	}
	defer x.redis.Close()
	if x.long.redis, err = redisarbiter.New(x.client, opts).Attach(ctx, longSettings); err != nil {
		return err.Error()
	}
	defer x.long.redis.Close()
	x.heard = x.client.PSubscribe(ctx, "{ns:c}:*")
	defer x.heard.Close()
	if _, err := x.heard.Receive(ctx); err != nil {
		return err.Error()
	}
	for _, story := range stories {
		if opts == observed || opts == onAllPatiently && !ofTable(story.name) {
			continue // it is about the server's clock
		}
		x.deck = []move{story.move}
		for range 3 { // one of them within a second
			if by := x.noticed(ctx, []byte{0}); by != "" {
				return story.name + ": " + by
			}
		}
	}
	choices := rand.New(rand.NewPCG(1, 0))
	for begin := time.Now(); time.Since(begin) < *luaPatience; {
		data := x.random(choices)
		if x.onAll {
			x.deck = aboutSessions
		}
		if by := x.noticed(ctx, data); by != "" {
			return by
		}
	}
	return ""
}

// noticed returns how the twins differ after the moves that the bytes stand for, or nothing if they
// do not or it took too long. A mutant may wait for ever; a slow machine takes long for all moves,
// not for some.
func (x *twins) noticed(ctx context.Context, data []byte) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := x.hear(ctx); err != nil {
		return err.Error()
	}
	begun := time.Now()
	difference, err := x.run(data)
	if err != nil {
		return err.Error()
	}
	if end := time.Now(); difference != "" && end.Unix() == begun.Unix() && end.Sub(begun) < fallback.PromiseFor/2 {
		first, _, _ := strings.Cut(difference, "\n")
		return first
	}
	return ""
}

// luaEnv makes TestMain replace a file: its name, and the file with the new text.
const luaEnv = "HOLDFAST_TEST_LUA"

// othersNotice runs other tests of this package in another process, with the mutant. It returns the
// first that fails.
func othersNotice(t *testing.T, m luaMutant) string {
	file := t.TempDir() + "/" + m.file + ".lua"
	if err := os.WriteFile(file, []byte(m.text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, short := range []string{"true", "false"} { // those that take long only if no other one fails
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+*luaOthers, "-test.skip=TestLuaMutants|TestMemoryAndRedis",
			"-test.failfast", "-test.timeout=5m", "-test.short="+short)
		cmd.Env = append(os.Environ(), luaEnv+"="+m.file+" "+file)
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if m := regexp.MustCompile(`--- FAIL: (\S+)`).FindSubmatch(out); m != nil {
			return string(m[1])
		}
		return "the tests end with " + err.Error()
	}
	return ""
}

// mutateByEnvironment is for the process that othersNotice starts.
func mutateByEnvironment() {
	if name, path, ok := strings.Cut(os.Getenv(luaEnv), " "); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		redisarbiter.ReplaceLua(name, string(text))
	}
}

// TestOperands checks that conditions are taken apart where they are.
func TestOperands(t *testing.T) {
	for cond, parts := range map[string]int{"a": 1, "a and b": 2, "a and (b or c) or not d": 3, "f(a and b)": 1} {
		if got := operands(cond); len(got) != parts || join(got) != cond {
			t.Errorf("%q: %+v", cond, got)
		}
	}
}
