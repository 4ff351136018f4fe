package transport

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// What of Config belongs to the sublayers.
type (
	Messages       = ses.Config         // of semantics
	EndpointConfig = ses.EndpointConfig // the part of it that each endpoint has
	Identity       = ses.Identity       // the name of an endpoint
	Packets        = pds.Limits         // of packet delivery
)

// Config describes one FEP. Zero fields take their defaults;
// New fills them in and refuses contradictions.
type Config struct {
	// Local is the address of the FEP: the IP address that packets leave from
	// (never unspecified) and the main port (path 0). It enters the CRC.
	Local netip.AddrPort
	// Paths are the local UDP ports, main port first; nil: just the main port.
	// An entropy value is an index into it.
	Paths []uint16

	// Messages is how messages are kept and matched, and the first endpoint: its name
	// (default JobID 1, PIDonFEP 0, RI 15, Initiator 16; UE 2, R-ADDR-05) and its bounds.
	Messages
	// Packets are the times and bounds of packet delivery.
	Packets

	// PayloadMTU is the SES payload per packet this FEP sends: 1024, 2048, 4096
	// or 8192 (default 1024). What it receives may be of any size.
	PayloadMTU int
	// NoCRC sends and expects no CRC-32C trailer.
	NoCRC bool
	// TSS, if not nil, secures the FEP, which owns it from then on: every packet is
	// sealed, and nothing in clear is accepted (S-SEC-07). NoCRC is of no
	// consequence then: the ICV is the trailer. Nothing leaves before a key to
	// send with was installed.
	TSS *tss.Domain
	// OneRTT lets sources that open a PDC prove with a round trip that they are
	// alive now: for keys that outlive a FEP, so that what was recorded in an
	// earlier life of it opens nothing. Without it the floor of Start_PSNs has to
	// do, which is as old as the FEP (S-SYN-02).
	OneRTT bool
	// AcceptClearStart takes NACK 0x17 in clear, with a good CRC, while a PDC is
	// being opened, eight times at most: the UEC reference provider sends them so.
	// Forged ones delay an opening, and may make it fail where the target sends
	// them in clear (T7).
	AcceptClearStart bool
	// KnownPeersOnly refuses packets of addresses that were never interned by
	// Peer.
	KnownPeersOnly bool
	// DSCP is the differentiated services code point of packets, 0 to 63.
	DSCP uint8
	// Trimming says that the switches trim: cut the payload off packets that find
	// no room, so that the target sees at once what is missing (S-TRIM-01). Packets
	// then have the code points of Classes instead of DSCP, those with data and the
	// others leave in trains of their own, and a packet that arrives cut is
	// answered by NACK 01 or 02, or counted as DropTrimmed. Nothing vouches for such
	// a packet, so it does no more than that. To a FEP without Trimming it is a
	// damaged packet as any other.
	//
	// It needs the CRC, which alone tells a whole packet from a cut one: a whole
	// one is an ordinary packet whatever its code point. Of a sealed packet a switch
	// leaves nothing that could be read, so a secured FEP does not offer its data
	// to be trimmed (it has DSCP), and drops what was: it comes again as what is lost.
	Trimming bool
	// Classes are the code points that go with Trimming; none set: DefaultClasses.
	Classes Classes
	// Notes keeps for FEP.Notes why each packet is sent and what became of each
	// received one. It costs an allocation here and there, and copies what a secured
	// FEP seals and opens; without it there is nothing to pay.
	Notes bool
	// NoSymmetric addresses every packet to the well-known port 4793 of the
	// peer instead of the port the peer used (S-PKT-03).
	NoSymmetric bool

	// Hint is told why what one address sends is dropped all the time: two ends
	// that do not fit, or somebody who guesses. nil: nobody wants to know. It is
	// called from Receive, rarely, and must not call the FEP.
	Hint func(Hint)
	// MPRange is the PSN window this FEP offers per PDC, a multiple of 128
	// (default 2048). It also bounds how far it sends ahead.
	MPRange int
	// Lanes is how many RUD PDCs to one peer carry long messages besides the
	// one for short messages (default 1); while the peer has no room for what some of
	// them carry there are up to three more. ShortMessage is the largest message, in
	// bytes, that counts as short (default 16 KiB).
	Lanes        int
	ShortMessage int

	// RNRTimeout ends a send whose target answers but is not ready; 0: never.
	RNRTimeout time.Duration

	// NewCCC makes the congestion control context for a peer; nil: cms.New.
	NewCCC func(window int) CCC
	// BaseRTT is config_base_rtt (UE 3.6.13): the round trip of one packet over the
	// longest path while nothing else is on it, hosts included. Delay beyond it and
	// as much again is taken for a queue, so a value below the truth keeps the
	// window small where the path is idle; one above it allows longer queues. 0:
	// 150 µs, which is two hosts that have to wake up on one switch.
	BaseRTT time.Duration
	// Window is the congestion window to start with and its ceiling, in bytes
	// (default 1 MiB).
	Window int
	// RecvWindow is what the receive path can hold, in bytes (the socket
	// buffer's usable size). It limits the PSN window offered to peers; 0: no
	// limit.
	RecvWindow int
}

// Classes are the DSCP values, 0 to 63, that hosts and trimming switches agree on.
// UE leaves the numbers to the deployment.
type Classes struct {
	// Trimmable is that of new data, TrimmableRTX of data that is sent again, which
	// switches trim later.
	Trimmable, TrimmableRTX uint8
	// Trimmed is what a switch gives to a packet that it has cut, TrimmedLastHop the
	// same in front of the target, where too many senders are to blame and no path.
	Trimmed, TrimmedLastHop uint8
	// Control is that of ACKs, NACKs and control packets.
	Control uint8
}

// DefaultClasses are AF11, AF12, AF31, AF32 and EF; testbed/fabric has the same.
var DefaultClasses = Classes{Trimmable: 10, TrimmableRTX: 12, Trimmed: 26, TrimmedLastHop: 28, Control: 46}

// check names what makes the classes of no use, or nothing.
func (c *Classes) check() string {
	for _, v := range []uint8{c.Trimmable, c.TrimmableRTX, c.Trimmed, c.TrimmedLastHop, c.Control} {
		if v > 63 {
			return "a code point is above 63"
		}
	}
	for _, v := range []uint8{c.Trimmable, c.TrimmableRTX, c.Control} {
		if v == c.Trimmed || v == c.TrimmedLastHop {
			return "Trimmed and TrimmedLastHop must be of no other class"
		}
	}
	if c.Trimmed == c.TrimmedLastHop {
		return "Trimmed and TrimmedLastHop must differ"
	}
	return ""
}

// fill replaces zero fields by their defaults.
func (c *Config) fill() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if c.Paths == nil {
		c.Paths = []uint16{c.Local.Port()}
	}
	if c.JobID == 0 {
		c.JobID = 1
	}
	if c.Classes == (Classes{}) {
		c.Classes = DefaultClasses
	}
	if c.RI == 0 {
		c.RI = 15
	}
	if c.Initiator == 0 {
		c.Initiator = 16
	}
	def(&c.PayloadMTU, 1024)
	def(&c.MPRange, 2048)
	def(&c.Lanes, 1)
	def(&c.ShortMessage, 16<<10)
	c.Messages.Fill()
	c.Packets.Fill()
	def(&c.Window, 1<<20)
}

// check names the first contradiction.
func (c *Config) check() error {
	bad := func(what string, v any) error { return fmt.Errorf("transport: config: %s: %v", what, v) }
	pow2 := func(n int) bool { return n > 0 && n&(n-1) == 0 }
	switch {
	case !c.Local.Addr().IsValid() || c.Local.Addr().IsUnspecified() || c.Local.Port() == 0:
		return bad("Local must be one address and port", c.Local)
	case c.Paths[0] != c.Local.Port():
		return bad("Paths must begin with the main port", c.Paths)
	case len(c.Paths) > 255:
		return bad("more than 255 Paths", len(c.Paths))
	case c.JobID > 0xffffff || c.PIDonFEP > 0xfff || c.RI > 0xfff:
		return bad("JobID, PIDonFEP or RI out of range", []uint32{c.JobID, uint32(c.PIDonFEP), uint32(c.RI)})
	case c.PayloadMTU != 1024 && c.PayloadMTU != 2048 && c.PayloadMTU != 4096 && c.PayloadMTU != 8192:
		return bad("PayloadMTU must be 1024, 2048, 4096 or 8192", c.PayloadMTU)
	case !pow2(c.MPRange) || c.MPRange < 128 || c.MPRange > 16384:
		return bad("MPRange must be a power of two from 128 to 16384", c.MPRange)
	case c.DSCP > 63:
		return bad("DSCP out of range", c.DSCP)
	case c.Classes.check() != "":
		return bad("Classes: "+c.Classes.check(), c.Classes)
	case c.Trimming && c.NoCRC && c.TSS == nil:
		return bad("Trimming needs the CRC, which tells a whole packet from one that was cut; NoCRC", c.NoCRC)
	case c.BaseRTT < 0:
		return bad("BaseRTT is negative", c.BaseRTT)
	case c.RTOInit > c.RTOMax:
		return bad("RTOInit above RTOMax", c.RTOInit)
	case c.Lanes < 0 || c.Lanes > 16:
		return bad("Lanes must be 1 to 16", c.Lanes)
	}
	return nil
}

// secure is how PDCs are opened.
func (c *Config) secure() Secure {
	switch {
	case c.TSS == nil:
		return SecureNone
	case c.OneRTT:
		return SecureOneRTT
	}
	return SecureZeroRTT
}

// offered is the PSN window this FEP offers per PDC: what the receive path can
// hold, in packets.
func (c *Config) offered() int {
	n := c.MPRange
	if c.RecvWindow > 0 {
		for n > 128 && n*c.PayloadMTU > c.RecvWindow {
			n /= 2
		}
	}
	return n
}
