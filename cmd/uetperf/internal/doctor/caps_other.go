//go:build !linux

package doctor

// netAdmin: there is no such capability.
func netAdmin() (can, known bool) { return false, false }
