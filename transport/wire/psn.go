package wire

// A PSN is a packet sequence number: 32 bits, compared modulo 2³² (UE 3.5.11.4).
type PSN uint32

// Add is the PSN n places behind p. n may be negative.
func (p PSN) Add(n int) PSN { return p + PSN(uint32(n)) }

// Sub is how many places p is behind q, negative if it is before q.
func (p PSN) Sub(q PSN) int32 { return int32(p - q) }

// Before reports whether p is before q.
func (p PSN) Before(q PSN) bool { return int32(p-q) < 0 }

// After reports whether p is behind q.
func (p PSN) After(q PSN) bool { return int32(p-q) > 0 }

// InWindow reports whether p is one of the n PSNs from base on.
func (p PSN) InWindow(base PSN, n int) bool { return uint32(p-base) < uint32(n) }
