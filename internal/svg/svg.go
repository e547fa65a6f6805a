// Package svg writes drawings as SVG, for the charts of the bench and the pictures of chaos.
package svg

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// A Drawing is an SVG in the making. The zero value is empty. Attributes are given as names and
// values in turn; one whose value is empty is left out.
type Drawing struct{ b strings.Builder }

// A Point is a place in a drawing.
type Point struct{ X, Y float64 }

// Text writes a text at a place.
func (d *Drawing) Text(x, y float64, text string, attrs ...string) {
	d.Open("text", append([]string{"x", Num(x), "y", Num(y)}, attrs...)...)
	d.b.WriteString(Escape(text))
	d.Close("text")
}

// Line draws from one point to another.
func (d *Drawing) Line(x1, y1, x2, y2 float64, attrs ...string) {
	d.empty("line", append([]string{"x1", Num(x1), "y1", Num(y1), "x2", Num(x2), "y2", Num(y2)}, attrs...))
}

// Rect draws a rectangle.
func (d *Drawing) Rect(x, y, width, height float64, attrs ...string) {
	d.empty("rect", append([]string{"x", Num(x), "y", Num(y), "width", Num(max(width, 0)), "height", Num(max(height, 0))}, attrs...))
}

// Circle draws a circle.
func (d *Drawing) Circle(x, y, radius float64, attrs ...string) {
	d.empty("circle", append([]string{"cx", Num(x), "cy", Num(y), "r", Num(radius)}, attrs...))
}

// Path draws through points, and back to the first one if it is closed.
func (d *Drawing) Path(points []Point, closed bool, attrs ...string) {
	if len(points) == 0 {
		return
	}
	var to strings.Builder
	for i, p := range points {
		to.WriteByte("ML"[min(i, 1)])
		to.WriteString(Num(p.X) + " " + Num(p.Y))
	}
	if closed {
		to.WriteByte('Z')
	}
	d.empty("path", append([]string{"d", to.String()}, attrs...))
}

// Tip begins a group with a text that a browser shows on hovering. Close("g") ends it.
func (d *Drawing) Tip(text string) {
	d.Open("g")
	d.Open("title")
	d.b.WriteString(Escape(text))
	d.Close("title")
}

// Open begins an element.
func (d *Drawing) Open(name string, attrs ...string) {
	d.begin(name, attrs)
	d.b.WriteByte('>')
}

// Close ends an element.
func (d *Drawing) Close(name string) { d.b.WriteString("</" + name + ">") }

func (d *Drawing) empty(name string, attrs []string) {
	d.begin(name, attrs)
	d.b.WriteString("/>")
}

func (d *Drawing) begin(name string, attrs []string) {
	d.b.WriteString("<" + name)
	for i := 0; i < len(attrs); i += 2 {
		if attrs[i+1] != "" {
			d.b.WriteString(" " + attrs[i] + `="` + Escape(attrs[i+1]) + `"`)
		}
	}
}

// Raw adds text that is SVG already.
func (d *Drawing) Raw(text string) { d.b.WriteString(text) }

// String returns the drawing.
func (d *Drawing) String() string { return d.b.String() }

// Num writes a coordinate. NaN and infinity would not be SVG: they are 0.
func Num(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = 0
	}
	return fmt.Sprintf("%g", math.Round(x*10)/10)
}

// Escape writes text so that it stands for itself, in an element and in an attribute.
func Escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}
