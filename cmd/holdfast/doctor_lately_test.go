package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lately"
)

// says returns doctor's findings in one text.
func (d *doctor) says() string {
	var b strings.Builder
	for _, f := range d.all {
		b.WriteString(f.Level + " " + f.What + ": " + f.Text + " -> " + f.Do + "\n")
	}
	return b.String()
}

// Of an outage that is over doctor does not warn for ever, and it says when it was.
func TestDoctor_FaultsThatAreOver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	lost := func(ago time.Duration) []coord.Event {
		return []coord.Event{{Time: now.Add(-ago), Text: "session lost, and all locks with it session=s locks=3 error=late"}}
	}
	renew := func(ago time.Duration) []coord.CallFailure {
		return []coord.CallFailure{{Op: "renew", Time: now.Add(-ago)}}
	}
	calls, failed := map[string]uint64{"renew": 290}, map[string]uint64{"renew": 75}
	const again = "it has lost its session, and all its locks, "
	for name, x := range map[string]struct {
		report coord.NodeReport
		want   string
	}{
		"renewals fail":            {coord.NodeReport{Failed: failed, Calls: calls, Failures: renew(4 * time.Second)}, "warn node anna: 75 of 290 renewals failed since its start, the last one 4s ago"},
		"they have failed":         {coord.NodeReport{Failed: failed, Calls: calls, Failures: renew(92 * time.Second)}, "ok node anna: 75 of 290 renewals failed since its start, the last one 1m32s ago, and none since"},
		"at a time that is left":   {coord.NodeReport{Failed: failed, Calls: calls}, "warn node anna: 75 of 290 renewals failed since its start"},
		"a session lost":           {coord.NodeReport{Sessions: 2, Up: time.Hour, Events: lost(40 * time.Second)}, "warn node anna: " + again + "1 time in 1h0m0s, the last time 40s ago"},
		"one lost long ago":        {coord.NodeReport{Sessions: 3, Up: time.Hour, Events: lost(20 * time.Minute)}, "ok node anna: " + again + "2 times in 1h0m0s, the last time 20m0s ago"},
		"one lost, who knows when": {coord.NodeReport{Sessions: 3, Up: time.Hour}, "warn node anna: " + again + "2 times in 1h0m0s"},
	} {
		x.report.Clock, x.report.Settled = now, true
		x.report.Nodes = []coord.NodeInfo{{Name: "anna", ID: "anna/1", Session: "s", Self: true}}
		n := nodeView{NodeInfo: coord.NodeInfo{Name: "anna", ID: "anna/1"}, Report: &x.report}
		d, l := &doctor{}, (&survey{all: []nodeView{n}, processes: []coord.Process{{Name: "anna", ID: "anna/1", Session: "s"}}}).list()
		d.member(t.Context(), &n, l)
		if got := d.says(); !strings.Contains(got, x.want+" -> ") {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// Of a node that answers nobody doctor speaks once: neither ports of the others nor their settings
// are at fault.
func TestDoctor_ANodeThatAnswersNobody(t *testing.T) {
	t.Parallel()
	clara := coord.NodeInfo{Name: "clara", ID: "clara/3", Session: "3", Peer: "127.0.0.1:1", State: "active"}
	var all []nodeView
	for _, name := range []string{"anna", "berta"} {
		self := coord.NodeInfo{Name: name, ID: name + "/1", Session: name, State: "active", Self: true}
		other := coord.NodeInfo{Name: "berta", ID: "berta/1", Session: "berta", State: "active", Linked: true}
		r := &coord.NodeReport{Process: coord.Process{Name: name}, Clock: time.Now(), Sessions: 1, Nodes: []coord.NodeInfo{self, other, clara}}
		if name == "berta" { // where the gossip has missed it
			other.Name, other.ID, other.Session = "anna", "anna/1", "anna"
			r.Nodes, r.Missing = []coord.NodeInfo{self, other}, "node clara/3 is gone"
		}
		r.Troubles = []string{"node clara/3 is not reachable at 127.0.0.1:1, which it advertises, for 1s: dial: open that port"}
		all = append(all, nodeView{NodeInfo: self, Report: r})
	}
	all = append(all, nodeView{NodeInfo: clara, Error: "there is no stream to it: dial tcp 127.0.0.1:1: connect: connection refused"})
	x := survey{all: all, processes: []coord.Process{
		{Name: "anna", ID: "anna/1", Session: "anna"}, {Name: "berta", ID: "berta/1", Session: "berta"}, {Name: "clara", ID: "clara/3", Session: "3", Host: "vm", PID: 7},
	}}
	d, l := &doctor{}, x.list()
	for i := range all {
		d.member(t.Context(), &all[i], l)
	}
	got := d.says()
	if strings.Count(got, "refused") != 1 || strings.Contains(got, "open that port") || strings.Contains(got, "gossip port") || strings.Contains(got, "warn") {
		t.Error(got)
	}
	for _, part := range []string{
		"ok node anna: ", "ok node berta: ", "fail node clara: it (vm:7) has a session and does not answer: ", "; anna has no stream to it either -> it may have been killed",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}
	dora := nodeView{NodeInfo: coord.NodeInfo{Name: "dora", ID: "dora/4"}, Report: &coord.NodeReport{}} // which answers, and which anna does not see
	d, l = &doctor{}, (&survey{all: append(all[:3:3], dora), processes: x.processes}).list()
	d.member(t.Context(), &all[0], l)
	if got = d.says(); !strings.Contains(got, "warn node anna: it sees 3 of 4 nodes, and not dora -> open the gossip port") {
		t.Error(got)
	}
	all[0].Report.Nodes[2].Linked = true // as by a stream that clara has opened
	d = &doctor{}
	d.member(t.Context(), &all[2], x.list())
	if got = d.says(); !strings.Contains(got, "; anna has a stream to it -> it runs, or did a moment ago: no process listens at its port 127.0.0.1:1, or") {
		t.Error(got)
	}
}

// A node that is found dead while doctor asks it has no session any more.
func TestDoctor_ANodeThatIsFoundDeadMeanwhile(t *testing.T) {
	t.Parallel()
	x := survey{all: []nodeView{{NodeInfo: coord.NodeInfo{Name: "clara", ID: "clara/3", Peer: "127.0.0.1:1"}, Error: noStream}}}
	d := &doctor{}
	d.member(t.Context(), &x.all[0], x.list())
	if got := d.says(); !strings.HasPrefix(got, "warn node clara: it did not answer, and has no session any more") {
		t.Error(got)
	}
}

// What tells processes of one name apart is said beside it.
func TestDoctor_NodesOfOneName(t *testing.T) {
	t.Parallel()
	x := survey{}
	for id, pid := range map[string]int{"vm/A": 7, "vm/B": 8} {
		r := &coord.NodeReport{Clock: time.Now(), State: "active", Sessions: 1, Settled: true}
		if pid == 8 {
			r.State = "leaving"
		}
		x.all = append(x.all, nodeView{NodeInfo: coord.NodeInfo{Name: "vm", ID: id}, Report: r})
		x.processes = append(x.processes, coord.Process{Name: "vm", ID: id, Session: id, Host: "host", PID: pid})
		for _, other := range []string{"vm/A", "vm/B"} {
			r.Nodes = append(r.Nodes, coord.NodeInfo{Name: "vm", ID: other, Session: other, State: "active", Self: other == id, Linked: other != id})
		}
	}
	d := &doctor{}
	d.members(t.Context(), &x)
	if got := d.says(); !strings.Contains(got, "warn node vm (host:8): it gives its partitions away") || !strings.Contains(got, "ok node vm (host:7): ") {
		t.Error(got)
	}
}

// A death is told for some minutes, once, also where several nodes tell of it.
func TestDoctor_Deaths(t *testing.T) {
	t.Parallel()
	now := time.Now()
	view := func(name string, events ...coord.Event) nodeView {
		return nodeView{NodeInfo: coord.NodeInfo{Name: name, ID: name + "/1"}, Report: &coord.NodeReport{Clock: now, Events: events}}
	}
	death := func(ago time.Duration, of string) coord.Event {
		return coord.Event{Time: now.Add(-ago), Text: "a node was silent for too long, and its session was ended " + of}
	}
	mute := nodeView{NodeInfo: coord.NodeInfo{Name: "clara", ID: "clara/3"}} // it has just been found dead
	clara := "session=c1 node=clara/3 host=vm:7"
	d := &doctor{}
	d.deaths([]nodeView{
		mute,
		view("anna", death(6*time.Second, clara), death(lately.Recent+time.Second, "session=d1 node=dora/1")),
		view("berta", death(5*time.Second, clara), death(time.Minute, "session=a0 node=anna/1"),
			coord.Event{Time: now.Add(-2 * time.Minute), Text: "a node's process has ended, and its session was ended session=e1 node=emma/1 host=vm:9"}),
	})
	want := []string{
		"warn node clara (vm:7): it was declared dead 6s ago (by anna, berta), and its keys went to others -> if you did not end it",
		"warn node anna: it was declared dead 1m0s ago (by berta), and its keys went to others; it has a session again -> it stood still",
		"warn node emma (vm:9): it was declared dead 2m0s ago (by berta), and its keys went to others; its process had ended -> if you did not end it: look why",
	}
	got := strings.Split(d.says(), "\n")
	if len(got) != 4 || !strings.HasPrefix(got[0], want[0]) || !strings.HasPrefix(got[1], want[1]) || !strings.HasPrefix(got[2], want[2]) {
		t.Error(d.says())
	}
}
