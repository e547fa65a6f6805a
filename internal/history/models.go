package history

import "encoding/binary"

// state is that of a key: all zero at first.
type state struct {
	writer int    // the hold of the one that has it alone; 0: none
	others string // the holds of those that read it, or have permits: see with
	used   int    // permits
	of     int    // how many there are, while some are in use
	fence  uint64 // the highest that was granted to a writer
	read   uint64 // and to a reader
}

// numberBytes is how long a hold's number is in state.others.
const numberBytes = 4

func numberOf(hold int) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(hold))) //nolint:gosec // there are not so many
}

// find returns where a hold is among others, or is to be, in ascending order: states with the same
// holds are equal.
func find(others string, hold int) (at int, found bool) {
	n := numberOf(hold)
	for at < len(others) && others[at:at+numberBytes] < n {
		at += numberBytes
	}
	return at, at < len(others) && others[at:at+numberBytes] == n
}

func with(others string, hold int) string {
	at, _ := find(others, hold)
	return others[:at] + numberOf(hold) + others[at:]
}

func has(others string, hold int) bool {
	_, found := find(others, hold)
	return found
}

func without(others string, hold int) string {
	at, found := find(others, hold)
	if !found {
		return others
	}
	return others[:at] + others[at+numberBytes:]
}

func exclusive(s state, x step) (bool, state) {
	if x.mode != alone || x.do == turn {
		return false, s
	}
	return readWrite(s, x)
}

func readWrite(s state, x step) (ok bool, _ state) {
	switch {
	case x.mode == counted:
		return false, s
	case x.mode == shared && x.do == take:
		ok = s.writer == 0
		s.others = with(s.others, x.hold)
	case x.mode == shared:
		ok = has(s.others, x.hold)
		if x.do != see {
			s.others = without(s.others, x.hold)
		}
	case x.do == take:
		ok = s.writer == 0 && s.others == ""
		s.writer = x.hold
	default:
		ok = s.writer == x.hold
		switch x.do {
		case turn:
			s.writer, s.others = 0, with(s.others, x.to)
		case free, lose:
			s.writer = 0
		}
	}
	return ok, s
}

// fenced adds tokens to a model.
func fenced(lock func(state, step) (bool, state)) func(state, step) (bool, state) {
	return func(s state, x step) (bool, state) {
		ok, next := lock(s, x)
		token := x.rec.Fence
		switch {
		case x.do == turn || x.do == take && x.mode == shared:
			ok, next.read = ok && token > s.fence, max(s.read, token)
		case x.do == take:
			ok, next.fence = ok && token > s.fence && token > s.read, token
		}
		return ok, next
	}
}

func permits(s state, x step) (ok bool, _ state) {
	switch {
	case x.mode != counted:
		return false, s
	case x.do == take:
		ok = x.n > 0 && s.used+x.n <= x.of && (s.used == 0 || s.of == x.of)
		s.others, s.used, s.of = with(s.others, x.hold), s.used+x.n, x.of
	default:
		ok = has(s.others, x.hold)
		if x.do == see {
			break
		}
		if s.others, s.used = without(s.others, x.hold), s.used-x.n; s.used == 0 {
			s.of = 0
		}
	}
	return ok, s
}
