package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Model is what a lock may do.
type Model struct {
	Name string
	step func(state, step) (bool, state)
}

// state is that of a key: all zero at first.
type state struct {
	holder int    // 0: none
	fence  uint64 // the highest that was granted
}

// The models.
var (
	// OwnerAware is a mutex that only its holder can unlock, and that has no other holder until then or until it is lost.
	OwnerAware = Model{"owner-aware mutex", exclusive}

	// Fenced is OwnerAware, and the tokens rise with every grant.
	Fenced = Model{"fenced mutex", func(s state, x step) (bool, state) {
		ok, next := exclusive(s, x)
		if x.do == take {
			ok, next.fence = ok && x.rec.Fence > s.fence, x.rec.Fence
		}
		return ok, next
	}}
)

func exclusive(s state, x step) (bool, state) {
	switch x.do {
	case take:
		ok := s.holder == 0
		s.holder = x.hold
		return ok, s
	case see:
		return s.holder == x.hold, s
	default:
		ok := s.holder == x.hold
		s.holder = 0
		return ok, s
	}
}

// ErrViolated is what the error of a history matches that no lock could have.
var ErrViolated = errors.New("history: not one that a lock could have")

// ErrTooHard is what the error matches if there was not enough time to find out.
var ErrTooHard = errors.New("history: not decided in time")

// Check returns an error that matches [ErrViolated] if the records of any key are not such that a fenced mutex could have them. It
// says whether an owner-aware one could, and shows the part of the history that cannot be explained. Limit is for each key.
func Check(records []Record, limit time.Duration) error {
	keys, err := steps(records)
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		err := Fenced.check(key, keys[key], limit)
		if errors.Is(err, ErrViolated) {
			if other := OwnerAware.check(key, keys[key], limit); other != nil {
				err = other
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Check is [Check] with one model only.
func (m Model) Check(records []Record, limit time.Duration) error {
	keys, err := steps(records)
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		errs = append(errs, m.check(key, keys[key], limit))
	}
	return errors.Join(errs...)
}

func (m Model) check(key string, all []step, limit time.Duration) error {
	ops := make([]porcupine.Operation, len(all))
	for i, s := range all {
		ops[i] = porcupine.Operation{ClientId: s.rec.Client, Input: s, Call: int64(s.call), Return: int64(s.ret)}
	}
	model := porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			ok, next := m.step(s.(state), input.(step))
			return ok, next
		},
		Hash: func(s any) uint64 { return uint64(s.(state).holder) },
	}
	switch porcupine.CheckOperationsTimeout(model, ops, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w: %q in %v (%d operations)", ErrTooHard, key, limit, len(ops))
	}
	_, info := porcupine.CheckOperationsVerbose(model, ops, limit)
	return fmt.Errorf("%w: %q is no %s:\n%s", ErrViolated, key, m.Name, story(all, info))
}

// around is how many operations a story has before those that cannot be explained, and from these on.
const around = 8

// story shows where the longest explanation ends.
func story(all []step, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, p := range info.PartialLinearizations() {
		for _, ids := range p {
			if len(ids) > len(longest) {
				longest = ids
			}
		}
	}
	var b strings.Builder
	for _, i := range longest[max(0, len(longest)-around):] {
		fmt.Fprintf(&b, "  %v\n", all[i])
	}
	b.WriteString("  and then none of these is possible:\n")
	var rest []step
	for i, s := range all {
		if !slices.Contains(longest, i) {
			rest = append(rest, s)
		}
	}
	slices.SortStableFunc(rest, func(a, b step) int { return cmp.Compare(a.ret, b.ret) })
	for _, s := range rest[:min(around, len(rest))] {
		fmt.Fprintf(&b, "  %v\n", s)
	}
	return b.String()
}

func (s step) String() string {
	until := "ever"
	if s.ret != forever {
		until = fmt.Sprintf("%.6fs", s.ret.Seconds())
	}
	text := fmt.Sprintf("%.6fs to %s: %s, client %d: hold %d %v", s.call.Seconds(), until, s.rec.Process, s.rec.Client, s.hold, s.do)
	if s.do == take {
		text += fmt.Sprintf(" with %d.%d", s.rec.Fence>>32, uint32(s.rec.Fence))
	}
	if s.do == lose {
		text += fmt.Sprintf(" (%s)", s.rec.Op)
	}
	return text
}
