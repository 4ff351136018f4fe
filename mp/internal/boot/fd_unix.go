//go:build unix

package boot

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// inherit returns a connection over a copy of a descriptor that this process was started
// with. The descriptor stays open, so that its number does not become another file's, but no
// longer goes to programs that this one starts.
func inherit(fd int) (net.Conn, error) {
	if _, err := syscall.Getsockname(fd); err != nil {
		if errors.Is(err, syscall.EBADF) {
			return nil, errors.New("no open descriptor")
		}
		return nil, fmt.Errorf("no socket: %w", err)
	}
	syscall.CloseOnExec(fd)
	syscall.ForkLock.RLock()
	copied, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(copied)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(copied), "PMI_FD")
	defer file.Close()
	return net.FileConn(file)
}
