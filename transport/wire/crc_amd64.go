package wire

import "golang.org/x/sys/cpu"

// crcShort is crc32.Update with Castagnoli's polynomial. For a packet with little payload
// it is faster than hash/crc32, which spends more time on choosing by polynomial,
// processor, length and alignment than on computing. It borrows b.
//
//go:noescape
func crcShort(state uint32, b []byte) uint32

// crcLong is crcShort for 256 bytes or more, a multiple of 64. It borrows b.
//
//go:noescape
func crcLong(state uint32, b []byte) uint32

// shortLen is the length from which on hash/crc32 is faster than crcShort: it computes long
// inputs in three strands at once.
var shortLen = func() int {
	if cpu.X86.HasSSE42 {
		return 256
	}
	return 0
}()

// hasLong reports whether the processor has what crcLong needs: carry-less multiplication of 64
// bytes at a time. hash/crc32 takes 8 bytes at a time, and nearly twice as long.
var hasLong = cpu.X86.HasSSE42 && cpu.X86.HasAVX512F && cpu.X86.HasPCLMULQDQ && cpu.X86.HasAVX512VPCLMULQDQ
