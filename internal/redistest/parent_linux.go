package redistest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when this one has ended, however that was. (To be exact, when the thread
// has that starts it: not for programs that let goroutines end on threads that they have locked.)
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
