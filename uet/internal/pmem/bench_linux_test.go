package pmem

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSync writes to a mapped file in batches and makes each durable: what the storage can do at
// most. The file is in TMPDIR.
func BenchmarkSync(b *testing.B) {
	for _, batch := range []int{1 << 20, 8 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("batch=%dMiB", batch>>20), func(b *testing.B) {
			const size = 64 << 20
			f, err := os.Create(filepath.Join(b.TempDir(), "file"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
				b.Fatal(err)
			}
			mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Munmap(mem)
			b.SetBytes(1 << 20)
			from, at := 0, 0
			for i := range b.N { // 1 MiB each
				for k := range 1 << 20 {
					mem[at+k] = byte(i + 1)
				}
				at += 1 << 20
				if at-from == batch || i == b.N-1 {
					if err := Sync(mem[from:at]); err != nil {
						b.Fatal(err)
					}
					from, at = at%size, at%size
				}
			}
		})
	}
}
