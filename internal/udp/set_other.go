//go:build !linux

package udp

import (
	"errors"
	"time"
)

// A Set says which of many Conns have something to receive. This system has none.
type Set struct{}

// NewSet fails with errors.ErrUnsupported.
func NewSet() (*Set, error) { return nil, errors.ErrUnsupported }

// The methods of a Set are those of Linux. There is no Set to call them.
func (*Set) Add(*Conn, int) bool    { return false }
func (*Set) Remove(*Conn, int)      {}
func (*Set) Ready(ids []int) []int  { return ids }
func (*Set) Wait(time.Time) error   { return errors.ErrUnsupported }
func (*Set) Wake()                  {}
func (*Set) Nap(time.Duration) bool { return false }
func (*Set) Rouse()                 {}
func (*Set) Close() error           { return nil }
