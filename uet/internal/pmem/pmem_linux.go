// Package pmem makes memory durable that is mapped from files.
package pmem

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"
)

// Sync makes the bytes of b durable: what stands there now survives a loss of power when it returns nil.
// b must be of a file (OfFile). The error is that of msync(2).
func Sync(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	page := uintptr(os.Getpagesize())
	start := reflect.ValueOf(b).Pointer()
	end := start + uintptr(len(b))
	start &^= page - 1
	if _, _, e := unix.Syscall(unix.SYS_MSYNC, start, end-start, unix.MS_SYNC); e != 0 {
		return e
	}
	// The pages are clean now, and the next write to each would fault: here it costs progress nothing.
	// A kernel that does not know the advice leaves the faults to the writes.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_POPULATE_WRITE)
	return nil
}

// OfFile reports whether all of b is mapped from files, and shared with them.
func OfFile(b []byte) bool {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return false
	}
	defer f.Close()
	start := uint64(reflect.ValueOf(b).Pointer())
	return covered(f, start, start+uint64(len(b)))
}

// covered reports whether the addresses from at to end are all in shared mappings of files, of which
// maps has the list, by address (proc_pid_maps(5)).
func covered(maps io.Reader, at, end uint64) bool {
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to, offset, inode uint64
		var rights, device string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &from, &to, &rights, &offset, &device, &inode); n != 6 || to <= at {
			continue
		}
		if from > at || !strings.HasSuffix(rights, "s") || inode == 0 {
			return false
		}
		if at = to; at >= end {
			return true
		}
	}
	return false
}
