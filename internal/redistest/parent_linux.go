package redistest

import (
	"os/exec"
	"syscall"
	"time"
)

// endWithParent makes the kernel kill the process when this one has ended, however that was. (To be
// exact, when the thread has that starts it: not for programs that let goroutines end on threads
// that they have locked.) The process gets a group of its own: see kill.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// kill ends a process with SIGKILL, waits for it, and for the processes that it has forked: those
// that rewrite a server's file go on writing without it.
func kill(cmd *exec.Cmd, ended <-chan struct{}) {
	group := -cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-ended
	for range 200 { // where no process awaits orphans, they stay in the group for ever
		if syscall.Kill(group, 0) != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
