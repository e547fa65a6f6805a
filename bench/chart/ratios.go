package chart

import "math"

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
