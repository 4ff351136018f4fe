//go:build !linux

package udp

// openNative opens the portable implementation: this system has no other.
func openNative(cfg *Config) (backend, []uint16, error) { return openPortable(cfg) }
