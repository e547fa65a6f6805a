//go:build !linux

package harness

import (
	"errors"
	"time"
)

func cores() ([]int, error) { return nil, errors.New("only Linux can pin") }

func Pin(int, int) (func() error, error) { return nil, errors.New("only Linux can pin") }

func onCore(_ int, f func() error) error { return f() }

func Children(int) []int { return nil }

func ProcessCPU([]int) time.Duration { return 0 }
