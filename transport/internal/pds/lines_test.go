package pds

import (
	"testing"
	"unsafe"
)

// Bar F8: the fields of a PDC that every packet touches are in five cache lines, and a PDC
// begins at a cache line.
func TestCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	if n := unsafe.Sizeof(PDC{}); n != 512 {
		t.Errorf("a PDC takes %d bytes, want 512", n)
	}
	if n := unsafe.Offsetof(PDC{}.tx); n != 128 {
		t.Errorf("the sending side of a PDC begins at byte %d, want 128", n)
	}
	if n := unsafe.Offsetof(PDC{}.tx) + unsafe.Offsetof(txDir{}.holeAt); n != 320 {
		t.Errorf("what packets touch of a PDC ends at byte %d, want 320", n)
	}
}
