// Package rolling runs nodes of an older commit beside those of this one, under load, as a rolling upgrade
// does: see the test, and make rolling.
package rolling
