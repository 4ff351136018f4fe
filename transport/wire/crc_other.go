//go:build !amd64

package wire

// shortLen 0 means hash/crc32 for all lengths.
const shortLen = 0

func crcShort(uint32, []byte) uint32 { panic("BUG: wire: no CRC of our own") }

// hasLong is false: hash/crc32 for long inputs, too.
const hasLong = false

func crcLong(uint32, []byte) uint32 { panic("BUG: wire: no CRC of our own") }
