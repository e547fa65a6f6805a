//go:build !linux

package harness

import "errors"

func Cores() ([]int, error) { return nil, errors.New("only Linux can pin") }

func Pin(int, int) (func() error, error) { return nil, errors.New("only Linux can pin") }

func onCore(_ int, f func() error) error { return f() }
