//go:build unix

package redisquorum

import "syscall"

const stop, goOn = syscall.SIGSTOP, syscall.SIGCONT
