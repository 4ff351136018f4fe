//go:build !linux

package doctor

// netAdmin: other systems have no such capability.
func netAdmin() (can, known bool) { return false, false }
