//go:build !linux

package udp

// openNative has nothing better than the portable implementation here.
func openNative(cfg *Config) (backend, []uint16, error) { return openPortable(cfg) }
