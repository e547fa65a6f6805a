//go:build simulation || mutants

package lease

import "testing"

func TestStep_PanicsAtAnIllegalTransition(t *testing.T) {
	x := Unowned
	step(&x, Unowned, nextPhases[:])
	step(&x, Acquiring, nextPhases[:])
	defer func() {
		if recover() == nil || x != Acquiring {
			t.Errorf("it became %v", x)
		}
	}()
	step(&x, Demoting, nextPhases[:])
}
