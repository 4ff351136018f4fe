package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// syncing writes to a mapped file of TMPDIR, where uetperf has its own, for two seconds, and makes 8 MiB durable
// at a time, as BenchmarkSync of uet/internal/pmem does. It prints the rate in GB/s as JSON.
func syncing([]string) error {
	const (
		size  = 64 << 20
		batch = 8 << 20
	)
	f, err := os.CreateTemp("", "bars-*")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(os.Remove(f.Name()), unix.Fallocate(int(f.Fd()), 0, 0, size)); err != nil {
		return fmt.Errorf("a file in %s: %w", os.TempDir(), err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	begin, written := time.Now(), 0
	for time.Since(begin) < 2*time.Second {
		part := mem[written%size:][:batch]
		for i := range part {
			part[i] = byte(written>>23 + 1)
		}
		if err := unix.Msync(part, unix.MS_SYNC); err != nil {
			return err
		}
		_ = unix.Madvise(part, unix.MADV_POPULATE_WRITE) // else the next write to each page would fault
		written += batch
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"GBps": float64(written) / 1e9 / time.Since(begin).Seconds()})
}
