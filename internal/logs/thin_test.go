package logs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/logs"
)

func TestThin_LeavesRoomForOtherMessages(t *testing.T) {
	for all, want := range map[string]string{
		"":                                  "",
		"a n=1|a n=2":                       "a n=1|a n=2",
		"a n=1|a n=2|a n=3|a n=4|a n=5":     "a n=1|a n=2|a n=3|a n=4",
		"a n=1|a n=2|a n=3|a n=4|b":         "a n=1|a n=2|a n=3|b",
		"b|a n=1|b|a n=2|c x=1|a n=3|a n=4": "b|a n=1|b|c x=1",
		"a|b|c|d|e|f":                       "a|b|c|d",
		"a x=1|a y=1|a x=2|a x=3|a x=4|b":   "a x=1|a y=1|a x=2|b",
	} {
		var records []string
		if all != "" {
			records = strings.Split(all, "|")
		}
		before := slices.Clone(records)
		if got := strings.Join(logs.Thin(records, 4, func(s string) string { return s }), "|"); got != want {
			t.Errorf("%s: %s, want %s", all, got, want)
		}
		if !slices.Equal(records, before) {
			t.Errorf("%v became %v", before, records)
		}
	}
}
