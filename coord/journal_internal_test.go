package coord

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
)

// The last records are kept, whatever the user's logger takes; it gets the same as without.
func TestJournal_KeepsTheLastRecords(t *testing.T) {
	var b bytes.Buffer
	j := new(journal)
	l := slog.New(noting{slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}), j}).With("process", "anna")
	l.Debug("holdfast: not of interest")
	for i := range 100 {
		l.Info("holdfast: something", "number", i)
	}
	l.Warn("holdfast: long", "text", strings.Repeat("ä", maxEvent))
	all := j.last()
	if len(all) != mostEvents || all[1].Text != "something number=99" || all[1].Level != "INFO" || all[mostEvents-1].Text != "something number=69" {
		t.Errorf("%+v", all)
	}
	if e := all[0]; len(e.Text) > maxEvent || !strings.HasPrefix(e.Text, "long text=ää") || strings.Contains(e.Text, "\ufffd") {
		t.Errorf("%q", e.Text)
	}
	if got := b.String(); strings.Contains(got, "something") || !strings.Contains(got, "process=anna") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// Strangers can have a node log a record each 10 s. These do not displace the important ones.
func TestJournal_StrangersLeaveWhatMatters(t *testing.T) {
	j := new(journal)
	l := slog.New(noting{slog.DiscardHandler, j})
	l.Warn("holdfast: locks lost", "count", 1)
	l.Info("holdfast: listening to other nodes")
	for i := range 1000 {
		l.Info("holdfast: a gossip packet is refused", "from", i)
		l.Warn("holdfast: a connection of another node is refused", "from", i)
	}
	all := j.last()
	if n := len(all); n != mostEvents || all[0].Text != "a connection of another node is refused from=999" || all[n-1].Text != "locks lost count=1" {
		t.Errorf("%+v", all)
	}
}

// An answer that is too long is cut, and ends.
func TestReport_IsCutToTheLengthOfAnAnswer(t *testing.T) {
	r := NodeReport{}
	for i := range 1000 {
		r.Events = append(r.Events, Event{Text: strings.Repeat("e", maxEvent)})
		r.Nodes = append(r.Nodes, NodeInfo{ID: strconv.Itoa(i)})
	}
	a := reply{Node: &r}
	if text := a.encode(); len(text) > maxText || len(text) < maxText/4 || a.Node == nil || len(a.Node.Nodes) == 0 {
		t.Errorf("%d bytes", len(text))
	}
	a = reply{Process: Process{Name: strings.Repeat("n", maxText)}, Node: &NodeReport{Missing: strings.Repeat("m", maxText)}}
	if text := a.encode(); len(text) > maxText {
		t.Errorf("%d bytes", len(text))
	}
	a = reply{Error: strings.Repeat("e", maxText)}
	if text := a.encode(); len(text) > maxText {
		t.Errorf("%d bytes", len(text))
	}
}
