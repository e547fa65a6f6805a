package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/bench/stats"
)

// A drawing is XML without references to the outside and without NaN or infinity. It has the name
// of each bar. One chart has names and values that make trouble, and one has nothing.
func TestSVG(t *testing.T) {
	for name, c := range map[string]Bars{
		"bars": {Name: "x", Title: `a <title> & "more"`, About: "about it", Unit: stats.Nanoseconds, Rows: []Bar{
			{Name: "mutex <&>", Kind: Floor, Value: 13}, {Name: "ours", Kind: Ours, Value: 119, Least: 100, Most: 200},
			{Name: "none", Kind: Rival}, {Name: "slow", Kind: Rival, Value: 2e6, Least: 1e6, Most: 4e9},
		}},
		"no bars": {Name: "x"},
	} {
		text, ids := c.SVG(), map[string]bool{}
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if slices.Contains([]string{"script", "image", "use", "a", "foreignObject"}, e.Name.Local) {
				t.Errorf("%s has a %s", name, e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || a.Name.Local == "href" || a.Name.Local == "src" {
					t.Errorf("%s: %s=%q", name, a.Name.Local, a.Value)
				}
				if a.Name.Local == "id" {
					ids[a.Value] = true
				}
			}
		}
		if !ids["x-t"] || !ids["x-d"] || !strings.Contains(text, `aria-labelledby="x-t x-d"`) {
			t.Errorf("%s has no title or description", name)
		}
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "//") || strings.Contains(text, "url(") {
			t.Errorf("%s refers to something", name)
		}
		for _, want := range []string{">mutex &lt;&amp;&gt;<", ">ours<", ">119 ns<", ">2 ms<", ">100 ms<"} {
			if len(c.Rows) > 0 && !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	}
}

// A value ten times as great is as much further, whatever it is.
func TestAxis(t *testing.T) {
	for _, test := range []struct {
		values []float64
		at     map[float64]float64
		ticks  []float64
	}{
		{[]float64{3, 800}, map[float64]float64{1: 0, 1000: 100, 10: 100.0 / 3, 0: 0, 1e9: 100}, []float64{1, 10, 100, 1000}},
		{[]float64{10, 0, math.NaN()}, map[float64]float64{1: 0, 10: 50}, []float64{1, 10, 100}},
		{nil, map[float64]float64{0: 0, 1: 0, 10: 100}, []float64{1, 10}},
	} {
		a := newAxis(test.values, 0, 300)
		for v, want := range test.at {
			if got := a.at(v) / 3; math.Abs(got-want) > 1e-6 {
				t.Errorf("%v: %v is at %v, want %v", test.values, v, got, want)
			}
		}
		if got := a.ticks(); !slices.Equal(got, test.ticks) {
			t.Errorf("%v: ticks %v, want %v", test.values, got, test.ticks)
		}
	}
}

// A name that has no room is made narrower, not cut off.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("a name that goes on ", 8)
	svg := Bars{Name: "b", Unit: "/s", Rows: []Bar{{Name: "redislock", Kind: Rival, Value: 1}, {Name: long, Kind: Ours, Value: 2}}}.SVG()
	if n := strings.Count(svg, "textLength="); n != 1 || !strings.Contains(svg, long) {
		t.Errorf("%d names were made narrower, want 1", n)
	}
}
