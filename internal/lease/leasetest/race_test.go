//go:build race

package leasetest

func init() { race = true }
