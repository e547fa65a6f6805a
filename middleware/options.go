package middleware

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// roundUp returns how many units d has, the last one begun. To add one unit less a bit, as one
// would, overflows where d is for ever.
func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// checkMethods: methods are compared as they are, so that "post" would never match.
func checkMethods(field string, methods []string) error {
	for _, m := range methods {
		if !isToken(m) || m != strings.ToUpper(m) {
			return fmt.Errorf("middleware: %s: %q is not the name of a method, in capitals", field, m)
		}
	}
	return nil
}

// checkHeader: a bad name would be dropped by net/http, without a word.
func checkHeader(field, name string) error {
	if name != "" && !isToken(name) {
		return fmt.Errorf("middleware: %s: %q is not the name of a header", field, name)
	}
	return nil
}

// isToken is the grammar of names in HTTP (RFC 9110, 5.6.2).
func isToken(s string) bool {
	return s != "" && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0
	})
}
