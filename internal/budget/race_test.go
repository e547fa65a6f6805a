//go:build race

package budget

func init() { race = true }
