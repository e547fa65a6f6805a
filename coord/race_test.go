//go:build race

package coord

func init() { race = true }
