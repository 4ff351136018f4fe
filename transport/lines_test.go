package transport

import (
	"testing"
	"unsafe"
)

// Bar F8: the memory that a message to one of many peers touches consists of whole cache
// lines.
func TestCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	if n := unsafe.Sizeof(peer{}); n != 256 {
		t.Errorf("a peer takes %d bytes, want 256", n)
	}
	if n := unsafe.Offsetof(peer{}.owing); n > 64 {
		t.Errorf("what every message touches of a peer takes %d bytes, want 64 at most", n)
	}
	if n := unsafe.Sizeof(lane{}); n != 64 {
		t.Errorf("a lane takes %d bytes, want 64", n)
	}
}
