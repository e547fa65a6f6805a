//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/svg"
)

// The picture of a run: time goes to the right. From above: the faults by name, the times without a
// grant of some key, and the partitions' owners by the records. Below is a row for each node with
// how many partitions it granted and its holds of some keys, and a row for each server. A fault is
// a band over the rows that it concerned.

const (
	labelWidth = 130
	nodeHeight = 62
	hostHeight = 18
	laneHeight = 13
	partHeight = 4
	areaHeight = 20 // of the partitions that a node grants
	keyHeight  = 9.5
	stallFrom  = time.Second // shorter ones are not marked
)

// Colours: of nodes, in which the partitions show, and of the keys that have holds shown.
var (
	nodeColours = []string{"#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#ee7733", "#009988", "#bbbbbb"}
	keyColours  = []string{"#555555", "#0055cc", "#cc7700", "#7700aa"}
)

// canvas is a picture under way.
type canvas struct {
	svg.Drawing
	rep   *report
	begin moment
	end   moment
	scale float64 // pixels per second
	width float64
	y     float64
	rows  map[string][2]float64 // of hosts: from and to
}

func picture(rep *report) []byte {
	length := rep.end.sub(rep.run.begun).Seconds()
	c := &canvas{rep: rep, begin: rep.run.begun, end: rep.end, rows: make(map[string][2]float64)}
	c.scale = min(max(1300/length, 12), 6000/length)
	c.width = length*c.scale + labelWidth + 20
	c.y = 40
	c.faultNames()
	c.stalls()
	c.partitions()
	for i, s := range rep.run.seats {
		c.node(i, s)
	}
	for _, name := range rep.run.serverNames() {
		c.server(name)
	}
	c.bands()
	c.axis()
	var d svg.Drawing
	d.Open("svg", "xmlns", "http://www.w3.org/2000/svg", "width", svg.Num(c.width), "height", svg.Num(c.y+10), "font-family", "sans-serif", "font-size", "11")
	d.Rect(0, 0, c.width, c.y+10, "fill", "white")
	d.Text(10, 22, fmt.Sprintf("%s, %d nodes, T = %v, seed %d: %d locks granted, %d lost, %d violations", rep.Topology, rep.Nodes,
		rep.TTL, rep.Seed, rep.Granted, rep.Lost, len(rep.Violations)))
	d.Raw(c.String())
	d.Close("svg")
	return []byte(d.String() + "\n")
}

func (c *canvas) x(m moment) float64 {
	m = min(max(m, c.begin), c.end)
	return labelWidth + m.sub(c.begin).Seconds()*c.scale
}

// rect draws from one moment to another; a time too short to be seen is a line.
func (c *canvas) rect(from, to moment, y, height float64, style []string, title string) {
	if to < c.begin || from > c.end {
		return
	}
	if title != "" {
		c.Tip(title)
		defer c.Close("g")
	}
	c.Rect(c.x(from), y, max(c.x(to)-c.x(from), 0.6), height, style...)
}

// fill is a style: a colour, and how opaque it is.
func fill(colour string, opacity ...string) []string {
	if len(opacity) == 0 {
		return []string{"fill", colour}
	}
	return []string{"fill", colour, "fill-opacity", opacity[0]}
}

func (c *canvas) label(y float64, text string) { c.Text(8, y, text) }

// faultNames puts each fault's name where it begins, in as many lanes as are needed.
func (c *canvas) faultNames() {
	var ends []float64
	top := c.y
	c.label(c.y+11, "faults")
	for _, b := range c.rep.run.bands {
		text := strings.TrimSpace(b.Fault + " " + strings.Join(b.Hosts, " "))
		if len(b.Hosts) > 2 {
			text = b.Fault
		}
		x := c.x(b.Begin)
		lane := slices.IndexFunc(ends, func(e float64) bool { return e < x })
		if lane < 0 {
			lane, ends = len(ends), append(ends, 0)
		}
		ends[lane] = max(x+float64(len(text))*5.6, c.x(b.End)) + 6
		y := top + float64(lane)*laneHeight
		c.rect(b.Begin, b.End, y+1, laneHeight-2, bandStyle(b), b.title(c.begin))
		c.Text(x+2, y+10, text)
	}
	c.y += float64(max(1, len(ends)))*laneHeight + 8
}

func (b *band) title(begin moment) string {
	return fmt.Sprintf("%s %v %s, %s to %s", b.Fault, b.Hosts, b.Detail, b.Begin.since(begin), b.End.since(begin))
}

func bandStyle(b *band) []string {
	colour := "#ee6677" // network
	switch {
	case strings.Contains(b.Fault, "stopped"):
		colour = "#ccbb44"
	case strings.Contains(b.Fault, "killed"), strings.Contains(b.Fault, "restart"), strings.Contains(b.Fault, "leaves"):
		colour = "#555555"
	case strings.Contains(b.Fault, "clock"), strings.Contains(b.Fault, "failover"):
		colour = "#aa3377"
	}
	return fill(colour, "0.3")
}

// stalls marks when some key was not granted for long.
func (c *canvas) stalls() {
	c.label(c.y+11, "no key for "+stallFrom.String())
	keys := c.rep.history.byKey()
	for key, holds := range keys {
		if !busy(key) {
			continue
		}
		for _, g := range gaps(holds, c.begin, c.end) {
			if d := g.to.sub(g.from); d >= stallFrom {
				c.rect(g.from, g.to, c.y, laneHeight, fill("#dd0000", "0.35"), fmt.Sprintf("no node got %s for %v", key, d.Round(time.Millisecond)))
			}
		}
	}
	c.y += laneHeight + 8
}

// partitions shows their owners by the records.
func (c *canvas) partitions() {
	colours := make(map[string]string) // by session
	for i, s := range c.rep.run.seats {
		for _, e := range c.rep.history.states[s.host.Name] {
			colours[e.State.Session] = nodeColours[i%len(nodeColours)]
		}
	}
	delete(colours, "")
	c.label(c.y+partHeight*partitions/2+4, "owners, by record")
	owners := c.rep.run.owners
	for p := range partitions {
		y := c.y + float64(p*partHeight)
		for i := 0; i < len(owners); {
			j := i + 1
			for j < len(owners) && owners[j].Sessions[p] == owners[i].Sessions[p] {
				j++
			}
			to := c.end
			if j < len(owners) {
				to = owners[j].At
			}
			if colour := colours[owners[i].Sessions[p]]; colour != "" {
				c.rect(owners[i].At, to, y, partHeight-0.5, fill(colour), "")
			}
			i = j
		}
	}
	c.y += partHeight*partitions + 8
}

// node draws a node's row: how many partitions it grants the keys of, and below its holds of some
// keys.
func (c *canvas) node(i int, s *seat) {
	colour := nodeColours[i%len(nodeColours)]
	name := s.host.Name
	c.row(name, nodeHeight)
	c.Rect(8, c.y+2, 12, 12, fill(colour)...)
	c.Text(26, c.y+12, name+" owns")
	states := c.rep.history.states[name]
	for k := 0; k < len(states); {
		n := k + 1
		for n < len(states) && states[n].State.Owned == states[k].State.Owned && states[n].At-states[n-1].At < int64(time.Second) {
			n++
		}
		to := moment(states[n-1].At).add(200 * time.Millisecond)
		if h := areaHeight * min(1, float64(states[k].State.Owned)*2/partitions); h > 0 {
			c.rect(moment(states[k].At), to, c.y+areaHeight-h, h, fill(colour), "")
		}
		k = n
	}
	lanes := c.sample()
	for lane, key := range lanes {
		y := c.y + areaHeight + 3 + float64(lane)*keyHeight
		c.Text(90, y+7, key, "font-size", "9", "fill", keyColours[lane])
		c.holds(name, key, y, keyColours[lane])
	}
	c.y += nodeHeight + 2
}

// sample is the keys that have holds shown.
func (c *canvas) sample() []string {
	job := c.rep.run.seats[0].job
	return append(slices.Clone(job.Keys[:min(1, len(job.Keys))]), job.Slow[:min(3, len(job.Slow))]...)
}

// holds draws a node's holds of a key. Those that cannot be told apart are one; a loss is a red
// mark.
func (c *canvas) holds(node, key string, y float64, colour string) {
	var from, to moment
	flush := func() {
		if to != 0 {
			c.rect(from, to, y, keyHeight-2.5, fill(colour), "")
		}
	}
	var losses []*hold
	for _, h := range c.rep.history.holds {
		if h.Node != node || h.Key != key {
			continue
		}
		end := h.Ended
		if end == 0 { // it was killed
			end = max(h.Valid, h.Granted)
		}
		if h.Lost != "" {
			losses = append(losses, h)
		}
		if to != 0 && h.Granted.sub(to).Seconds()*c.scale < 0.8 {
			to = max(to, end)
			continue
		}
		flush()
		from, to = h.Granted, end
	}
	flush()
	for _, h := range losses {
		c.rect(h.Ended.add(-20*time.Millisecond), h.Ended.add(60*time.Millisecond), y-1, keyHeight-0.5, fill("#ff0000"), "lost: "+h.String())
	}
}

// server draws a server's row, with a line while it was the primary.
func (c *canvas) server(name string) {
	c.row(name, hostHeight)
	c.Text(26, c.y+12, name)
	owners := c.rep.run.owners
	for i := 0; i < len(owners); {
		j := i
		for j < len(owners) && owners[j].Primary == name {
			j++
		}
		if j > i {
			c.rect(owners[i].At, owners[j-1].At.add(250*time.Millisecond), c.y+5, 7, fill("#117733"), "")
		}
		i = j + 1
	}
	c.y += hostHeight + 2
}

func (c *canvas) row(name string, height float64) {
	c.rows[name] = [2]float64{c.y, c.y + height}
	c.rect(c.begin, c.end, c.y, height, fill("#f4f4f4"), "")
}

func (c *canvas) bands() {
	for _, b := range c.rep.run.bands {
		for _, name := range b.Hosts {
			if row, ok := c.rows[name]; ok {
				c.rect(b.Begin, b.End, row[0], row[1]-row[0], bandStyle(b), b.title(c.begin))
			}
		}
	}
}

func (c *canvas) axis() {
	step := 5 * time.Second
	for step.Seconds()*c.scale < 50 {
		step *= 2
	}
	for m := c.begin; m < c.end; m = m.add(step) {
		c.Line(c.x(m), 36, c.x(m), c.y, "stroke", "#000000", "stroke-opacity", "0.12")
		c.Text(c.x(m)+2, c.y+12, m.sub(c.begin).String())
	}
	c.y += 20
}
