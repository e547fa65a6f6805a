package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// whole is the repository, which is read once.
var whole = sync.OnceValues(func() (*repository, error) {
	root, err := repo.Root()
	if err != nil {
		return nil, err
	}
	return read(root)
})

func theRepository(t *testing.T) *repository {
	t.Helper()
	r, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pageOf(t *testing.T, name string) (string, error) {
	t.Helper()
	var page strings.Builder
	err := theRepository(t).show(&page, name)
	return page.String(), err
}

// `make rule` shows the keepers of a rule or an invariant, its transcripts and stories, and the
// tests that name it. It also shows where the simulation and the model look for it. It shows no
// page of tests that only name it in a message.
func TestMakeRule(t *testing.T) {
	for name, wants := range map[string][]string{
		"7":  {"**A remote hold is valid**", ") deadlines(h *hold)", "adoption_is_refused: ", "rule07_a_remote_hold", "TestStep_Refuses: ", "guard.go:"},
		"8":  {"not implemented: the first is that the session was seen dead (rule 2)", "FuzzWorld", "Without DeadBeforeEvictHold: I1", "the_dead_are_buried: "},
		"13": {"an_owner_asks: ", "rule04_a_holder_out_of_reach: "},
		"I3": {"**I3**", "fallback/sessions.go:", "coord/options.go:", "TestSessionLivesForItsTime", "internal/sim/invariants.go:", "internal/model/"},
		"I7": {"**I7**", "grace_owner_reclaims: "},
		"I5": {"none: see the functions above", "'TestInvariants_CanFail$/^(I5)$' ./internal/model", "Without DemoteReplaces: I1", "TestScenarios$/^a.grant.on.its.way.is.not.denied$'",
			"rows_come_first: "},
		"I8": {"TestProgress$/^(Doubt|Unserved|EvictDead)$", "TestCircles", "rule13_doubt: "},
		"1":  {"./internal/lease/leasetest/turn_test.go:", "TestScenarios$/^a.short.hold.ends.in.time$' ./internal/sim"},
		"4":  {"Without SteppedRemote: I1: two nodes hold the key", "guard.go:", "the_clock_steps: "},
		"14": {"none of its own", "a_stream_ends: "},
		"I2": {"Without StreamGenerations: I2", "TestRewinds_Guards$/^(Witness|WitnessNext)$", "rule16_a_new_block_is_a_new_hold: "},
		"E2": {"a Grace that was seen is ended, and not the next", "GraceNamed"},
		"G6": {"/^a.killed.node.s.keys.are.locked.again.soon$'"},
		"G4": {"kept by (docs/takeover.md)\ninternal/guardians/ward.go:", "AnnounceCapped"},
		"G5": {"**Vote.**", ") Look(now Instant)", "TestGuardian_VotesWhenItsPromiseHasPassed", "TestGuardians_EachGuardPrevents$/^(VoteAfterPromise|VoteIsFinal|RestartIsAnother)$", "Mutants$/^(VoteLate|VoteFinal|Resumed)$"},
		"E3": {"**E3**", "kept by (docs/adr/0023", "RoundOld", "coord/flights.go:", "TestRounds_EachGuardPrevents$/^(RoundOld|"},
		"E7": {"fallback/redisarbiter/variant.go:", "TestAllReplicas_Promoted"},
	} {
		text, err := pageOf(t, name)
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it does not show %q:\n%s", name, want, text)
			}
		}
		if strings.Contains(text, storiesDir) != strings.Contains(text, "-run 'TestGuards$") {
			t.Errorf("%s: it names the directory of the stories of TestGuards, or has one of these, and not both:\n%s", name, text)
		}
	}
	if text, err := pageOf(t, "8"); err != nil || strings.Contains(text, " more (by grant)") {
		t.Errorf("8: %v: tests that do not use the world of FuzzWorld:\n%s", err, text)
	}
	if text, err := pageOf(t, "I1"); err != nil || strings.Count(text, "\n") > 100 || strings.Contains(text, "coord/guards.go") {
		t.Errorf("I1: %v: %d lines:\n%s", err, strings.Count(text, "\n"), text)
	}
	for _, name := range []string{"18", "0", "01", "I9", "I", "X1", "1.", "."} {
		if text, err := pageOf(t, name); err == nil || text != "" || !strings.Contains(err.Error(), "There is no rule "+name+":") {
			t.Errorf("of a rule that does not exist, %s, it shows %q: %v", name, text, err)
		}
	}
}

// The Makefile runs this command.
func TestMakeRule_Runs(t *testing.T) {
	takes.Seconds(t)
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	show := func(variable string) (string, error) {
		c := exec.CommandContext(t.Context(), "make", "-s", "rule", variable)
		c.Dir = filepath.Join("..", "..", "..")
		c.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=") // not the flags of a make that runs this test
		var told strings.Builder
		c.Stderr = &told
		text, err := c.Output()
		if err != nil {
			return told.String(), err
		}
		return string(text), nil
	}
	page, err := pageOf(t, "7")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := show("RULE=7"); err != nil || text != page { // which N is by default
		t.Errorf("%v: %s", err, text)
	}
	if text, err := show("N=18"); err == nil || !strings.Contains(text, "There is no rule 18") {
		t.Errorf("of a rule that does not exist it shows %q", text)
	}
}

var (
	ran     = regexp.MustCompile(`^go test (?:-tags [a-z,]+ )?(?:-v )?-run '([^/']+)(?:/([^/']+))?' \./(\S+)(?: -model\.deep)?$`)
	oneOf   = regexp.MustCompile(`^\^\((.*)\)\$$`)
	top     = regexp.MustCompile(`^func ((?:Test|Fuzz)\w+)\(`)
	guarded = regexp.MustCompile(`(?m)^internal/(?:guard/guard|model/guard|model/takeover/(?:guardians|rounds|endings))\.go:\d+:\t([A-Z]\w+) .*//`)
)

// Each rule has a test or a transcript. Each test, guard, scenario and transcript that a command of
// `make rule` is to run is there.
func TestMakeRule_WhatItRunsIsThere(t *testing.T) {
	tests := make(map[string][]string) // by directory
	for _, m := range theRepository(t).lines(theRepository(t).files, "func ", top) {
		if isTest(m.file) {
			tests[path.Dir(m.file)] = append(tests[path.Dir(m.file)], top.FindStringSubmatch(m.text)[1])
		}
	}
	for _, of := range []struct {
		kind string
		most int
	}{{"", 17}, {"I", 8}, {"G", 8}, {"E", 8}} {
		for n := range of.most {
			name := fmt.Sprint(of.kind, n+1)
			t.Run(name, func(t *testing.T) {
				text, err := pageOf(t, name)
				if err != nil {
					t.Fatal(err)
				}
				var commands []string
				for line := range strings.Lines(text) {
					if strings.HasPrefix(line, "go test ") {
						commands = append(commands, strings.TrimSpace(line))
						finds(t, tests, strings.TrimSpace(line))
					}
				}
				if len(commands) == 0 {
					t.Errorf("nothing runs:\n%s", text)
				}
				all := strings.Join(commands, "\n")
				for _, m := range guarded.FindAllStringSubmatch(text, -1) {
					if !regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(all) && !strings.Contains(all, "'TestGuards$'") {
						t.Errorf("no command takes guard %s away:\n%s", m[1], all)
					}
				}
			})
		}
	}
}

// finds expects that each alternative of a command's pattern is there.
func finds(t *testing.T, tests map[string][]string, command string) {
	t.Helper()
	m := ran.FindStringSubmatch(command)
	if m == nil {
		t.Errorf("what does this run? %s", command)
		return
	}
	expect(t, command, m[1], tests[m[3]])
	if m[2] == "" {
		return
	}
	var parts []string
	r, test := theRepository(t), strings.TrimSuffix(m[1], "$")
	switch test {
	case "TestTranscripts":
		for _, file := range r.in(m[3] + "/testdata/*.txt") {
			parts = append(parts, strings.TrimSuffix(path.Base(file), ".txt"))
		}
	case "TestScenarios":
		parts = firsts(regexp.MustCompile(`(?m)^\t\{"([^"]+)"`), r.text[m[3]+"/scenarios.go"])
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], " ", "_")
		}
	case "TestMutants":
		parts = firsts(regexp.MustCompile(`(?m)^\t(\w+) += true`), r.text["internal/guard/guard.go"])
	default: // the rows of a table
		for _, file := range r.in(m[3] + "/*_test.go") {
			_, body, _ := strings.Cut(r.text[file], "\nfunc "+test+"(")
			body, _, _ = strings.Cut(body, "\n}\n")
			parts = append(parts, firsts(regexp.MustCompile(`(?m)^\t\t\{(\w+), `), body)...)
		}
	}
	expect(t, command, m[2], parts)
}

// expect looks for each alternative of a pattern.
func expect(t *testing.T, command, pattern string, names []string) {
	t.Helper()
	alternatives := []string{pattern}
	if m := oneOf.FindStringSubmatch(pattern); m != nil {
		alternatives = strings.Split(m[1], "|")
		for i, a := range alternatives {
			alternatives[i] = "^" + a + "$"
		}
	}
	for _, a := range alternatives {
		if !slices.ContainsFunc(names, regexp.MustCompile(a).MatchString) {
			t.Errorf("there is no %s: %s", a, command)
		}
	}
}

func firsts(what *regexp.Regexp, text string) (all []string) {
	for _, m := range what.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
