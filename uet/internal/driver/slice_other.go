//go:build !linux

package driver

// shortenSlice does nothing: no such call is known for this system.
func shortenSlice() {}

// usualSlice does nothing.
func usualSlice() {}
