// Package injure lets tests of other arbiters change the state of the one in memory behind its
// back.
package injure

import "time"

// Set by package fallback.
var (
	// State gives f, a func(*fallback.Sessions, []fallback.Partition), the state of a namespace of
	// a
	// *fallback.Memory, to change it.
	State func(memory any, namespace string, f any)

	// Tap keeps the messages for a session until the function it returns is called, which returns
	// them, as a []fallback.Message.
	Tap func(memory any, namespace, session string) func() any

	// Ahead sets the clock of the server that a *fallback.Memory became last, of all partitions or
	// of some, or of each server that it is, by so much ahead of the machine's, in whole
	// milliseconds. Its deposed copies keep theirs.
	Ahead func(memory any, each bool, by time.Duration)
)
