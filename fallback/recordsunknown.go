package fallback

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// A later version may have put members into a record that this one does not know. They stay where
// they are when this one writes the record, as long as their object is there: a record, a session,
// a hold, a waiter. Texts here are JSON that was decoded before, so they are well formed.

// A shape is the known part of a text. Nil: all of it is known.
type shape struct {
	members map[string]*shape // of an object with a name for each; nil: of any names, or a list
	each    *shape            // then: of a member, or an element
	same    []string          // the members that tell whether two objects are of the same thing
}

var (
	partitionShape = shapeOf(reflect.TypeFor[storedPartition]())
	sessionsShape  = shapeOf(reflect.TypeFor[storedSessions]())
)

func shapeOf(t reflect.Type) *shape {
	switch t.Kind() {
	case reflect.Struct:
		x := &shape{members: make(map[string]*shape)}
		switch t {
		case reflect.TypeFor[storedRow]():
			x.same = []string{"session", "request"}
		case reflect.TypeFor[storedWaiter]():
			x.same = []string{"session", "request", "spec"}
		}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				x.members[name] = shapeOf(f.Type)
			}
		}
		return x
	case reflect.Map, reflect.Slice:
		if each := shapeOf(t.Elem()); each != nil {
			return &shape{each: each}
		}
	}
	return nil
}

// knows returns the shape of a member by its name, as it is between its quotes.
func (x *shape) knows(name []byte) (of *shape, ok bool) {
	if x.members == nil {
		return x.each, true
	}
	if of, ok = x.members[string(name)]; ok {
		return of, true
	}
	// Package json takes these for the same.
	text := string(name)
	_ = json.Unmarshal([]byte(`"`+text+`"`), &text)
	for known, of := range x.members {
		if strings.EqualFold(known, text) {
			return of, true
		}
	}
	return nil, false
}

// keepUnknown returns the new text of a record, with those members of its old text, was, that this
// version does not know.
func (x *shape) keepUnknown(was, text []byte) []byte {
	was = bytes.TrimSpace(was) // an operator may have edited it
	if len(text) == 0 || bytes.Equal(was, text) || !x.unknown(was) {
		return text
	}
	return x.merge(was, text)
}

// unknown reports whether a text has members that are not known.
func (x *shape) unknown(text []byte) bool {
	for it := enter(text); x != nil && it.next(); {
		of, ok := x.each, true
		if it.name != nil {
			of, ok = x.knows(it.name)
		}
		if !ok || of != nil && of.unknown(it.value) {
			return true
		}
	}
	return false
}

func (x *shape) merge(was, text []byte) []byte {
	if x == nil || !x.isOfSame(was, text) {
		return text
	}
	named := make(map[string][]byte)
	var unnamed, unknown [][]byte
	for it := enter(was); it.next(); {
		if it.name == nil {
			unnamed = append(unnamed, it.value)
		} else if _, ok := x.knows(it.name); ok {
			named[string(it.name)] = it.value
		} else {
			unknown = append(unknown, slices.Concat([]byte{'"'}, it.name, []byte(`":`), it.value))
		}
	}
	var parts [][]byte
	for it := enter(text); it.next(); {
		if it.name != nil {
			of, _ := x.knows(it.name)
			parts = append(parts, slices.Concat([]byte{'"'}, it.name, []byte(`":`), of.merge(named[string(it.name)], it.value)))
			continue
		}
		i := slices.IndexFunc(unnamed, func(before []byte) bool { return x.each.isOfSame(before, it.value) })
		if i < 0 {
			parts = append(parts, it.value)
		} else {
			parts = append(parts, x.each.merge(unnamed[i], it.value))
		}
	}
	inside := bytes.Join(append(parts, unknown...), []byte{','})
	return slices.Concat(text[:1], inside, text[len(text)-1:])
}

// isOfSame reports whether two objects are of the same thing: a row that another hold has taken
// over has nothing of the one before.
func (x *shape) isOfSame(was, text []byte) bool {
	if len(was) == 0 || was[0] != text[0] {
		return false
	}
	for _, name := range x.same {
		if !bytes.Equal(member(was, name), member(text, name)) {
			return false
		}
	}
	return true
}

// member returns an object's value of a name, nil if there is none.
func member(object []byte, name string) []byte {
	for it := enter(object); it.next(); {
		if string(it.name) == name {
			return it.value
		}
	}
	return nil
}

// A members goes over the members of an object, or the elements of a list; of other values over
// nothing.
type members struct {
	rest        []byte
	named       bool
	name, value []byte // name is the text between the quotes, and nil for an element
}

func enter(text []byte) members {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return members{}
	}
	return members{rest: text[1:], named: text[0] == '{'}
}

func (m *members) next() bool {
	m.rest = bytes.TrimLeft(m.rest, ", \t\r\n")
	if len(m.rest) == 0 || m.rest[0] == '}' || m.rest[0] == ']' {
		return false
	}
	if m.named {
		n := length(m.rest)
		m.name, m.rest = m.rest[1:n-1], bytes.TrimLeft(m.rest[n:], ": \t\r\n")
	}
	n := length(m.rest)
	m.value, m.rest = m.rest[:n], m.rest[n:]
	return true
}

// length returns the number of bytes of the value at the beginning of a text.
func length(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}
