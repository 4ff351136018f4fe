//go:build !linux

// Package pmem makes memory durable that is mapped from files.
package pmem

import "errors"

// Sync makes the bytes of b durable. This system is not known to do it.
func Sync([]byte) error { return errors.ErrUnsupported }

// OfFile reports whether all of b is mapped from files, and shared with them. It reports false where
// Sync does nothing.
func OfFile([]byte) bool { return false }
