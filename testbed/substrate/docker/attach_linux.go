package docker

import (
	"os/exec"
	"runtime"
	"syscall"
)

// attach makes a command end with this program, even if the program is killed: Compose
// would go on creating containers that nobody wants any more. The kernel ties the command
// to the thread that started it, so the caller keeps its thread until the command has
// ended, and then calls the function that attach returned. The terminal's signals do not
// reach the command.
func attach(c *exec.Cmd) func() {
	runtime.LockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}
