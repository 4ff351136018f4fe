//go:build !linux

package perf

// driver returns the name of the driver of an interface; here it is not known.
func driver(string) string { return "" }
