package uet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet/internal/pmem"
)

// mapped is n bytes of a file.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err == nil {
		defer f.Close()
		err = f.Truncate(int64(n))
	}
	ok(t, err)
	b, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	ok(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func TestDurableFile(t *testing.T) {
	// R-MR-19, R-CMPL-13: in memory that is mapped from files msync stores the bytes that were written, those alone,
	// before the write ends, and what it says reaches the initiator.
	r := newRig(t, rma(fi.RMAPmem, 0))
	a, _, toB, _ := r.pair()
	iov := [][]byte{mapped(t, 8192)[:8000], mapped(t, 8192)[100:4196], mapped(t, 4096)[:300]}
	m, err := r.domain.RegMRAttr(&MRAttr{Iov: iov, Access: fi.RemoteWrite, RequestedKey: 4}, fi.RMAPmem)
	ok(t, err)
	defer func() { ok(t, m.Close()) }()
	if got, want := reflect.ValueOf(m.persist.sync).Pointer(), reflect.ValueOf(pmem.Sync).Pointer(); got != want {
		t.Error("the region calls something else than msync")
	}
	var mu sync.Mutex
	var seen []string
	var fails error
	m.persist.sync = func(b []byte) error { // no peer has asked for anything yet
		mu.Lock()
		defer mu.Unlock()
		for i, part := range iov {
			if within(b, part) {
				off := reflect.ValueOf(b).Pointer() - reflect.ValueOf(part).Pointer()
				seen = append(seen, fmt.Sprintf("%d[%d:%d]=%x", i, off, off+uintptr(len(b)), b[0]))
			}
		}
		if fails != nil {
			return fails
		}
		return pmem.Sync(b)
	}
	for i, c := range []struct {
		off, n uint64
		want   []string
	}{
		{10, 20, []string{"0[10:30]=1"}},
		{7990, 10, []string{"0[7990:8000]=2"}},
		{8000, 1, []string{"1[0:1]=3"}},
		{7990, 4200, []string{"0[7990:8000]=4", "1[0:4096]=4", "2[0:94]=4"}},
		{12095, 301, []string{"1[4095:4096]=5", "2[0:300]=5"}},
	} {
		ok(t, durable(a, toB, c.off, bytes.Repeat([]byte{byte(i + 1)}, int(c.n)), 4, 0))
		_, err := ends(t, a.tx)
		ok(t, err)
		mu.Lock()
		if !slices.Equal(seen, c.want) {
			t.Errorf("%d bytes at %d: msync of %v, want %v", c.n, c.off, seen, c.want)
		}
		seen = nil
		mu.Unlock()
	}
	mu.Lock()
	fails = syscall.EIO
	mu.Unlock()
	ok(t, durable(a, toB, 12_000, make([]byte, 200), 4, 0))
	_, err = ends(t, a.tx)
	want(t, err, fi.EIO)
	if len(seen) != 1 {
		t.Errorf("msync of %v after one that failed", seen)
	}
}
