package wait

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

// descriptor is an eventfd.
type descriptor struct {
	fd   int
	open bool
	buf  [8]byte
}

func (n *native) openFD() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("%w: %w", os.NewSyscallError("eventfd", err), fi.EMFILE)
	}
	n.fd = descriptor{fd: fd, open: true}
	return nil
}

func (d *descriptor) number() int { return d.fd }

func (d *descriptor) raise() {
	binary.NativeEndian.PutUint64(d.buf[:], 1)
	_, _ = unix.Write(d.fd, d.buf[:])
}

func (d *descriptor) lower() { _, _ = unix.Read(d.fd, d.buf[:]) }

func (d *descriptor) close() {
	if d.open {
		_ = unix.Close(d.fd)
		d.open = false
	}
}
