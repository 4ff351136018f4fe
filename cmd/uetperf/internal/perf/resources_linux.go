package perf

import (
	"bytes"
	"os"
	"strconv"
)

// resident is the memory of the process that is in RAM, in bytes.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	f := bytes.Fields(b)
	if err != nil || len(f) < 2 {
		return -1
	}
	n, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return -1
	}
	return n * int64(os.Getpagesize())
}

// descriptors is the number of file descriptors of the process.
func descriptors() int64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return -1
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return int64(len(names)) - 1 // reading the folder takes one
}
