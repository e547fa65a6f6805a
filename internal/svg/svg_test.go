package svg_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/svg"
)

func TestDrawing(t *testing.T) {
	var d svg.Drawing
	d.Open("svg", "xmlns", "http://www.w3.org/2000/svg")
	d.Tip(`a "tip" <b>`)
	d.Rect(1, math.NaN(), -3, 4.56, "class", "", "fill", `"red"`)
	d.Close("g")
	d.Line(0, 0, 1, 1)
	d.Circle(1, 2, 3)
	d.Path(nil, true)
	d.Path([]svg.Point{{X: 0, Y: 0}, {X: 1.04, Y: math.Inf(1)}, {X: 2, Y: 2}}, true, "class", "line")
	d.Text(1, 2, "<text> & more")
	d.Raw("<g/>")
	d.Close("svg")
	want := `<svg xmlns="http://www.w3.org/2000/svg"><g><title>a &#34;tip&#34; &lt;b&gt;</title>` +
		`<rect x="1" y="0" width="0" height="4.6" fill="&#34;red&#34;"/></g><line x1="0" y1="0" x2="1" y2="1"/><circle cx="1" cy="2" r="3"/>` +
		`<path d="M0 0L1 0L2 2Z" class="line"/><text x="1" y="2">&lt;text&gt; &amp; more</text><g/></svg>`
	if d.String() != want {
		t.Errorf("got\n%s\nwant\n%s", d.String(), want)
	}
	for dec := xml.NewDecoder(strings.NewReader(d.String())); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
