package wire

// crcShort is crc32.Update with Castagnoli's polynomial. For a packet with little payload
// it is faster than hash/crc32, which spends more time on choosing by polynomial,
// processor, length and alignment than on computing. It borrows b.
//
//go:noescape
func crcShort(state uint32, b []byte) uint32

// hasCRC reports whether the processor has the CRC32 instruction, as all since 2008 have.
func hasCRC() bool

// shortLen is the length from which on hash/crc32 is faster: it computes long inputs in
// three strands at once.
var shortLen = func() int {
	if hasCRC() {
		return 256
	}
	return 0
}()
