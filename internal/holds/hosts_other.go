//go:build unix && !linux

package main

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// hosts are network namespaces, which only Linux has.
type hosts struct{}

func newHosts(int) (*hosts, error) { return nil, errors.New("cuts need Linux") }

func (*hosts) remove() error { return nil }

func (*hosts) redis() (p redistest.Place) { return p }

func (*hosts) within(int, func(ip string) error) error { return nil }

func (*hosts) cut([]int, lines) (mend func() error, err error) { return nil, nil }

func (*hosts) apart(int, int) error { return nil }
