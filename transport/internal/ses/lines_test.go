package ses

import (
	"math/bits"
	"testing"
	"unsafe"
)

func TestHotLines(t *testing.T) {
	// What a short message touches of a send and of a receive fills whole cache lines. With 512
	// messages in flight it costs 3 lines a message more where it does not.
	if bits.UintSize != 64 {
		t.Skip("for pointers of 64 bits")
	}
	const line = 64
	if n := unsafe.Offsetof(send{}.iov); n != 3*line || unsafe.Sizeof(send{})%line != 0 {
		t.Errorf("send: the first %d bytes are hot, of %d", n, unsafe.Sizeof(send{}))
	}
	if n := unsafe.Offsetof(recv{}.posted) + 8 - unsafe.Offsetof(recv{}.next); n != 2*line || unsafe.Sizeof(recv{})%line != 0 {
		t.Errorf("recv: %d bytes are hot, of %d", n, unsafe.Sizeof(recv{}))
	}
	// This depends on Go's allocator: if it puts pages elsewhere one day, only speed is lost.
	s, r := new([pageLen]send), new([pageLen]recv)
	if uintptr(unsafe.Pointer(&s[0].hdr))%line != 0 || uintptr(unsafe.Pointer(&r[0].next))%line != 0 {
		t.Logf("not at the start of a line: send %p, receive %p", &s[0].hdr, &r[0].next)
	}
}
