package history

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Model is the allowed behaviour of a lock.
type Model struct {
	Name string
	step func(state, step) (bool, state)
}

// The models.
var (
	// OwnerAware is a mutex that only its holder can unlock, and that has no other holder until
	// then or until it is lost.
	OwnerAware = Model{"owner-aware mutex", exclusive}

	// Fenced is OwnerAware, and the tokens rise with every grant.
	Fenced = Model{"fenced mutex", fenced(exclusive)}

	// ReadWrite is OwnerAware for those that write. Any number may read at the same time, none of
	// them beside a writer. A writer that becomes a reader has no other writer in between.
	ReadWrite = Model{"owner-aware read-write lock", readWrite}

	// FencedReadWrite is ReadWrite. A writer's token is above all that were granted before, a
	// reader's above all writers' before.
	FencedReadWrite = Model{"fenced read-write lock", fenced(readWrite)}

	// Semaphore has permits. No more of them are in use than there are.
	Semaphore = Model{"semaphore", permits}
)

// modelsOf returns the model of a subject, and a lax one without the demands on tokens.
func modelsOf(of subject, all []step) (strict, lax Model) {
	switch {
	case of.counted:
		return Semaphore, Semaphore
	case slices.ContainsFunc(all, func(s step) bool { return s.mode == shared }):
		return FencedReadWrite, ReadWrite
	}
	return Fenced, OwnerAware
}

// ErrViolated is matched by the error of a history that no lock could have.
var ErrViolated = errors.New("history: not one that a lock could have")

// ErrTooHard is matched by the error if there was not enough time to find out.
var ErrTooHard = errors.New("history: not decided in time")

// Check returns an error that matches [ErrViolated] if no fenced lock could have the records of
// some key. It does so, too, if a semaphore has more permits in use than it has. The error says
// whether a lock without tokens could have the records, and shows the part of the history that
// cannot be explained. Limit is for each key.
func Check(records []Record, limit time.Duration) error {
	return each(records, func(of subject, all []step) error {
		strict, lax := modelsOf(of, all)
		err := strict.check(of, all, limit)
		if errors.Is(err, ErrViolated) {
			if other := lax.check(of, all, limit); other != nil {
				err = other
			}
		}
		return err
	})
}

// Check is [Check] with one model only.
func (m Model) Check(records []Record, limit time.Duration) error {
	return each(records, func(of subject, all []step) error { return m.check(of, all, limit) })
}

func each(records []Record, check func(subject, []step) error) error {
	subjects, err := steps(records)
	if err != nil {
		return err
	}
	var errs []error
	for _, of := range slices.SortedFunc(maps.Keys(subjects), subject.compare) {
		errs = append(errs, check(of, subjects[of]))
	}
	return errors.Join(errs...)
}

var seed = maphash.MakeSeed()

func (m Model) check(of subject, all []step, limit time.Duration) error {
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
		Hash: func(s any) uint64 { return maphash.Comparable(seed, s.(state)) },
	}
	switch porcupine.CheckOperationsTimeout(model, ops, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%w: %v in %v (%d operations)", ErrTooHard, of, limit, len(ops))
	}
	_, info := porcupine.CheckOperationsVerbose(model, ops, limit)
	return fmt.Errorf("%w: %v is no %s:\n%s", ErrViolated, of, m.Name, story(all, info))
}

// around is how many operations a story has before those that cannot be explained, and from these
// on.
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
	if s.do == turn {
		text += fmt.Sprintf(" as hold %d", s.to)
	}
	switch {
	case s.mode == counted && s.do == take:
		text += fmt.Sprintf(", %d permits of %d", s.n, s.of)
	case s.mode == shared && s.do == take:
		text += " for reading"
		fallthrough
	case s.do == take || s.do == turn:
		text += fmt.Sprintf(" with %d.%d", s.rec.Fence>>32, uint32(s.rec.Fence))
	}
	if s.do == lose {
		text += fmt.Sprintf(" (%s)", s.rec.Op)
	}
	return text
}
