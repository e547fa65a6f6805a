package chart

import (
	"math"
)

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

// Ratios compares with others: each row is how many times better we are, less than 1 where we are worse.
type Ratios struct {
	Head
	Rows []Ratio `json:"rows"`
}

// Ratio is a row.
type Ratio struct {
	Name  string  `json:"name"`
	Times float64 `json:"times"` // 0: not measured
	Least float64 `json:"least"` // 0: unknown, as is Most
	Most  float64 `json:"most"`
}

// SVG draws the chart: better to the right of the line, worse to the left.
func (c Ratios) SVG() string {
	left := 0.0
	values := []float64{0.5, 2}
	for _, r := range c.Rows {
		left = max(left, nameWidth(r.Name, r.Times < 1)+20)
		values = append(values, r.Times)
		if r.Most > 0 {
			values = append(values, r.Least, r.Most)
		}
	}
	left = min(left, 0.6*Width)
	const top = 28.0
	bottom := top + float64(len(c.Rows))*barRow
	x := newAxis(Log, "×", values, left+10, Width-80)
	var d drawing
	d.open(c.Head, bottom+28)
	for _, t := range x.ticks() {
		d.line(x.at(t.value), top, x.at(t.value), bottom, "grid")
		text := t.text
		if t.value < 0.9 {
			text = "1/" + digits(math.Round(1/t.value))
		}
		d.text(x.at(t.value), bottom+18, "middle", "soft small", text)
	}
	one := x.at(1)
	d.rect(left+10, top, one-left-10, bottom-top, "span")
	d.line(one, top-6, one, bottom, "axis")
	d.text(one-8, top-10, "end", "bad small strong", "← worse")
	d.text(one+8, top-10, "start", "soft small strong", "better →")
	for i, r := range c.Rows {
		y := top + (float64(i)+0.5)*barRow
		fill, class, text := "f-ours", "", digits(r.Times)+" times"
		switch {
		case r.Times == 0:
			text = "not measured"
		case r.Times < 1:
			fill, class, text = "f-bad", "strong", digits(1/r.Times)+" times worse"
		}
		d.Tip(r.Name + ": " + text)
		d.name(left, y+4.5, left-8, class, r.Name)
		at := x.at(r.Times)
		if r.Times > 0 {
			d.rect(min(one, at), y-2, math.Abs(at-one), 4, fill)
			if r.Most > 0 {
				d.line(x.at(r.Least), y, x.at(r.Most), y, "whisker")
			}
			d.circle(at, y, 6, fill)
		}
		d.text(max(at, x.at(r.Most), one)+12, y+4.5, "start", class, text)
		d.end()
	}
	return d.close()
}
