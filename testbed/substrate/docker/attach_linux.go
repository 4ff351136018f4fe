package docker

import (
	"os/exec"
	"runtime"
	"syscall"
)

// attach has a command end with this program, even if that is killed: Compose would go on
// making what nobody wants any more. The kernel means the thread that started it, so the
// caller keeps its own until the command has ended, and then calls what is returned. The
// terminal's signals do not reach the command.
func attach(c *exec.Cmd) func() {
	runtime.LockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}
