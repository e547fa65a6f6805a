// Package chart draws the figures of the report as static SVG.
//
// A chart is plain data, which can be kept as JSON, and has a method SVG. Charts know nothing of each other: a page puts Style
// into its head once, and any number of charts into its body. Standalone makes a file of one.
//
// Everything can be read without colours: each line and bar has its name beside it, what is ours is drawn bolder, and
// lines differ by their dashes. The colours are those of Okabe and Ito, which colour-blind people can tell apart. They follow
// the reader's preference for light or dark.
package chart

import (
	"fmt"
	"math"
	"strings"

	"github.com/holdfast-go/holdfast/internal/svg"
)

// Width is that of all charts, in the units in which text is 13 high.
const Width = 860

// Kind says what something is that is drawn.
type Kind string

const (
	Ours  Kind = "ours"
	Rival Kind = "rival"
	Floor Kind = "floor" // what nothing can be faster than
)

// Head is what all charts have.
type Head struct {
	Name  string `json:"name"`            // unique in a page; the name of a file
	Title string `json:"title"`           // what it shows, in a few words
	About string `json:"about,omitempty"` // how to read it, for readers that cannot see it as well
}

// Heading returns it.
func (h Head) Heading() Head { return h }

// Chart is any of them.
type Chart interface {
	Heading() Head
	SVG() string
}

// Style is the CSS of all charts.
const Style = `.chart{--ink:#1b1f24;--soft:#59636e;--grid:#e3e6ea;--ground:#ffffff;--ours:#0072b2;--floor:#8b949e;--bad:#c4450c;
--r0:#d55e00;--r1:#009e73;--r2:#b3579b;--r3:#b87d00;--r4:#56707f;font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
@media (prefers-color-scheme:dark){.chart{--ink:#e6e9ed;--soft:#9aa4af;--grid:#2c333b;--ground:#14181d;--ours:#56b4e9;--floor:#7d8792;
--bad:#f0803c;--r0:#f0803c;--r1:#2fc79a;--r2:#d98cc4;--r3:#e6a82e;--r4:#9db5c2}}
.chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}.chart .small{font-size:11.5px}.chart .strong{font-weight:650}
.chart .halo{paint-order:stroke;stroke:var(--ground);stroke-width:4px}
.chart .head{font-size:15px;font-weight:650}.chart .bad{fill:var(--bad)}
.chart .grid{stroke:var(--grid);stroke-width:1}.chart .axis{stroke:var(--soft);stroke-width:1}
.chart .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}.chart .span{fill:var(--soft);opacity:.13}
.chart .whisker{stroke:var(--ink);stroke-width:1.2;opacity:.75}.chart .line{fill:none;stroke-width:1.8}
.chart .line.ours{stroke-width:3}.chart .lead{stroke-width:1;opacity:.6}.chart .band{opacity:.16;stroke:none}
.chart .s-ours{stroke:var(--ours)}.chart .f-ours{fill:var(--ours)}.chart .s-floor{stroke:var(--floor)}.chart .f-floor{fill:var(--floor)}
.chart .f-bad{fill:var(--bad)}.chart .s-bad{stroke:var(--bad)}.chart .f-rival{fill:var(--r0)}.chart .s-rival{stroke:var(--r0)}
.chart .s-r0{stroke:var(--r0)}.chart .s-r1{stroke:var(--r1)}.chart .s-r2{stroke:var(--r2)}.chart .s-r3{stroke:var(--r3)}.chart .s-r4{stroke:var(--r4)}
.chart .f-r0{fill:var(--r0)}.chart .f-r1{fill:var(--r1)}.chart .f-r2{fill:var(--r2)}.chart .f-r3{fill:var(--r3)}.chart .f-r4{fill:var(--r4)}
`

// Standalone makes a chart that SVG returned a document of its own, with its title and a ground to stand on.
func Standalone(h Head, chart string) string {
	const room = 34
	body := chart[strings.Index(chart, ">")+1:]
	var w, height float64
	_, _ = fmt.Sscanf(chart[strings.Index(chart, `viewBox="`)+9:], "0 0 %g %g", &w, &height)
	d := drawing{}
	d.open(h, height+room)
	d.Raw(fmt.Sprintf(`<style>%s</style><rect width="%g" height="%g" rx="6" style="fill:var(--ground)"/>`, Style, w, height+room))
	d.text(14, 24, "start", "head", h.Title)
	d.Open("g", "transform", fmt.Sprintf("translate(0 %d)", room))
	// The title and the description are those of the whole.
	d.Raw(body[strings.Index(body, "</desc>")+len("</desc>") : len(body)-len("</svg>")])
	d.end()
	return d.close()
}

// drawing is a chart in the making.
type drawing struct{ svg.Drawing }

type point = svg.Point

func (d *drawing) open(h Head, height float64) {
	d.Open("svg", "xmlns", "http://www.w3.org/2000/svg", "class", "chart", "role", "img",
		"viewBox", fmt.Sprintf("0 0 %d %s", Width, svg.Num(height)), "aria-labelledby", h.Name+"-t "+h.Name+"-d")
	for _, x := range [][3]string{{"title", "-t", h.Title}, {"desc", "-d", h.About}} {
		d.Open(x[0], "id", h.Name+x[1])
		d.Raw(svg.Escape(x[2]))
		d.Close(x[0])
	}
}

func (d *drawing) close() string {
	d.Close("svg")
	return d.String()
}

func (d *drawing) text(x, y float64, anchor, class, s string) { d.fitted(x, y, 0, anchor, class, s) }

// name is text that ends at x. If it is wider than room, it is made narrower.
func (d *drawing) name(x, y, room float64, class, s string) {
	if nameWidth(s, class == "strong") <= room {
		room = 0
	}
	d.fitted(x, y, room, "end", class, s)
}

// fitted is text that is as wide as width; 0: as it is.
func (d *drawing) fitted(x, y, width float64, anchor, class, s string) {
	attrs := []string{"text-anchor", anchor}
	if width > 0 {
		attrs = append(attrs, "textLength", svg.Num(width), "lengthAdjust", "spacingAndGlyphs")
	}
	d.Text(x, y, s, append(attrs, "class", class)...)
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) { d.Line(x1, y1, x2, y2, "class", class) }

func (d *drawing) rect(x, y, w, h float64, class string) { d.Rect(x, y, w, h, "class", class) }

func (d *drawing) circle(x, y, r float64, class string) { d.Circle(x, y, r, "class", class) }

// path draws through points; dash is a stroke-dasharray, empty for none.
func (d *drawing) path(points []point, closed bool, class, dash string) {
	d.Path(points, closed, "class", class, "stroke-dasharray", dash)
}

func (d *drawing) end() { d.Close("g") }

// nameWidth is about how wide a name is.
func nameWidth(s string, strong bool) float64 {
	if strong {
		return 1.12 * wide(s)
	}
	return wide(s)
}

// wide is about how wide a text is.
func wide(s string) float64 { return 6.9 * float64(len([]rune(s))) }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
