//go:build unix && !linux

package wait

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

// descriptor is a pipe.
type descriptor struct {
	r, w int
	open bool
	buf  [8]byte
}

func (n *native) openFD() error {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return fmt.Errorf("%w: %w", os.NewSyscallError("pipe", err), fi.EMFILE)
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			_, _ = unix.Close(p[0]), unix.Close(p[1])
			return os.NewSyscallError("fcntl", err)
		}
	}
	n.fd = descriptor{r: p[0], w: p[1], open: true}
	return nil
}

func (d *descriptor) number() int { return d.r }

func (d *descriptor) raise() { _, _ = unix.Write(d.w, d.buf[:1]) }

func (d *descriptor) lower() { _, _ = unix.Read(d.r, d.buf[:]) }

func (d *descriptor) close() {
	if d.open {
		_, _ = unix.Close(d.r), unix.Close(d.w)
		d.open = false
	}
}
