package chart

import "math"

// Bars is one bar per row, from the left, with a whisker from the least to the most that was seen.
type Bars struct {
	Head
	Unit  string `json:"unit"`
	Scale Scale  `json:"scale"`
	Rows  []Bar  `json:"rows"`
}

// Bar is a row.
type Bar struct {
	Name  string  `json:"name"`
	Kind  Kind    `json:"kind"`
	Value float64 `json:"value"`
	Least float64 `json:"least"` // 0: unknown, as is Most
	Most  float64 `json:"most"`
	Note  string  `json:"note,omitempty"` // behind the value
}

const (
	barHeight = 18
	barRow    = 27
)

// SVG draws the chart.
func (c Bars) SVG() string {
	left, right := 0.0, 0.0
	var values []float64
	for _, r := range c.Rows {
		left = max(left, nameWidth(r.Name, r.Kind == Ours)+22)
		right = max(right, 1.12*wide(Format(r.Value, c.Unit))+0.88*wide(r.Note)+24)
		values = append(values, r.Value)
		if r.Most > 0 {
			values = append(values, r.Least, r.Most)
		}
	}
	left = min(left, 0.5*Width)
	top, bottom := 8.0, 8+float64(len(c.Rows))*barRow
	x := newAxis(c.Scale, c.Unit, values, left, Width-right)
	if c.Scale == Log { // a bar needs a beginning that is less than its end
		least := math.Inf(1)
		for _, v := range values {
			if x.drawable(v) {
				least = min(least, x.raw(v))
			}
		}
		if least-x.min < 0.2 {
			x.min--
		}
	}
	var d drawing
	d.open(c.Head, bottom+28)
	for _, t := range x.ticks() {
		d.line(x.at(t.value), top, x.at(t.value), bottom, "grid")
		d.text(x.at(t.value), bottom+18, "middle", "soft small", t.text)
	}
	for i, r := range c.Rows {
		y := top + (float64(i)+0.5)*barRow
		class := ""
		if r.Kind == Ours {
			class = "strong"
		}
		d.Tip(r.Name + ": " + c.value(r))
		d.name(left-10, y+4.5, left-18, class, r.Name)
		end := x.at(r.Value)
		d.rect(left, y-barHeight/2, end-left, barHeight, "f-"+string(r.Kind))
		if r.Most > 0 {
			a, b := x.at(r.Least), x.at(r.Most)
			d.line(a, y, b, y, "whisker")
			d.line(a, y-4, a, y+4, "whisker")
			d.line(b, y-4, b, y+4, "whisker")
			end = max(end, b)
		}
		text := Format(r.Value, c.Unit)
		d.text(end+8, y+4.5, "start", class, text)
		if r.Note != "" {
			d.text(end+18+1.12*wide(text), y+4.5, "start", "soft small", r.Note)
		}
		d.end()
	}
	d.line(left, top, left, bottom, "axis")
	return d.close()
}

func (c Bars) value(r Bar) string {
	s := Format(r.Value, c.Unit)
	if r.Note != "" {
		s += ", " + r.Note
	}
	return s
}
