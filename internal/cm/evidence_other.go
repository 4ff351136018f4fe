//go:build !linux

package cm

import "net"

// Here no error queue tells what ICMP said, and a dial to a closed port times out.

type batch struct{}

func newBatch(*net.UDPConn) batch { return batch{} }

func (s *socket) evident(bool) {}

func (s *socket) retry(error) bool { return false }
