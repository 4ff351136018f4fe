package wire

// A memory key names a memory region of a target, in 64 bits (UE 2, memory keys):
//
//	63     IDEMPOTENT_SAFE: RUDI may access the region, so a request may be executed twice
//	62     OPTIMIZED: the small request header reaches the region; its resource index is the RKEY
//	61:56  reserved, 0
//	55:48  vendor field; 0 in keys that users choose
//	47:0   RKEY; with OPTIMIZED 0 in 47:12
const (
	MKeyIdempotent uint64 = 1 << 63
	MKeyOptimized  uint64 = 1 << 62
	MKeyVendor     uint64 = 0xff << 48
	MKeyProvider   uint64 = 1 << 48 // the bit of the vendor field that keys of a provider have
	MKeyRKey       uint64 = 1<<48 - 1

	mkeyReserved      uint64 = 0x3f << 56
	mkeyOptimizedRKey uint64 = 1<<12 - 1
)

// MKeySmall returns the resource index by which the small header names the region of a key that allows no
// RUDI: the RKEY. It returns false if the header cannot name it, because OPTIMIZED is not set, or more is
// than OPTIMIZED and the RKEY.
func MKeySmall(key uint64) (ri uint16, ok bool) {
	return uint16(key & mkeyOptimizedRKey), key&^mkeyOptimizedRKey == MKeyOptimized
}

// MKeyValid reports whether the layout of a memory key is right.
func MKeyValid(key uint64) bool {
	return key&mkeyReserved == 0 && (key&MKeyOptimized == 0 || key&MKeyRKey <= mkeyOptimizedRKey)
}
