// Package chart draws the bars of the report as static SVG.
//
// Bars are plain data, which can be kept as JSON, and draw a document that needs nothing else. All
// can be read without colours: each bar has its name beside it, and our own bars are bolder. The
// colours are those of Okabe and Ito, which colour-blind people can tell apart. They follow the
// reader's preference for light or dark.
package chart

import (
	"fmt"
	"math"

	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/svg"
)

// Kind is the kind of a bar.
type Kind string

const (
	Ours  Kind = "ours"
	Rival Kind = "rival"
	Floor Kind = "floor" // a lower bound for every lock
)

// Bars is one bar per row, from the left, with a whisker from the least to the most that was seen,
// on a logarithmic scale.
type Bars struct {
	Name  string `json:"name"`            // the name of a file
	Title string `json:"title"`           // the subject, in a few words
	About string `json:"about,omitempty"` // how to read it, for readers that cannot see it as well
	Unit  string `json:"unit"`
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
	width     = 860 // in the units in which text is 13 high
	titleRoom = 34
	barHeight = 18
	barRow    = 27
)

const style = `.chart{--ink:#1b1f24;--soft:#59636e;--grid:#e3e6ea;--ground:#ffffff;--ours:#0072b2;--floor:#8b949e;--rival:#d55e00;
font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
@media (prefers-color-scheme:dark){.chart{--ink:#e6e9ed;--soft:#9aa4af;--grid:#2c333b;--ground:#14181d;--ours:#56b4e9;--floor:#7d8792;
--rival:#f0803c}}
.chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}.chart .small{font-size:11.5px}.chart .strong{font-weight:650}
.chart .head{font-size:15px;font-weight:650}.chart .grid{stroke:var(--grid);stroke-width:1}
.chart .axis{stroke:var(--soft);stroke-width:1}.chart .whisker{stroke:var(--ink);stroke-width:1.2;opacity:.75}
.chart .f-ours{fill:var(--ours)}.chart .f-floor{fill:var(--floor)}.chart .f-rival{fill:var(--rival)}
`

// SVG draws the chart.
func (c Bars) SVG() string {
	left, right := 0.0, 0.0
	var values []float64
	for _, r := range c.Rows {
		left = max(left, nameWidth(r)+22)
		right = max(right, 1.12*wide(stats.Format(r.Value, c.Unit))+0.88*wide(r.Note)+24)
		values = append(values, r.Value)
		if r.Most > 0 {
			values = append(values, r.Least, r.Most)
		}
	}
	left = min(left, 0.5*width)
	top, bottom := 8.0, 8+float64(len(c.Rows))*barRow
	x := newAxis(values, left, width-right)
	var d drawing
	d.open(c, bottom+28+titleRoom)
	for _, value := range x.ticks() {
		d.line(x.at(value), top, x.at(value), bottom, "grid")
		d.text(x.at(value), bottom+18, "middle", "soft small", stats.Format(value, c.Unit))
	}
	for i, r := range c.Rows {
		d.bar(r, stats.Format(r.Value, c.Unit), x, left, top+(float64(i)+0.5)*barRow)
	}
	d.line(left, top, left, bottom, "axis")
	d.Close("g")
	d.Close("svg")
	return d.String()
}

// drawing is a chart in the making.
type drawing struct{ svg.Drawing }

// open begins a document with a title and a ground to stand on, and a group below the title.
func (d *drawing) open(c Bars, height float64) {
	d.Open("svg", "xmlns", "http://www.w3.org/2000/svg", "class", "chart", "role", "img",
		"viewBox", fmt.Sprintf("0 0 %d %s", width, svg.Num(height)), "aria-labelledby", c.Name+"-t "+c.Name+"-d")
	for _, x := range [][3]string{{"title", "-t", c.Title}, {"desc", "-d", c.About}} {
		d.Open(x[0], "id", c.Name+x[1])
		d.Raw(svg.Escape(x[2]))
		d.Close(x[0])
	}
	d.Raw(fmt.Sprintf(`<style>%s</style><rect width="%d" height="%g" rx="6" style="fill:var(--ground)"/>`, style, width, height))
	d.text(14, 24, "start", "head", c.Title)
	d.Open("g", "transform", fmt.Sprintf("translate(0 %d)", titleRoom))
}

// bar draws a row around y, with its value as a text.
func (d *drawing) bar(r Bar, value string, x axis, left, y float64) {
	class, tip := "", r.Name+": "+value
	if r.Kind == Ours {
		class = "strong"
	}
	if r.Note != "" {
		tip += ", " + r.Note
	}
	d.Tip(tip)
	d.name(left-10, y+4.5, left-18, class, r)
	end := x.at(r.Value)
	d.Rect(left, y-barHeight/2, end-left, barHeight, "class", "f-"+string(r.Kind))
	if r.Most > 0 {
		a, b := x.at(r.Least), x.at(r.Most)
		d.line(a, y, b, y, "whisker")
		d.line(a, y-4, a, y+4, "whisker")
		d.line(b, y-4, b, y+4, "whisker")
		end = max(end, b)
	}
	d.text(end+8, y+4.5, "start", class, value)
	if r.Note != "" {
		d.text(end+18+1.12*wide(value), y+4.5, "start", "soft small", r.Note)
	}
	d.Close("g")
}

// name writes a row's name, which ends at x. If it is wider than room, it is made narrower.
func (d *drawing) name(x, y, room float64, class string, r Bar) {
	attrs := []string{"text-anchor", "end"}
	if nameWidth(r) > room {
		attrs = append(attrs, "textLength", svg.Num(room), "lengthAdjust", "spacingAndGlyphs")
	}
	d.Text(x, y, r.Name, append(attrs, "class", class)...)
}

func (d *drawing) text(x, y float64, anchor, class, s string) {
	d.Text(x, y, s, "text-anchor", anchor, "class", class)
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) { d.Line(x1, y1, x2, y2, "class", class) }

// nameWidth is about how wide a row's name is.
func nameWidth(r Bar) float64 {
	if r.Kind == Ours { // which is bold
		return 1.12 * wide(r.Name)
	}
	return wide(r.Name)
}

// wide is about how wide a text is.
func wide(s string) float64 { return 6.9 * float64(len([]rune(s))) }

// axis maps values to coordinates, by their logarithms.
type axis struct{ min, max, from, to float64 }

// newAxis makes an axis with a place for every value, and a length for the bar of each.
func newAxis(values []float64, from, to float64) axis {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if drawable(v) {
			least, most = min(least, math.Log10(v)), max(most, math.Log10(v))
		}
	}
	if least > most {
		return axis{0, 1, from, to}
	}
	a := axis{math.Floor(least + 1e-9), math.Ceil(most - 1e-9), from, to}
	if a.min == a.max {
		a.max++
	}
	if least-a.min < 0.2 {
		a.min--
	}
	return a
}

// drawable reports whether a value has a place on the axis. Zero has none.
func drawable(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// at returns the coordinate. A value beyond an end is put on that end.
func (a axis) at(v float64) float64 {
	if !drawable(v) {
		return a.from
	}
	part := (math.Log10(v) - a.min) / (a.max - a.min)
	return a.from + min(max(part, 0), 1)*(a.to-a.from)
}

// ticks are powers of ten. One is among them.
func (a axis) ticks() (values []float64) {
	const room = 80.0 // for a text beside the next
	every := max(math.Ceil((a.max-a.min)*room/math.Abs(a.to-a.from)), 1)
	for e := math.Ceil(a.min/every) * every; e <= a.max; e += every {
		values = append(values, math.Pow(10, e))
	}
	return values
}
