package coord

import (
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"
)

// logged returns a key, which may be any bytes and long, as an attribute: handlers quote what they
// have to.
func logged(key string) string {
	const most = 64
	rest := ""
	if len(key) > most {
		rest = "... (" + strconv.Itoa(len(key)) + " bytes)"
		key = key[:most]
		for len(key) > most-utf8.UTFMax && !utf8.ValidString(key) { // it may end within a character
			key = key[:len(key)-1]
		}
	}
	if !utf8.ValidString(key) {
		key = strings.Trim(strconv.Quote(key), `"`)
	}
	return key + rest
}

// optional returns the value of an attribute, which the record is without if that is the zero
// value: slog leaves out empty groups.
func optional[T comparable](v T) any {
	var zero T
	if v == zero {
		return slog.GroupValue()
	}
	return v
}
