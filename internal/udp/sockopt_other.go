//go:build !linux && !darwin && !freebsd && !windows

package udp

import "errors"

// The comments are in sockopt_linux.go. Nothing is known of this system.

func askBuffer(_ uintptr, _ bool, n int) Buffer { return Buffer{Asked: n} }
func recvTOS(uintptr, bool) error               { return errors.ErrUnsupported }
func dontFragment(_ uintptr, _, df bool) error  { return errors.ErrUnsupported }
func hearUnsummed(_ uintptr, v6 bool) error     { return unsummed4(v6) }
func parseTOS([]byte) uint8                     { return 0 }
func mapErrno(err error) error                  { return err }
