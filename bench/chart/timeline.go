package chart

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/svg"
)

// Timeline is what happened from moment to moment: for each track, how much was done, the longest wait and what failed,
// under the same events and in the same scales.
type Timeline struct {
	Head
	Bucket float64 `json:"bucket"` // seconds
	Rate   string  `json:"rate"`   // what Done counts, per second
	Tracks []Track `json:"tracks"`
}

// Track is one of those that are compared. Its series have a value per bucket.
type Track struct {
	Name   string    `json:"name"`
	Kind   Kind      `json:"kind"`
	Events []Event   `json:"events"`
	Done   []float64 `json:"done"`
	Wait   []float64 `json:"wait"` // the longest wait of what arrived in the bucket, in nanoseconds
	Failed []float64 `json:"failed"`
}

// Event is a moment or, with To, a span; in seconds.
type Event struct {
	Name string  `json:"name"`
	At   float64 `json:"at"`
	To   float64 `json:"to,omitempty"`
}

const (
	trackHead   = 58 // name and events
	trackDone   = 56
	trackGap    = 10
	trackWait   = 92
	trackFailed = 26
	beyond      = 2.5 // times the usual rate that have a place
	trackHeight = trackHead + trackDone + trackGap + trackWait + trackFailed + 22
)

// SVG draws the chart.
func (c Timeline) SVG() string {
	end, usual := 0.0, 0.0
	var rates []float64
	waits := []float64{1e6, 1e9}
	for _, t := range c.Tracks {
		end = max(end, float64(len(t.Done))*c.Bucket)
		usual = max(usual, middle(t.Done)/c.Bucket)
		for _, w := range t.Wait {
			if w > 1e5 {
				waits = append(waits, w)
			}
		}
	}
	for _, t := range c.Tracks {
		for _, n := range t.Done {
			// When a stall ends, what has waited is done at once. The scale is for what is usual.
			rates = append(rates, min(n/c.Bucket, beyond*usual))
		}
	}
	const left, right = 86.0, Width - 16.0
	x := axis{scale: Linear, unit: Seconds, max: max(end, c.Bucket), from: left, to: right}
	var d drawing
	d.open(c.Head, float64(len(c.Tracks))*trackHeight+30)
	for i, t := range c.Tracks {
		top := float64(i) * trackHeight
		doneTop := top + trackHead
		waitTop := doneTop + trackDone + trackGap
		failTop := waitTop + trackWait + 12
		c.events(&d, t, x, top, failTop+trackFailed-8)
		class := ""
		if t.Kind == Ours {
			class = "strong"
		}
		d.text(10, top+16, "start", class, t.Name)
		done := newAxis(Linear, Number, rates, doneTop+trackDone, doneTop) // what is beyond is told
		wait := newAxis(Log, Nanoseconds, waits, waitTop+trackWait, waitTop)
		c.scale(&d, done, 2, c.Rate)
		c.scale(&d, wait, 1, "longest wait")

		area := []point{{X: left, Y: done.at(0)}}
		for j, n := range t.Done {
			y := done.at(n / c.Bucket)
			area = append(area, point{X: x.at(float64(j) * c.Bucket), Y: y}, point{X: x.at(float64(j+1) * c.Bucket), Y: y})
		}
		d.path(append(area, point{X: area[len(area)-1].X, Y: done.at(0)}), true, "f-"+string(t.Kind), "")
		if peak, at := greatest(t.Done); peak/c.Bucket > done.max {
			d.text(x.at(float64(at)*c.Bucket)-6, doneTop+8, "end", "small soft halo", "up to "+Format(peak/c.Bucket, Number))
		}
		width := max(x.at(c.Bucket)-left-0.4, 0.8)
		longest, at := greatest(t.Wait)
		for j, w := range t.Wait {
			if w > 0 {
				y := wait.at(max(w, 1))
				d.rect(x.at(float64(j)*c.Bucket), y, width, waitTop+trackWait-y, "f-"+string(t.Kind))
			}
		}
		if longest > 0 {
			px, anchor := x.at(float64(at)*c.Bucket), "start"
			if px > (left+right)/2 {
				anchor = "end"
			}
			d.text(px, max(wait.at(longest)-4, waitTop-1), anchor, "small strong halo", "longest "+Format(longest, Nanoseconds))
		}
		c.failed(&d, t, x, failTop, width)
	}
	bottom := float64(len(c.Tracks)) * trackHeight
	for _, t := range x.ticks() {
		d.text(x.at(t.value), bottom+6, "middle", "soft small", t.text)
	}
	return d.close()
}

// greatest returns the greatest value and where it is.
func greatest(values []float64) (most float64, at int) {
	for i, v := range values {
		if v > most {
			most, at = v, i
		}
	}
	return most, at
}

// middle is the median.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// scale draws an axis to the left, and names every so many ticks.
func (c Timeline) scale(d *drawing, a axis, every int, label string) {
	ticks := a.ticks()
	for i, t := range ticks {
		d.line(86, a.at(t.value), Width-16, a.at(t.value), "grid")
		if i%every == 0 {
			d.text(80, a.at(t.value)+4, "end", "soft small", t.text)
		}
	}
	middle := (a.from + a.to) / 2
	d.Open("text", "transform", "translate(14 "+svg.Num(middle)+") rotate(-90)", "text-anchor", "middle", "class", "soft small")
	d.Raw(svg.Escape(label))
	d.Close("text")
}

// events draws them over the height of a track, their names in two rows by turns.
func (c Timeline) events(d *drawing, t Track, x axis, top, bottom float64) {
	free := [2]float64{} // where the last name in each row ends
	for _, e := range t.Events {
		at := x.at(e.At)
		row := 0
		if at < free[0] {
			row = 1
		}
		free[row] = at + wide(e.Name)*0.88 + 8
		y := top + 33 + 15*float64(row)
		if e.To > e.At {
			d.rect(at, top+trackHead-6, x.at(e.To)-at, bottom-top-trackHead+6, "span")
		}
		d.line(at, y+3, at, bottom, "mark")
		anchor := "start"
		if at+wide(e.Name)*0.88 > Width-10 {
			anchor = "end"
		}
		d.text(at+3, y, anchor, "soft small", e.Name)
	}
}

// failed draws a mark for each bucket in which something failed, and how many there were.
func (c Timeline) failed(d *drawing, t Track, x axis, y, width float64) {
	total := 0.0
	for j, n := range t.Failed {
		total += n
		if n > 0 {
			d.rect(x.at(float64(j)*c.Bucket), y, max(width, 2), 8, "f-bad")
		}
	}
	d.line(86, y+8, Width-16, y+8, "grid")
	text, class := "none failed", "soft small"
	if total > 0 {
		text, class = digits(total)+" failed", "bad small strong"
	}
	d.text(80, y+8, "end", class, text)
}
