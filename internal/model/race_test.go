//go:build race

package model

func init() { race = true }
