//go:build !linux

package main

import "errors"

func cores() ([]int, error) { return nil, errors.New("only Linux can pin") }

func pin(int, int) (func() error, error) { return nil, errors.New("only Linux can pin") }

func onCore(_ int, f func() error) error { return f() }
