//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
)

// lockCommand and electCommand run commands under locks, which needs the signals, process groups
// and terminals of Unix.
func lockCommand(*settings) *cobra.Command { return missingCommand("lock") }

func electCommand(*settings) *cobra.Command { return missingCommand("elect") }

func missingCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Not on " + runtime.GOOS,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &statusError{statusFailed, fmt.Errorf("%s runs commands on Unix only, and this is %s", name, runtime.GOOS)}
		},
	}
}

func heeded(signals []os.Signal) []os.Signal { return signals }

func inBackground(f func()) { f() }

type deathError struct{ error }

func (*deathError) die() {}
