//go:build !linux

package udp

import "errors"

// unsummed4 is hearUnsummed for systems that drop such datagrams over IPv6 and cannot be asked
// not to.
func unsummed4(v6 bool) error {
	if v6 {
		return errors.ErrUnsupported
	}
	return nil
}
