package snippets

import (
	"os/exec"
	"strings"
	"testing"
)

// `make rule` shows what keeps a rule or an invariant, its transcripts and stories, the tests that name it and where the simulation and the model
// look for it. It shows no page of tests that only name it in a message.
func TestMakeRule(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	show := func(name string) (string, error) {
		c := exec.CommandContext(t.Context(), "make", "-s", "rule", "N="+name)
		c.Dir = root(t)
		text, err := c.CombinedOutput()
		return string(text), err
	}
	for name, wants := range map[string][]string{
		"7":  {"**A remote hold is valid**", ") deadlines(h *hold)", "adoption_is_refused: ", "rule07_a_remote_hold", "TestStep_Refuses: ", "guard.go:"},
		"8":  {"not implemented: a second defence", "FuzzWorld", "DeadBeforeEvictHold"}, // a helper of which names it
		"13": {"an_owner_asks: ", "rule04_a_holder_out_of_reach: "},
		"I3": {"**I3**", "fallback/sessions.go:", "coord/options.go:", "TestSessionLivesForItsTime", "internal/sim/invariants.go:", "internal/model/"},
		"I7": {"**I7**", "grace_owner_reclaims: "},
		"I5": {"none: see the functions above", "-run 'Invariants_CanFail/I5' ./internal/model", "Without DemoteReplaces: I1", "Scenarios/a.grant.on.its.way.is.not.denied'"},
		"I8": {"(Guards|Progress)$/^(Doubt|Unserved|EvictDead)$"},
		"4":  {"Without SteppedRemote: I1: two nodes hold the key", "guard.go:"},
		"14": {"none of its own"},
		"G4": {"kept by (docs/takeover.md)\ninternal/guardians/ward.go:", "AnnounceCapped"},
		"G5": {"**Vote.**", ") Look(now Instant)", "TestGuardian_VotesWhenItsPromiseHasPassed", "Guardians_EachGuardPrevents/^(VoteAfterPromise|VoteIsFinal|RestartIsAnother)$", "Mutants$/^(VoteLate)$"},
		"E3": {"**E3**", "kept by (docs/adr/0023", "RoundOld", "coord/flights.go:", "Rounds_EachGuardPrevents/^(RoundOld|"},
		"E7": {"fallback/redisarbiter/variant.go:", "TestAllReplicas_Promoted"},
	} {
		text, err := show(name)
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it does not show %q:\n%s", name, want, text)
			}
		}
	}
	if text, err := show("I1"); err != nil || strings.Count(text, "\n") > 100 || strings.Contains(text, "coord/guards.go") {
		t.Errorf("I1: %v: %d lines:\n%s", err, strings.Count(text, "\n"), text)
	}
	if text, err := show("18"); err == nil || !strings.Contains(text, "There is no rule 18") {
		t.Errorf("of a rule that does not exist it shows %q", text)
	}
}
