package coord_test

import (
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// unhurried are quick options for tests that commit no faults: a delay of a busy machine is not
// taken for one. With quick ones a stream ends after 0.5 s of a node's silence, a question after
// 0.3 s, and a session after 3 s.
func unhurried() *coord.Options {
	o := quick()
	o.RenewEvery = o.SessionTTL / 4 // all else is as often as there
	o.SessionTTL, o.Grace = time.Minute, 80*time.Second
	o.Cluster.Keepalive, o.Cluster.Takeover = 4*time.Second, -1
	return o
}
