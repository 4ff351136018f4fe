//go:build unix

package docker

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's signals from a command.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
