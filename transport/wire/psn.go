package wire

// A PSN is a packet sequence number: 32 bits, compared modulo 2^32 (UE 3.5.11.4).
type PSN uint32

// Add returns the PSN n places on; n may be negative.
func (p PSN) Add(n int) PSN { return p + PSN(uint32(n)) }

// Sub returns how many places p is after q, negative if before.
func (p PSN) Sub(q PSN) int32 { return int32(p - q) }

// Before reports whether p is older than q.
func (p PSN) Before(q PSN) bool { return int32(p-q) < 0 }

// After reports whether p is newer than q.
func (p PSN) After(q PSN) bool { return int32(p-q) > 0 }

// InWindow reports whether p is one of the n PSNs from base on.
func (p PSN) InWindow(base PSN, n int) bool { return uint32(p-base) < uint32(n) }
