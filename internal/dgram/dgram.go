// Package dgram holds the one buffer type that crosses the border between
// sockets and protocol: a train of UDP datagrams with equal length, as
// UDP_SEGMENT sends them and UDP_GRO delivers them.
//
// A Datagram has one owner at a time. Whoever calls a function with it says in
// the function's comment whether the bytes are borrowed (until return), taken,
// or filled. The package does no I/O and starts no goroutine.
package dgram

import (
	"errors"
	"net/netip"
)

// ErrNoRoom is what a send fails with that finds no room now: nothing is lost,
// the train is still the caller's.
var ErrNoRoom = errors.New("dgram: no room in the send buffer")

const (
	// MaxTrain is the most bytes one train may hold: the largest UDP payload
	// that IPv4 carries (65,535 − 20 − 8).
	MaxTrain = 65507
	// MaxSegments is the most datagrams in one train (UDP_MAX_SEGMENTS of
	// Linux before 6.9, which is the smallest limit in use).
	MaxSegments = 64
	// SlabLen is the size of a buffer that holds any train, received or sent.
	SlabLen = 1 << 16
)

// ECN codepoints of the IP header (RFC 3168): the two low bits of TOS.
const (
	NotECT uint8 = 0
	ECT1   uint8 = 1
	ECT0   uint8 = 2
	CE     uint8 = 3
)

// A Datagram is a train of UDP datagrams to or from one remote address by one
// local port: every datagram has Seg bytes, the last may be shorter. A train of
// one has Seg >= len(Data) or Seg 0.
type Datagram struct {
	// Data holds the UDP payloads back to back; its capacity is the room a
	// filler may use.
	Data []byte
	// Seg is the length of each datagram but the last, in bytes.
	Seg int
	// Remote is the sender (received) or the destination (to be sent).
	Remote netip.AddrPort
	// Path is the index of the local port that received or is to send the
	// train: the entropy value of the packets in it.
	Path int
	// TOS is the IP traffic class octet: DSCP in the upper six bits, ECN in
	// the lower two. What is received has the DSCP that the network gave it, 0 where
	// the system does not tell or was not asked; all datagrams of a train have the same.
	TOS uint8

	pool *Pool
	free bool
}

// ECN returns the two ECN bits.
func (d *Datagram) ECN() uint8 { return d.TOS & 3 }

// DSCP returns the code point, the upper six bits.
func (d *Datagram) DSCP() uint8 { return d.TOS >> 2 }

// Segments reports how many datagrams the train holds.
func (d *Datagram) Segments() int {
	if len(d.Data) == 0 {
		return 0
	}
	if d.Seg <= 0 || d.Seg >= len(d.Data) {
		return 1
	}
	return (len(d.Data) + d.Seg - 1) / d.Seg
}

// Next cuts the first datagram off rest, which is Data or what an earlier Next
// left over. Both results alias Data.
func (d *Datagram) Next(rest []byte) (head, tail []byte) {
	if d.Seg <= 0 || d.Seg >= len(rest) {
		return rest, nil
	}
	return rest[:d.Seg:d.Seg], rest[d.Seg:]
}

// Reset makes the Datagram empty and keeps its buffer.
func (d *Datagram) Reset() {
	d.Data = d.Data[:0]
	d.Seg, d.Path, d.TOS = 0, 0, 0
	d.Remote = netip.AddrPort{}
}

// A Pool recycles Datagrams with SlabLen bytes of room. It is not safe for
// concurrent use. The zero Pool is ready.
type Pool struct {
	// Most is how many idle Datagrams it keeps; 0: all.
	Most int

	idle []*Datagram
	out  int
}

// Get returns an empty Datagram with SlabLen bytes of capacity. The caller owns
// it until Put.
func (p *Pool) Get() *Datagram {
	p.out++
	if n := len(p.idle); n > 0 {
		d := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		d.free = false
		return d
	}
	return &Datagram{Data: make([]byte, 0, SlabLen), pool: p}
}

// Put takes d back. A Datagram that was put twice or that belongs to another
// pool is our bug and panics.
func (p *Pool) Put(d *Datagram) {
	if d.pool != p || d.free {
		panic("BUG: dgram: Put of a Datagram that is not out of this Pool")
	}
	d.Reset()
	d.free = true
	p.out--
	if p.Most == 0 || len(p.idle) < p.Most {
		p.idle = append(p.idle, d)
	}
}

// Out reports how many Datagrams are out of the pool. At rest it is zero.
func (p *Pool) Out() int { return p.out }
