package model

import (
	"flag"
	"testing"
)

var (
	qf     = flag.Int("q.f", 1, "")
	qlimit = flag.Int("q.limit", 400000, "")
	qn     = flag.Int("q.n", 2, "")
	qc     = flag.Int("q.crash", 1, "")
	qd     = flag.Int("q.delay", 1, "")
	qx     = flag.Int("q.cut", 1, "")
	qp     = flag.Int("q.fail", 0, "")
	qs     = flag.Int("q.sfail", 0, "")
	qr     = flag.Int("q.drift", 0, "")
	qlossy = flag.Bool("q.lossy", false, "")
	qlive  = flag.Bool("q.live", true, "")
	qreq   = flag.Int("q.req", 2, "")
	qlag   = flag.Int("q.lag", 2, "")
	qharm  = flag.Bool("q.harm", false, "")
	qoff   = flag.Uint64("q.off", 0, "")
)

func TestQuick(t *testing.T) {
	m := &Model{Nodes: uint8(*qn), Requests: uint8(*qreq), T: uint8(2 + *qr), M: uint8(*qr), Q: uint8(3 + 2**qr), Lag: uint8(*qlag), Faults: uint8(*qf), Live: *qlive, Limit: *qlimit, Crashes: uint8(*qc), Delays: uint8(*qd), Cuts: uint8(*qx),
		Failovers: uint8(*qp), SessionFailovers: uint8(*qs), Drift: uint8(*qr), Lossy: *qlossy, Without: Guard(*qoff)}
	if *qharm {
		m.Check = Harm
	}
	r := m.Explore()
	s := r.Story
	r.Story = nil
	t.Logf("%v %+v", m.Without, r)
	for _, l := range s {
		t.Log(l)
	}
}
