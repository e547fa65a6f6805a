// Package middleware puts the locks of a [coord.Coordinator] around handlers of net/http.
package middleware
