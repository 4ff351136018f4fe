package docker

import (
	"os/exec"
	"runtime"
	"syscall"
)

// attach ties a command to this program: if the program is killed, the command ends, too.
// Otherwise Compose would go on creating containers that nobody wants. The kernel ties the
// command to the thread that started it, so the caller must keep its thread until the
// command has ended, and then call the function that attach returned. The terminal's
// signals do not reach the command.
func attach(c *exec.Cmd) func() {
	runtime.LockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}
