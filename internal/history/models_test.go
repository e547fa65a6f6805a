package history

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// modelCase is a history, and whether a lock could have it: one without tokens, and one with.
type modelCase struct {
	name, text  string
	lax, strict bool
}

// judged checks each history with both models, and by Check, which is to choose these.
func judged(t *testing.T, lax, strict Model, cases []modelCase) {
	t.Helper()
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			records := script(t, x.text)
			for _, c := range []struct {
				model Model
				want  bool
			}{{lax, x.lax}, {strict, x.strict}} {
				err := c.model.Check(records, time.Minute)
				if c.want && err != nil {
					t.Errorf("%s: %v", c.model.Name, err)
				}
				if !c.want && !errors.Is(err, ErrViolated) {
					t.Errorf("%s: %v", c.model.Name, err)
				}
			}
			err := Check(records, time.Minute)
			if x.strict != (err == nil) {
				t.Errorf("Check: %v", err)
			}
			if err != nil && lax.Name != strict.Name && strings.Contains(err.Error(), lax.Name) == x.lax {
				t.Errorf("Check: %v, and one without tokens could: %v", err, x.lax)
			}
		})
	}
}

func TestReadWrite(t *testing.T) {
	judged(t, ReadWrite, FencedReadWrite, []modelCase{
		{"readers together", "Ar Br\nA=1 B=1\nA? B?\nA- B-\nA. B.", true, true},
		{"a writer after the readers", "Ar Br\nA=1 B=1\nC+\nA- B-\nC=2\nA. B.\nC-\nC.", true, true},
		{"a reader after the writer", "A+\nA=1\nBr\nA-\nB=2\nA.\nB-\nB.", true, true},
		{"a reader beside a writer", "A+\nA=1\nBr\nB=2\nA-\nA.\nB-\nB.", false, false},
		{"a writer beside a reader", "Ar\nA=1\nB+\nB=2\nA-\nA.\nB-\nB.", false, false},
		{"a writer beside the second of two readers", "Ar Br\nA=1 B=1\nA-\nA.\nC+\nC=2\nB?", false, false},
		{"a writer beside a reader that never unlocks", "Ar\nA=1\nB+\nB=2\nB-\nB.", false, false},
		{"two writers, and readers before", "Ar\nA=1\nA-\nA.\nB+\nB=2\nC+\nC=3\nB?", false, false},
		{"a reader is lost, and a writer comes", "Ar\nA=1\nB+\nAx\nB=2\nB-\nB.", true, true},
		{"a reader is lost too late", "Ar\nA=1\nB+\nB=2\nA?\nAx", false, false},
		{"a reader is killed, and a writer comes", "Ar\nA=1\nB+\nA#\nB=2\nB-\nB.", true, true},
		{"a reader stood still, and used the lock when it went on", "Ar\nA=1\nA?\nB+ B=2\nA? A|\nB- B.", true, true},
		{"a reader unlocks twice", "Ar\nA=1\nA-\nA.\nA-\nA.", false, false},
		{"a reader that was refused", "A+\nA=1\nBr\nB!\nA-\nA.", true, true},

		{"a reader's token is no higher than the writer's before", "A+\nA=2\nA-\nA.\nBr\nB=2\nB-\nB.", true, false},
		{"a writer's token is no higher than the reader's before", "Ar\nA=2\nA-\nA.\nB+\nB=2\nB-\nB.", true, false},
		{"a reader's token falls, without a writer between", "Ar\nA=2\nA-\nA.\nBr\nB=1\nB-\nB.", true, true},
		{"a writer's token is below the highest of the readers", "Ar Br\nA=2 B=4\nA- B-\nA. B.\nC+\nC=3", true, false},

		{"downgraded, and another reader", "A+\nA=1\nBr\nAd\nA=2\nB=2\nA? B?\nA- B-\nA. B.", true, true},
		{"downgraded, and a writer later", "A+\nA=1\nB+\nAd\nA=2\nA-\nA.\nB=3\nB-\nB.", true, true},
		{"downgraded with a gap, in which another one writes", "A+\nA=1\nB+\nAd\nB=2\nB-\nB.\nA=3\nA-\nA.", false, false},
		{"downgraded, and a writer beside it", "A+\nA=1\nAd\nA=2\nB+\nB=3\nA?", false, false},
		{"a downgrade that was refused", "A+\nA=1\nAd\nA!\nA?\nA-\nA.\nB+\nB=2", true, true},
		{"a downgrade of which no end is known", "A+\nA=1\nAd\nB+\nA#\nB=2", true, true},
		{"a downgrade's token", "A+\nA=2\nAd\nA=2\nA-\nA.", true, false},
		{"stood still, and downgraded what another one has", "A+\nA=1\nA?\nB+ B=2\nAd A=5 A|\nB- B.\nA-\nA.", false, false},
		{"stood still, and downgraded what another one has had", "A+\nA=1\nA?\nB+ B=2\nB- B.\nAd A=5 A|\nA-\nA.", true, true},
		{"stood still, and was told at the downgrade", "A+\nA=1\nA?\nB+ B=2\nAd A! A|\nAx\nB- B.", true, true},
		{"lost at the downgrade", "A+\nA=1\nB+\nB=2\nAd\nA! Ax\nB-\nB.", true, true},
	})
}

func TestSemaphore(t *testing.T) {
	judged(t, Semaphore, Semaphore, []modelCase{
		{"as many as there are", "Ap1/3 Bp2/3\nA=0 B=0\nA? B?\nA- B-\nA. B.", true, true},
		{"one too many", "Ap2/3 Bp2/3\nA=0\nB=0\nA? B?", false, false},
		{"one too many of three", "Ap1/3 Bp1/3 Cp2/3\nA=0 B=0\nC=0\nA? B?", false, false},
		{"one too many, and none is looked at", "Ap2/3\nA=0\nBp2/3\nB=0", false, false},
		{"after a release", "Ap2/3 Bp2/3\nA=0\nA-\nB=0\nA.\nB-\nB.", true, true},
		{"after a loss", "Ap2/3 Bp2/3\nA=0\nAx\nB=0\nB-\nB.", true, true},
		{"before a loss", "Ap2/3\nA=0\nBp2/3\nB=0\nA?\nAx", false, false},
		{"after a kill", "Ap3/3\nA=0\nBp3/3\nA#\nB=0\nB-\nB.", true, true},
		{"more than there are", "Ap4/3\nA=0", false, false},
		{"two numbers at the same time", "Ap1/3 Bp1/2\nA=0\nB=0\nA? B?", false, false},
		{"two numbers one after the other", "Ap1/3\nA=0\nA-\nA.\nBp1/2\nB=0", true, true},
		{"refused", "Ap2/3\nA=0\nBp2/3\nB!\nA-\nA.", true, true},
	})
}

// A lock is no semaphore, and a mutex has no readers.
func TestOtherModels(t *testing.T) {
	for _, c := range []struct {
		model Model
		text  string
	}{{Semaphore, "A+\nA=1"}, {OwnerAware, "Ar\nA=1"}, {OwnerAware, "A+\nA=1\nAd\nA=2"}, {ReadWrite, "Ap1/2\nA=0"}} {
		if err := c.model.Check(script(t, c.text), time.Minute); !errors.Is(err, ErrViolated) {
			t.Errorf("%s: %q: %v", c.model.Name, c.text, err)
		}
	}
	both := script(t, "Ap3/3 B+\nA=0 B=1\nA? B?\nA- B-\nA. B.")
	if err := Check(both, time.Minute); err != nil {
		t.Errorf("a semaphore and a lock of one key: %v", err)
	}
}
