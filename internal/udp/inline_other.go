//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package udp

import (
	"errors"
	"time"

	"golang.org/x/net/ipv4"
)

// inlineRecv reports whether newInline works on this system.
const inlineRecv = false

func newInline(*portable) (source, error) { return nil, errors.ErrUnsupported }

// writeBatch sends the first of ms. Package net waits until there is room.
func writeBatch(s *portSock, ms []ipv4.Message) (int, error) {
	_, err := s.conn.WriteTo(ms[0].Buffers[0], ms[0].Addr)
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// outWaiters does nothing: writeBatch waits.
type outWaiters struct{}

func (*outWaiters) wait(*portSock, int, time.Time) error { return nil }
func (*outWaiters) wake()                                {}
func (*outWaiters) stop()                                {}
func (*outWaiters) close()                               {}
