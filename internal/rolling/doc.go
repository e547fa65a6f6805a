// Package rolling runs nodes of an older commit beside those of this one, under load, as a rolling
// upgrade does: see TestUpgrade, and make rolling. TestSessionTTL changes the SessionTTL of running
// processes.
package rolling
