package guardians

import (
	"slices"
	"strconv"
	"strings"
)

// EncodeSets returns sets as a text: the version of each set and its members, with a comma before
// each member, and a blank between two sets. Members must not have blanks and commas.
func EncodeSets(sets []Set) []byte {
	var b []byte
	for i, s := range sets {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendUint(b, uint64(s.Version), 10)
		for _, m := range s.Members {
			b = append(append(b, ','), m...)
		}
	}
	return b
}

// DecodeSets is the inverse of EncodeSets. It reports false for a text that EncodeSets does not
// return: of more than the two sets of a ping; of a set with more than Max members, an empty or
// doubled one, or the version 0.
func DecodeSets(text string) (sets []Set, ok bool) {
	if text == "" {
		return nil, true
	}
	for one := range strings.SplitSeq(text, " ") {
		parts := strings.Split(one, ",")
		version, err := strconv.ParseUint(parts[0], 10, 32)
		if err != nil || version == 0 || parts[0][0] == '0' || parts[0][0] == '+' || len(parts)-1 > Max || len(sets) == 2 {
			return nil, false
		}
		s := Set{Version: uint32(version)}
		for _, m := range parts[1:] {
			if m == "" || slices.Contains(s.Members, m) {
				return nil, false
			}
			s.Members = append(s.Members, m)
		}
		sets = append(sets, s)
	}
	return sets, true
}
