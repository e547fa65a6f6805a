//go:build linux && !mutants

package main

import "errors"

func takeOut(string) error {
	return errors.New("guards can be taken out in a build with -tags mutants only")
}
