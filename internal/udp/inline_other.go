//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package udp

import (
	"errors"
	"time"

	"golang.org/x/net/ipv4"
)

// inlineRecv says that newInline works here.
const inlineRecv = false

func newInline(*portable) (source, error) { return nil, errors.ErrUnsupported }

// writeBatch sends the first of ms; package net waits until there is room.
func writeBatch(s *portSock, ms []ipv4.Message) (int, error) {
	_, err := s.conn.WriteTo(ms[0].Buffers[0], ms[0].Addr)
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// outWaiters have nothing to wait for.
type outWaiters struct{}

func (*outWaiters) wait(*portSock, int, time.Time) error { return nil }
func (*outWaiters) wake()                                {}
func (*outWaiters) stop()                                {}
func (*outWaiters) close()                               {}
