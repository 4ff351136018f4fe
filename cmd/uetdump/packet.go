package main

import (
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A packet is one UET packet of a capture.
type packet struct {
	frame int // its frame's number in the capture
	// part and parts are its place, from 1, in a train that was captured as one frame.
	part, parts int
	at          time.Time
	src, dst    netip.AddrPort
	native      bool
	ev          uint16
	tos, ttl    uint8
	comments    []string

	raw []byte // as captured, from the PDS or security header on
	len int    // on the wire, with trailer
	// plain is the packet from the PDS header on, without trailer, as far as it was
	// captured; cut more bytes were not. It is nil for a sealed packet that was not opened.
	plain []byte
	cut   int

	tail   trailer
	tss    *wire.TSS
	tssErr error
	msg    *message // nil as plain
	more   bool     // the rest is in other IP fragments
}

// data returns how many bytes of a message the packet carries.
func (p *packet) data() int {
	if p.msg == nil || p.msg.err != nil {
		return 0
	}
	return max(0, len(p.plain)+p.cut-p.msg.headers)
}

// text returns the packet on one line, in the words of package wire.
func (p *packet) text() string {
	switch {
	case p.len == 0:
		return "nothing"
	case len(p.raw) == 0:
		return "not captured"
	case p.plain != nil && p.tss != nil:
		return p.tss.String() + " | " + wire.DumpCut(p.plain, p.cut)
	case p.plain != nil:
		return wire.DumpCut(p.plain, p.cut)
	}
	return wire.DumpCut(p.raw[:max(0, min(len(p.raw), p.len-wire.ICVLen))], max(0, p.len-wire.ICVLen-len(p.raw)))
}

// A decoder makes packets of frames. It learns which UDP flows of a capture are UET.
type decoder struct {
	ports    map[uint16]bool
	allPorts bool
	keys     *keyring // nil: none
	flows    map[flow]bool
	mains    map[netip.Addr][]uint16 // the ports by which PDCs were opened with a host, the latest last
	// Counters of frames that are not UET.
	others uint64
}

// A flow is a pair of UDP ports of hosts, in the order of their addresses.
type flow struct{ a, b netip.AddrPort }

func flowOf(d *datagram) flow {
	if d.src.Compare(d.dst) > 0 {
		return flow{d.dst, d.src}
	}
	return flow{d.src, d.dst}
}

// maxFlows bounds the flows that are remembered because a CRC verified. Beyond it, only
// packets that verify themselves are shown.
const maxFlows = 1 << 16

// frame passes on the packets in a frame, none if it has no UET. They are valid until the
// next frame is read.
func (c *decoder) frame(f *frame, emit func(*packet)) {
	var d datagram
	if !parseDatagram(f, &d) {
		c.others++
		return
	}
	seg := segments(&d, f.kind)
	if !c.isUET(&d, f.kind, seg) {
		c.others++
		return
	}
	parts := 1
	if seg > 0 {
		parts = max(1, (d.len+seg-1)/seg)
	}
	for i := range parts {
		p := &packet{
			frame: f.n, part: i + 1, parts: parts, at: f.at, src: d.src, dst: d.dst, native: d.native, ev: d.ev,
			tos: d.tos, ttl: d.ttl, comments: f.comments, more: d.more,
		}
		at := i * seg
		p.len = min(seg, d.len-at)
		if at < len(d.body) {
			p.raw = d.body[at:min(at+p.len, len(d.body))]
		}
		c.packet(p, &d, f.kind)
		emit(p)
	}
}

// isUET reports whether a datagram, split into packets of seg bytes, is UET. It is if it
// came over native IP, has a known port, or has a CRC or ICV that verifies.
func (c *decoder) isUET(d *datagram, kind ifaceKind, seg int) bool {
	if d.native || kind != ifaceOther || c.allPorts || c.ports[d.src.Port()] || c.ports[d.dst.Port()] {
		return true
	}
	fl := flowOf(d)
	if c.flows[fl] {
		return true
	}
	if seg > len(d.body) || seg < wire.AckLen || d.more {
		return false
	}
	first := d.body[:seg]
	ok := wire.VerifyCRC(first, d.prefix(seg))
	if wire.Type(first[0]>>3) == wire.TypeTSS {
		if _, ok = c.keys.open(d, first); !ok {
			_, ok = c.openAside(d, first)
		}
	} else if !ok {
		ok = c.aside(d, first)
	}
	if ok && len(c.flows) < maxFlows {
		if c.flows == nil {
			c.flows = make(map[flow]bool)
		}
		c.flows[fl] = true
	}
	return ok
}

// A packet that opens a PDC, or a request of RUDI, may go to another port than the main one of its destination, with
// the CRC or ICV for that one (docs/decisions/0047, 0061, 0066).

// opens reports whether a packet in clear may open a PDC.
func opens(b []byte) bool {
	if len(b) < wire.PrologueLen {
		return false
	}
	switch wire.Type(b[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq, wire.TypeCP:
		return b[1]&byte(wire.FlagSYN) != 0
	}
	return false
}

// goesAside reports whether a packet in clear may go aside.
func goesAside(b []byte) bool {
	return opens(b) || len(b) > 0 && wire.Type(b[0]>>3) == wire.TypeRUDIReq
}

// maxMains bounds the main ports of one host that are remembered.
const maxMains = 16

// opened notes the port where a packet went that opens a PDC and whose trailer verifies.
func (c *decoder) opened(d *datagram, plain []byte) {
	if d.native || !opens(plain) {
		return
	}
	at, port := d.dst.Addr(), d.dst.Port()
	have, known := c.mains[at]
	if slices.Contains(have, port) || !known && len(c.mains) >= maxFlows {
		return
	}
	if c.mains == nil {
		c.mains = make(map[netip.Addr][]uint16)
	}
	if len(have) == maxMains {
		have = have[1:]
	}
	c.mains[at] = append(have, port)
}

// toMain calls f with the datagram as it would be to each main port of its destination that is known, until f
// returns true.
func (c *decoder) toMain(d *datagram, f func(*datagram) bool) bool {
	for _, port := range c.mains[d.dst.Addr()] {
		if port == d.dst.Port() {
			continue
		}
		e := *d
		if e.dst = netip.AddrPortFrom(d.dst.Addr(), port); f(&e) {
			return true
		}
	}
	return false
}

// aside reports whether the CRC of a packet verifies for another port of its destination.
func (c *decoder) aside(d *datagram, b []byte) bool {
	return goesAside(b) && c.toMain(d, func(e *datagram) bool { return wire.VerifyCRC(b, e.prefix(len(b))) })
}

// openAside decrypts a packet that was sealed for another port of its destination.
func (c *decoder) openAside(d *datagram, b []byte) (plain []byte, ok bool) {
	ok = c.toMain(d, func(e *datagram) bool {
		plain, ok = c.keys.open(e, b)
		return ok && goesAside(plain)
	})
	return plain, ok
}

// packet reads the headers of p.
func (c *decoder) packet(p *packet, d *datagram, kind ifaceKind) {
	b := p.raw
	if len(b) == 0 {
		if p.len > 0 {
			p.tail = trailerCut
		}
		return
	}
	cut := p.len - len(b)
	if wire.Type(b[0]>>3) != wire.TypeTSS {
		p.tail = clearTrailer(d, b, cut, kind)
		if p.more {
			p.tail = trailerCut
		}
		switch {
		case p.tail == trailerOK:
			c.opened(d, b)
		case p.tail == trailerBad && p.trimmed():
			p.tail = trailerTrimmed
		case p.tail == trailerBad && c.aside(d, b):
			p.tail = trailerAside
		}
		if p.tail != trailerNone && p.tail != trailerTrimmed {
			left := max(0, p.len-wire.CRCLen)
			b = b[:min(len(b), left)]
			cut = left - len(b)
		}
		p.plain, p.cut, p.msg = b, cut, parseMessage(b)
		return
	}
	p.tail = trailerICV
	t, _, err := wire.ParseTSS(b)
	if err != nil {
		p.tssErr = err
		return
	}
	p.tss = &t
	switch {
	case cut > 0 || p.more:
		p.tail = trailerCut
	case c.keys.knows(&t):
		p.tail = trailerICVBad
		if plain, ok := c.keys.open(d, b); ok {
			p.tail, p.plain, p.msg = trailerICVOK, plain, parseMessage(plain)
			c.opened(d, plain)
		} else if plain, ok := c.openAside(d, b); ok {
			p.tail, p.plain, p.msg = trailerICVAside, plain, parseMessage(plain)
		}
	}
}
