//go:build race

package takeover

func init() { race = true }
