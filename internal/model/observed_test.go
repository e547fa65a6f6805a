package model

import "testing"

func observedWithin() *Observed {
	return &Observed{T: 3, M: 1, Renewals: 2, Late: 2, Ticks: 5}
}

func TestObserved(t *testing.T) {
	t.Parallel()
	if explain(t, observedWithin()) != "" {
		t.Error("a living session is declared dead")
	}
}

func TestObservedByFastClocks(t *testing.T) {
	t.Parallel()
	m := observedWithin()
	m.Fast, m.Renewals = 1, 1
	if explain(t, m) != "" {
		t.Error("a living session is declared dead")
	}
}

func TestDeepObserved(t *testing.T) {
	needsDeep(t)
	if explain(t, &Observed{T: 2, M: 1, Renewals: 3, Late: 2, Ticks: 7, Fast: 1, Steps: 1}) != "" {
		t.Error("a living session is declared dead")
	}
}

// TestObservedDies shows that the search is not empty: a session that does not renew is declared
// dead.
func TestObservedDies(t *testing.T) {
	m := observedWithin()
	dies := false
	seen := map[observed]bool{}
	first := observed{beat: 1, lease: m.T, ticks: m.Ticks}
	for all := []observed{first}; len(all) > 0; all = all[1:] {
		m.next(all[0], func(n observed, _ string) {
			dies = dies || n.beat == 0
			if !seen[n] {
				seen[n] = true
				all = append(all, n)
			}
		})
	}
	if !dies {
		t.Error("the session is for ever")
	}
}

// TestObservedGuards takes guards away, and expects that a living session is declared dead.
func TestObservedGuards(t *testing.T) {
	for name, off := range map[string]ObservedGuard{
		"SameBeat": SameBeat, "OwnLook": OwnLook, "DeathMargin": DeathMargin, "CompareBeat": CompareBeat | InTime, "RenewCompare": RenewCompare | InTime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := observedWithin()
			switch m.Without = off; off {
			case OwnLook:
				m.Steps = 1
			case DeathMargin:
				m.Fast = 1
			}
			if explain(t, m) == "" {
				t.Error("it is not needed, as it seems")
			}
		})
	}
}

// TestObservedDefences takes the second defence away: the store's comparisons are enough without
// rule 3.
func TestObservedDefences(t *testing.T) {
	t.Parallel()
	m := observedWithin()
	m.Without = InTime
	if explain(t, m) != "" {
		t.Error("a living session is declared dead")
	}
}
