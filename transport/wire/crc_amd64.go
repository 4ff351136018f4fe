package wire

// crcShort is crc32.Update with Castagnoli's polynomial. hash/crc32 asks which
// polynomial, which processor, what length and what alignment, which for a packet with
// little payload is more than there is to compute. b is borrowed.
//
//go:noescape
func crcShort(state uint32, b []byte) uint32

// hasCRC reports whether the processor has the instruction: all since 2008.
func hasCRC() bool

// shortLen is the length from which on hash/crc32 is the better one: what is longer
// it computes in three strands at once.
var shortLen = func() int {
	if hasCRC() {
		return 256
	}
	return 0
}()
