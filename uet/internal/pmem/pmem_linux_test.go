package pmem

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSyncOfFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	own, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(own)
	if !OfFile(b) || !OfFile(b[5000:5001]) || OfFile(own) || OfFile(make([]byte, 100)) {
		t.Error("OfFile is wrong")
	}
	b[5000] = 7
	if err := Sync(b[5000:5001]); err != nil { // not at the beginning of a page
		t.Error(err)
	}
	if err := Sync(nil); err != nil {
		t.Error(err)
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
}

func TestCovered(t *testing.T) {
	const maps = `1000-2000 rw-s 00000000 08:01 17 /a
2000-3000 rw-s 00001000 08:01 17 /a file
4000-5000 rw-s 00000000 00:01 0 /dev/zero (deleted)
5000-6000 rw-p 00000000 08:01 17 /a
`
	for _, c := range []struct {
		at, end uint64
		want    bool
	}{
		{0x1000, 0x3000, true}, {0x1800, 0x2001, true}, {0x2800, 0x3001, false}, {0xfff, 0x1001, false},
		{0x4000, 0x4001, false}, {0x5000, 0x5001, false}, {0x9000, 0x9001, false},
	} {
		if got := covered(strings.NewReader(maps), c.at, c.end); got != c.want {
			t.Errorf("%x-%x: %v", c.at, c.end, got)
		}
	}
}
