package perf

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps n bytes of a new file of the folder for temporary files (TMPDIR), which has no name any
// more. What is written to them is durable after an msync.
func mapFile(n int64) (memory []byte, unmap func(), err error) {
	f, err := os.CreateTemp("", "uetperf-*")
	if err != nil {
		return nil, nil, fmt.Errorf("a file for durable writes: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, nil, fmt.Errorf("a file for durable writes: %w", err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
		return nil, nil, fmt.Errorf("a file of %d bytes for durable writes in %s: %w", n, os.TempDir(), err)
	}
	memory, err = unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("a file for durable writes: %w", err)
	}
	return memory, func() { _ = unix.Munmap(memory) }, nil
}
