package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var head = Head{Name: "x", Title: `a <title> & "more"`, About: "about it"}

// charts are one of each kind, with names and values that make trouble.
var charts = map[string]interface{ SVG() string }{
	"bars": Bars{Head: head, Unit: Nanoseconds, Scale: Log, Rows: []Bar{
		{Name: "mutex <&>", Kind: Floor, Value: 13}, {Name: "ours", Kind: Ours, Value: 119, Least: 100, Most: 200},
		{Name: "none", Kind: Rival}, {Name: "slow", Kind: Rival, Value: 2e6, Least: 1e6, Most: 4e9},
	}},
	"no bars": Bars{Head: head, Scale: Log},
	"lines": Lines{Head: head, X: Axis{"keys", "", Log}, Y: Axis{"cost", Nanoseconds, Linear}, Series: []Line{
		{Name: "ours", Kind: Ours, Points: []Point{{1, 100, 90, 110}, {1000, 120, 100, 130}, {1e6, 300, 0, 0}}},
		{Name: "theirs", Kind: Rival, Points: []Point{{0, 100, 0, 0}, {1000, 120, 0, 0}}},
		{Name: "the same", Kind: Rival, Points: []Point{{1000, 120, 0, 0}}}, {Name: "empty", Kind: Floor},
	}},
	"quantiles": Lines{Head: head, X: Axis{"part", "", Quantile}, Y: Axis{"wait", Nanoseconds, Log}, Series: []Line{
		{Name: "ours", Kind: Ours, Points: []Point{{X: 0, Y: 1}, {X: 0.5, Y: 10}, {X: 0.99, Y: 1e6}, {X: 1, Y: 1e7}}},
	}},
	"ratios": Ratios{Head: head, Rows: []Ratio{{Name: "better", Times: 8, Least: 7, Most: 9}, {Name: "worse", Times: 0.5}, {Name: "nothing"}}},
	"timeline": Timeline{Head: head, Bucket: 0.1, Rate: "locks/s", Tracks: []Track{
		{Name: "ours", Kind: Ours, Done: []float64{1, 2, 3}, Wait: []float64{1e6, 0, 2e9}, Failed: []float64{0, 0, 0},
			Events: []Event{{"killed", 0.1, 0}, {"down", 0.1, 0.2}, {"late <", 0.29, 0}}},
		{Name: "theirs", Kind: Rival, Done: []float64{1, 2}, Wait: []float64{1e6, 5e9}, Failed: []float64{0, 7}},
	}},
	"no timeline": Timeline{Head: head},
}

// What is drawn is XML that refers to nothing outside and has no number that is none.
func TestWellFormed(t *testing.T) {
	for name, c := range charts {
		for _, text := range []string{c.SVG(), Standalone(head, c.SVG())} {
			depth, ids := 0, map[string]bool{}
			for d := xml.NewDecoder(strings.NewReader(text)); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, text)
				}
				switch e := token.(type) {
				case xml.StartElement:
					if depth++; depth == 1 && e.Name.Local != "svg" {
						t.Errorf("%s begins with %s", name, e.Name.Local)
					}
					if slices.Contains([]string{"script", "image", "use", "a", "foreignObject"}, e.Name.Local) {
						t.Errorf("%s has a %s", name, e.Name.Local)
					}
					for _, a := range e.Attr {
						if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || a.Name.Local == "href" || a.Name.Local == "src" {
							t.Errorf("%s: %s=%q", name, a.Name.Local, a.Value)
						}
						if a.Name.Local == "id" {
							if ids[a.Value] {
								t.Errorf("%s: %s is there twice", name, a.Value)
							}
							ids[a.Value] = true
						}
					}
				case xml.EndElement:
					depth--
				}
			}
			if !ids["x-t"] || !ids["x-d"] || !strings.Contains(text, `aria-labelledby="x-t x-d"`) {
				t.Errorf("%s has no title or description", name)
			}
			if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "//") || strings.Contains(text, "url(") {
				t.Errorf("%s refers to something", name)
			}
		}
	}
}

// Everything has its name beside it.
func TestNamesAreThere(t *testing.T) {
	for name, want := range map[string][]string{
		"bars":     {">mutex &lt;&amp;&gt;<", ">ours<", ">119 ns<", ">2 ms<", ">100 ms<"},
		"lines":    {">ours<", ">theirs<", ">the same<", ">keys<", ">cost<", ">1 M<"},
		"ratios":   {">8 times<", ">2 times worse<", ">1×<", ">1/10<", "f-bad"},
		"timeline": {">ours<", ">killed<", ">none failed<", ">7 failed<", ">longest 5 s<", ">longest wait<"},
	} {
		text := charts[name].SVG()
		for _, s := range want {
			if !strings.Contains(text, s) {
				t.Errorf("%s: no %s in\n%s", name, s, text)
			}
		}
	}
}

// A bar twice as long, on a logarithmic scale, is as many decades.
func TestBarsAreToScale(t *testing.T) {
	text := Bars{Head: head, Unit: Number, Scale: Log, Rows: []Bar{
		{Name: "a", Kind: Ours, Value: 10}, {Name: "b", Kind: Ours, Value: 100}, {Name: "c", Kind: Ours, Value: 1000},
	}}.SVG()
	var widths []float64
	for _, part := range strings.Split(text, "<rect ")[1:] {
		_, after, _ := strings.Cut(part, `width="`)
		text, _, _ := strings.Cut(after, `"`)
		w, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		widths = append(widths, w)
	}
	if len(widths) != 3 || math.Abs((widths[1]-widths[0])-(widths[2]-widths[1])) > 0.2 || widths[0] <= 1 {
		t.Errorf("%v", widths)
	}
}

func TestAxis(t *testing.T) {
	for _, test := range []struct {
		scale  Scale
		values []float64
		at     map[float64]float64
		ticks  string
	}{
		{Log, []float64{3, 800}, map[float64]float64{1: 0, 1000: 100, 10: 100.0 / 3, 0: 0, 1e9: 100}, "1 10 100 1,000"},
		{Log, []float64{10, 0, math.NaN()}, map[float64]float64{10: 0}, "10 100"},
		{Linear, []float64{3, 47}, map[float64]float64{0: 0, 50: 100, 25: 50}, "0 10 20 30 40 50"},
		{Linear, nil, map[float64]float64{0: 0}, "0 0.2 0.4 0.6 0.8 1"},
		{Quantile, []float64{0, 0.99, 1}, map[float64]float64{0: 0, 0.9: 50, 0.99: 100}, "0 % 50 % 90 % 99 %"},
	} {
		a := newAxis(test.scale, "", test.values, 0, 300)
		for v, want := range test.at {
			if got := a.at(v) / 3; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s %v: %v is at %v, want %v", test.scale, test.values, v, got, want)
			}
		}
		var texts []string
		for _, x := range a.ticks() {
			texts = append(texts, x.text)
		}
		if got := strings.Join(texts, " "); got != test.ticks {
			t.Errorf("%s %v: ticks %s, want %s", test.scale, test.values, got, test.ticks)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		v    float64
		unit string
		want string
	}{
		{13.04, Nanoseconds, "13 ns"}, {999.9, Nanoseconds, "1 µs"}, {67_400, Nanoseconds, "67.4 µs"}, {0, Nanoseconds, "0 ns"},
		{1.5e9, Nanoseconds, "1.5 s"}, {731_614, "/s", "732 k/s"}, {1234, "", "1,234"}, {0.0008, "", "8e-04"}, {12, "bytes", "12 bytes"},
		{math.NaN(), "", "–"}, {0.05, "", "0.05"}, {4.126, "×", "4.13×"},
	} {
		if got := Format(test.v, test.unit); got != test.want {
			t.Errorf("%v %q: %q, want %q", test.v, test.unit, got, test.want)
		}
	}
}

// A name that has no room is made narrower, not cut off.
func TestLongNames(t *testing.T) {
	short, long := "redislock", strings.Repeat("a name that goes on ", 8)
	for name, svg := range map[string]string{
		"bars":   Bars{Head: Head{Name: "b"}, Unit: "/s", Rows: []Bar{{Name: short, Kind: Rival, Value: 1}, {Name: long, Kind: Ours, Value: 2}}}.SVG(),
		"ratios": Ratios{Head: Head{Name: "r"}, Rows: []Ratio{{Name: short, Times: 2}, {Name: long, Times: 0.5}}}.SVG(),
	} {
		if n := strings.Count(svg, "textLength="); n != 1 || strings.Count(svg, long) == 0 {
			t.Errorf("%s: %d names were made narrower, want 1", name, n)
		}
	}
}
