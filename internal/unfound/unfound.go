// Package unfound has the texts by which a node refuses one that it does not find at its arbiter.
package unfound

import "strings"

// Parts of the reasons.
const (
	Stranger  = "not a member"                       // to the other side, which has proved nothing
	NoSession = "the arbiter lists no session of it" // in the refusing node's own words
)

// Is reports whether a reason that a node gives is one of these.
func Is(reason string) bool { return isStranger(reason) || isUnlisted(reason) }

func isStranger(reason string) bool { return strings.Contains(reason, `"`+Stranger+`"`) }
func isUnlisted(reason string) bool { return strings.Contains(reason, NoSession) }

// By returns the node that refuses, and the one that it does not find, of a node that gives such a
// reason and another one. Most often it is the former that does not reach the arbiter, or uses
// another one.
func By(gives, other, reason string) (refuses, unfound string) {
	if isUnlisted(reason) {
		return gives, other
	}
	return other, gives
}
