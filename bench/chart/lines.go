package chart

import (
	"fmt"
	"math"
	"slices"
)

// Lines is a line per series, each with its name at its end.
type Lines struct {
	Head
	X      Axis   `json:"x"`
	Y      Axis   `json:"y"`
	Series []Line `json:"series"`
}

// Axis says what an axis is about.
type Axis struct {
	Label string `json:"label"`
	Unit  string `json:"unit"`
	Scale Scale  `json:"scale"`
}

// Line is a series.
type Line struct {
	Name   string  `json:"name"`
	Kind   Kind    `json:"kind"`
	Points []Point `json:"points"`
}

// Point is a value and, where Most is not 0, between what it varied.
type Point struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	Least float64 `json:"least,omitempty"`
	Most  float64 `json:"most,omitempty"`
}

const (
	linesHeight = 330
	labelRoom   = 17 // between the names of two lines
)

var dashes = []string{"7 3", "2 3", "9 3 2 3", "4 2", "1 4"}

// look is the colour and the dashes of the n-th line of a kind.
func look(k Kind, n int) (colour, dash string) {
	switch {
	case k == Rival:
		return fmt.Sprintf("r%d", n%5), dashes[n%len(dashes)]
	case k == Floor:
		return "floor", "4 3"
	case n > 0:
		return "ours", dashes[(n-1)%len(dashes)]
	}
	return "ours", ""
}

// SVG draws the chart.
func (c Lines) SVG() string {
	var xs, ys []float64
	right := 40.0
	for _, s := range c.Series {
		room := wide(s.Name) + 34
		if s.Kind == Ours {
			room = 1.16*wide(s.Name) + 34 // bold
		}
		right = max(right, room)
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
			if p.Most > 0 {
				ys = append(ys, p.Least, p.Most)
			}
		}
	}
	const left, top, bottom = 76.0, 30.0, linesHeight - 52.0
	end := Width - min(right, 0.4*Width)
	x, ticks := among(c.X.Scale, c.X.Unit, xs, left, end)
	y := newAxis(c.Y.Scale, c.Y.Unit, ys, bottom, top)
	var d drawing
	d.open(c.Head, linesHeight)
	for _, t := range y.ticks() {
		d.line(left, y.at(t.value), end, y.at(t.value), "grid")
		d.text(left-8, y.at(t.value)+4, "end", "soft small", t.text)
	}
	for _, t := range ticks {
		d.line(x.at(t.value), bottom, x.at(t.value), bottom+5, "axis")
		d.text(x.at(t.value), bottom+19, "middle", "soft small", t.text)
	}
	d.line(left, bottom, end, bottom, "axis")
	d.text(10, 15, "start", "soft small", c.Y.Label)
	d.text((left+end)/2, bottom+40, "middle", "soft small", c.X.Label)

	type label struct {
		name, colour string
		at           point
		y            float64
		strong       bool
	}
	var labels []label
	seen := make(map[Kind]int)
	order := slices.Clone(c.Series)
	slices.SortStableFunc(order, func(a, b Line) int { // ours on top of the others
		return weight(a.Kind) - weight(b.Kind)
	})
	for _, s := range order {
		colour, dash := look(s.Kind, seen[s.Kind])
		seen[s.Kind]++
		var through, above, below []point
		for _, p := range s.Points {
			if !x.drawable(p.X) || !y.drawable(p.Y) {
				continue
			}
			q := point{X: x.at(p.X), Y: y.at(p.Y)}
			through = append(through, q)
			if p.Most > 0 {
				above, below = append(above, point{X: q.X, Y: y.at(p.Most)}), append(below, point{X: q.X, Y: y.at(p.Least)})
			}
		}
		if len(through) == 0 {
			continue
		}
		slices.Reverse(below)
		d.path(append(above, below...), true, "band f-"+colour, "")
		d.path(through, false, "line "+string(s.Kind)+" s-"+colour, dash)
		for _, p := range s.Points {
			if x.drawable(p.X) && y.drawable(p.Y) {
				d.Tip(s.Name + ": " + Format(p.Y, c.Y.Unit))
				d.circle(x.at(p.X), y.at(p.Y), 3, "f-"+colour)
				d.end()
			}
		}
		last := through[len(through)-1]
		labels = append(labels, label{s.Name, colour, last, last.Y, s.Kind == Ours})
	}
	slices.SortStableFunc(labels, func(a, b label) int {
		// Of lines that end at about the same height, the one that ends first has its name below: so the leads do not cross.
		if rows := math.Round(a.at.Y/8) - math.Round(b.at.Y/8); rows != 0 {
			return int(rows)
		}
		return int(10 * (b.at.X - a.at.X))
	})
	for i := 1; i < len(labels); i++ {
		labels[i].y = max(labels[i].y, labels[i-1].y+labelRoom)
	}
	for i := len(labels) - 1; i >= 0; i-- { // and back from the bottom
		limit := bottom + 4.0
		if i+1 < len(labels) {
			limit = labels[i+1].y - labelRoom
		}
		labels[i].y = min(labels[i].y, limit)
	}
	for _, l := range labels {
		class := ""
		if l.strong {
			class = "strong"
		}
		d.line(l.at.X+5, l.at.Y, end+20, l.y, "lead s-"+l.colour)
		d.text(end+24, l.y+4, "start", class, l.name)
	}
	return d.close()
}

func weight(k Kind) int {
	switch k {
	case Floor:
		return 0
	case Rival:
		return 1
	}
	return 2
}
