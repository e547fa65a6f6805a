package guardians_test

import (
	"reflect"
	"testing"

	"github.com/holdfast-go/holdfast/internal/guardians"
)

func TestEncodeSets_AreDecoded(t *testing.T) {
	for _, sets := range [][]guardians.Set{
		nil, {{Version: 1}}, {{Version: 7, Members: []string{"a", "bc"}}},
		{{Version: 1<<32 - 1, Members: []string{"a", "b", "c", "d", "e"}}, {Version: 2}},
	} {
		text := guardians.EncodeSets(sets)
		if got, ok := guardians.DecodeSets(string(text)); !ok || !reflect.DeepEqual(got, sets) {
			t.Errorf("%v is %q, which is %v, %v", sets, text, got, ok)
		}
	}
	for _, bad := range []string{" ", "0", "0,a", "a", "1,", "1,a,a", "1,a,b,c,d,e,f", "1 2 3", "1  2", "4294967296", "01", "+1", "-1"} {
		if got, ok := guardians.DecodeSets(bad); ok {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

// FuzzDecodeSets: decoded sets are encoded as the same text.
func FuzzDecodeSets(f *testing.F) {
	for _, s := range []string{"", "1", "1,a", "3,a,b 4,b,c", "0", "1 ", "+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sets, ok := guardians.DecodeSets(text)
		if ok && string(guardians.EncodeSets(sets)) != text {
			t.Errorf("%q is %v, which is %q", text, sets, guardians.EncodeSets(sets))
		}
	})
}
