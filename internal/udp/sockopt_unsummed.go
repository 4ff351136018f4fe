//go:build !linux

package udp

import "errors"

// sendUnsummed is not known for other systems: their checksums are right, which is allowed.
func sendUnsummed(uintptr, bool) error { return errors.ErrUnsupported }

// unsummed4 is hearUnsummed for systems that drop such datagrams over IPv6 and cannot be asked
// not to.
func unsummed4(v6 bool) error {
	if v6 {
		return errors.ErrUnsupported
	}
	return nil
}
