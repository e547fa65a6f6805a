//go:build !linux

package redistest

import "os/exec"

// endWithParent can do nothing here: servers of a process that was killed go on.
func endWithParent(*exec.Cmd) {}

// kill ends a process, and waits for it.
func kill(cmd *exec.Cmd, ended <-chan struct{}) {
	_ = cmd.Process.Kill()
	<-ended
}
