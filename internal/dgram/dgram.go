// Package dgram has the buffer type that passes between sockets and the protocol: a train of
// UDP datagrams of equal length, as UDP_SEGMENT sends them and UDP_GRO delivers them.
//
// A Datagram has one owner at a time. The comment of a function that gets one says whether the
// function borrows the bytes (until it returns), takes them, or fills them. The package does no
// I/O and starts no goroutine.
package dgram

import (
	"errors"
	"net/netip"
	"time"
)

// ErrNoRoom is the error of a send for which there is no room now. Nothing is lost: the caller
// keeps the train.
var ErrNoRoom = errors.New("dgram: no room in the send buffer")

const (
	// MaxTrain is the most bytes of one train: the largest UDP payload of IPv4 (65,535 − 20 −
	// 8).
	MaxTrain = 65507
	// MaxSegments is the most datagrams of one train: UDP_MAX_SEGMENTS of Linux since 6.9. Before,
	// it was 64; package udp then sends a longer train in parts.
	MaxSegments = 128
	// SlabLen is the size of a buffer that holds any train, received or sent.
	SlabLen = 1 << 16
)

// The ECN codepoints of the IP header (RFC 3168), the two low bits of TOS.
const (
	NotECT uint8 = 0
	ECT1   uint8 = 1
	ECT0   uint8 = 2
	CE     uint8 = 3
)

// EchoPath is the bit of a path that names its port by number and not by index.
const EchoPath = 1 << 16

// Echo is the path that leaves from the local port ev, whether or not it has an index. Answers
// of Standard encapsulation repeat an entropy value by it.
func Echo(ev uint16) int { return EchoPath | int(ev) }

// EchoOf returns the port of a path that Echo returned; ok is false for an index.
func EchoOf(path int) (ev uint16, ok bool) { return uint16(path), path&EchoPath != 0 }

// A Datagram is a train of UDP datagrams to or from one remote address through one local port.
// Each has Seg bytes; the last may be shorter. A train of one datagram has Seg >= len(Data) or
// Seg 0.
type Datagram struct {
	// Data is the UDP payloads one after another. Its capacity is the room for a function that
	// fills it.
	Data []byte
	// Seg is the length of each datagram but the last, in bytes.
	Seg int
	// Remote is the sender of a received train, or the destination of one to be sent.
	Remote netip.AddrPort
	// Path is the index of the local port that received or is to send the train, or Echo of the
	// port that is to send it. It is the entropy value of its packets.
	Path int
	// TOS is the IP traffic class octet: DSCP in the upper six bits, ECN in the lower two. In a
	// received train DSCP is what the network made of it, and TOS is 0 if the system does not
	// tell or was not asked. All datagrams of a train have the same.
	TOS uint8
	// Waited is how long a received train was in the socket before it was read. It is set only
	// while the socket is asked for it.
	Waited time.Duration

	pool *Pool
	free bool
}

// ECN returns the two ECN bits.
func (d *Datagram) ECN() uint8 { return d.TOS & 3 }

// DSCP returns the code point, the upper six bits.
func (d *Datagram) DSCP() uint8 { return d.TOS >> 2 }

// Segments returns the number of datagrams in the train.
func (d *Datagram) Segments() int {
	if len(d.Data) == 0 {
		return 0
	}
	if d.Seg <= 0 || d.Seg >= len(d.Data) {
		return 1
	}
	return (len(d.Data) + d.Seg - 1) / d.Seg
}

// Next cuts the first datagram off rest, which is Data or what an earlier Next left. Both
// results alias Data.
func (d *Datagram) Next(rest []byte) (head, tail []byte) {
	if d.Seg <= 0 || d.Seg >= len(rest) {
		return rest, nil
	}
	return rest[:d.Seg:d.Seg], rest[d.Seg:]
}

// Reset makes the Datagram empty and keeps its buffer.
func (d *Datagram) Reset() {
	d.Data = d.Data[:0]
	d.Seg, d.Path, d.TOS, d.Waited = 0, 0, 0, 0
	d.Remote = netip.AddrPort{}
}

// A Pool recycles Datagrams with SlabLen bytes of room. It is not safe for
// concurrent use. The zero Pool is ready.
type Pool struct {
	// Most bounds the spare Datagrams in the pool; 0 means no limit.
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

// Put takes d back. It panics if d is in the pool already or belongs to another one, which is
// our bug.
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

// Out returns the number of Datagrams that are out of the pool. At rest it is zero.
func (p *Pool) Out() int { return p.out }
