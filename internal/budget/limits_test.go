package budget

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestLimitsAreReadAsWritten(t *testing.T) {
	want := Limits{Go: "go1.26", Paths: []Limit{{"a/b", 0, 12345}, {"c", 1.5, 0}}}
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v from\n%s", got, err, text)
	}
	for _, wrong := range []string{"go1.26\na 1", "go1.26\na x 1", "go1.26\na 1 1\na 1 1"} {
		if l, err := Read(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q: %+v", wrong, l)
		}
	}
}
