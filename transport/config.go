package transport

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// The parts of Config that belong to the sublayers.
type (
	Encapsulation  = wire.Encapsulation // of packets in UDP
	Messages       = ses.Config         // of semantics
	EndpointConfig = ses.EndpointConfig // the part of Messages that each endpoint has
	Identity       = ses.Identity       // the name of an endpoint
	Packets        = pds.Limits         // of packet delivery
)

// A PathChoice is a way to choose among several paths (UE 3.6.16, docs/decisions/0059).
type PathChoice uint8

// The choices of path.
const (
	PathsMixed     = PathChoice(cms.Mixed)     // by which packets arrived lately, and else as PathsBitmap
	PathsBitmap    = PathChoice(cms.Bitmap)    // all by turns, but for those that were marked or lost a packet
	PathsList      = PathChoice(cms.List)      // by which packets arrived lately, and else all by turns
	PathsREPS      = PathChoice(cms.REPS)      // each of the last eight unmarked arrivals once; while packets are lost only those
	PathsOblivious = PathChoice(cms.Oblivious) // all by turns
)

// Config describes one FEP. New replaces zero fields by their defaults and refuses
// contradictions.
type Config struct {
	// Local is the address of the FEP: the IP address that packets leave from, never an
	// unspecified one, and the main port (path 0). The CRC covers it.
	Local netip.AddrPort
	// Paths are the local UDP ports, the main port first; nil means the main port alone. An
	// entropy value is an index into Paths.
	Paths []uint16
	// PathChoice says how packets that need no order choose among Paths (default PathsMixed).
	PathChoice PathChoice

	// Messages is how messages are kept and matched, and the first endpoint: its name
	// (default JobID 1, PIDonFEP 0, RI 15, Initiator 16; UE 2, R-ADDR-05) and its bounds.
	Messages
	// Packets are the times and bounds of packet delivery.
	Packets

	// Born is when the FEP began to be at its address, in the time of its caller: no earlier
	// than the moment from which no packet for the address can reach another FEP. A FEP that
	// knows it proves to peers that it never had a PDC of theirs (S-LIFE-01). 0 means not known.
	Born time.Duration

	// PayloadMTU is the most SES payload of a packet that this FEP sends: 1024, 2048, 4096
	// or 8192 bytes (default 1024). Received packets may have any size.
	PayloadMTU int
	// NoCRC means that packets have no CRC-32C trailer, in both directions.
	NoCRC bool
	// TSS, if not nil, secures the FEP, which then owns it: every packet is sealed, and
	// none in clear is accepted (S-SEC-07). NoCRC then has no effect, because the ICV is
	// the trailer. Nothing is sent before a key to seal with is installed.
	TSS *tss.Domain
	// OneRTT makes a source that opens a PDC prove with a round trip that it is alive now.
	// Use it with keys that outlive a FEP: packets recorded in an earlier life of the FEP
	// then open no PDC. Without it only the floor of Start_PSNs protects, which is
	// forgotten when the FEP ends (S-SYN-02).
	OneRTT bool
	// AcceptClearStart accepts NACK 0x17 in clear, with a good CRC, while a PDC opens,
	// eight times per PDC at most: the UEC reference provider sends them so. Forged ones
	// delay the opening, and may make it fail if the target sends its own in clear (T7).
	AcceptClearStart bool
	// KnownPeersOnly refuses PDCs from addresses that the application did not name (Peer
	// with known).
	KnownPeersOnly bool
	// Datagram says that messages are single packets without a PDC, which nobody acknowledges
	// (UUD, UE 3.5.7.4), and that there is nothing else. A send ends when its packet leaves. It
	// has at most PayloadMTU bytes. What is lost, or finds no receive, is gone. Without Datagram
	// packets of UUD are dropped.
	Datagram bool
	// DSCP is the differentiated services code point of packets, 0 to 63.
	DSCP uint8
	// Trimming says that the switches trim: they cut the payload off packets for which they
	// have no room, so that the target sees at once what is missing (S-TRIM-01). Packets
	// then have the code points of Classes instead of DSCP, and data leaves in other trains
	// than the rest. A packet that arrives trimmed is answered by NACK 01 or 02, or counted
	// as DropTrimmed. It has no other effect, because nothing authenticates it. A FEP
	// without Trimming treats it as any damaged packet.
	//
	// Trimming needs the CRC, which alone distinguishes a whole packet from a trimmed one:
	// a whole packet is an ordinary one whatever its code point. A sealed packet that is
	// trimmed cannot be read. A secured FEP therefore sends its data with DSCP, so that
	// switches do not trim it, and drops trimmed packets, which are then sent again as lost
	// ones.
	Trimming bool
	// Classes are the code points for Trimming; the zero value means DefaultClasses.
	Classes Classes
	// Notes records for FEP.Notes why each packet is sent and what became of each received
	// one. It costs some allocations, and a copy of each packet that a secured FEP seals or
	// opens. Without Notes there is no cost.
	Notes bool
	// Encapsulation says what a FEP is and where answers go: Symmetric or Standard (S-PKT-02,
	// S-PKT-03). With Standard the port of Local is 4793, the one that packets arrive at;
	// Paths[1:] are entropy values that this FEP sends with, and the address of a peer has port
	// 4793.
	Encapsulation Encapsulation
	// Echo, with Standard, asks whether a packet can leave from the port ev of Local, so that an
	// answer repeats the entropy value ev. Transmit calls it before it writes the packet, whose
	// CRC or ICV covers the port. If it returns true, the packet's path is dgram.Echo(ev). If
	// not, or if Echo is nil, the answer leaves from 4793 and is counted (Stats.EVsUnbound).
	Echo func(ev uint16) bool

	// Hint is called with the reason when packets of one address are dropped all the time:
	// the two ends do not fit, or somebody guesses. Receive calls it, rarely. It must not
	// call the FEP. nil means no hints.
	Hint func(Hint)
	// Lost is called when a peer is given up (TimedOut, Unreachable) from which alone a receive
	// waits for a message. The receive stays: the peer may come back. Each PDC that ends so
	// calls it. It must call nothing of the FEP but PeerAddr and Awaits. nil means that nobody is told.
	Lost func(PeerID, Cause)
	// PathMTU is called when the payload that the path to a peer carries in one packet was
	// found to be another. Advance calls it, rarely, or Receive. It must not call the FEP. nil
	// means no reports.
	PathMTU func(PathMTU)
	// MPRange is the PSN window that this FEP offers per PDC, a power of two from 128 to
	// 16384 (default 2048). It also limits how many PSNs the FEP has outstanding per PDC.
	MPRange int
	// Lanes is the number of RUD PDCs to one peer for long messages, besides the one for
	// short messages (default 1). While the peer refuses messages of some of them for want
	// of room there may be up to three more. ShortMessage is the length of the longest
	// short message, in bytes (default 16 KiB).
	Lanes        int
	ShortMessage int

	// RNRTimeout ends a send whose target answers but is not ready for that long; 0 means
	// never.
	RNRTimeout time.Duration
	// Halt: when an ordered message fails, the ordered messages to the peer of its kind, tagged or not, that were
	// posted later end with the same cause, and Post refuses more with ErrHalted, until Abandon or Forget: none is matched in
	// its place. By default each message ends by itself.
	Halt bool

	// Congestion says by what packets may leave: NSCC (the default), RCCC, or both. With RCCC
	// this FEP also grants credit to those that ask for it. With a peer that knows no RCCC, NSCC
	// alone decides. Where NewCCC is set this FEP grants credit and uses none.
	Congestion Congestion
	// LineRate is how many bytes a second can arrive here; 0 means not known. Credit is granted at
	// that rate. If it is not known, what was granted and did not arrive is limited by RecvWindow, or
	// by Window if that is not known either.
	LineRate int64

	// NewCCC makes the congestion control context for a peer or a ROD PDC; nil means the
	// one of package cms. window is Window.
	NewCCC func(window int) CCC
	// BaseRTT is config_base_rtt (UE 3.6.13): the round trip of one packet over the longest
	// path, hosts included, while nothing else is on that path. A round trip above about
	// twice BaseRTT counts as queueing. A value that is too low keeps the window small on
	// an idle path, one that is too high allows longer queues. 0 means 150 µs, the round
	// trip of two hosts on one switch that both must wake up.
	BaseRTT time.Duration
	// Window is the initial congestion window and its upper bound, in bytes (default 1
	// MiB).
	Window int
	// RecvWindow is the number of bytes that the receive path can hold: the usable size of
	// the socket buffer. It limits the PSN window offered to peers. 0 means no limit.
	RecvWindow int
	// RecvCost is what a datagram of size bytes takes of RecvWindow; nil means its size. Credit (RCCC) is
	// granted for as many as there is room for, if they are as long as those that come.
	RecvCost func(size int) int
}

// Classes are the DSCP values, 0 to 63, that hosts and trimming switches agree on. UE
// leaves the values to the deployment.
type Classes struct {
	// Trimmable is the value of new data. TrimmableRTX is that of resent data, which
	// switches trim later.
	Trimmable, TrimmableRTX uint8
	// Trimmed is the value that a switch gives to a packet that it trimmed. TrimmedLastHop
	// is the same at the last hop before the target, where the cause is too many senders
	// and not a path.
	Trimmed, TrimmedLastHop uint8
	// Control is the value of ACKs, NACKs and control packets.
	Control uint8
}

// DefaultClasses are AF11, AF12, AF31, AF32 and EF, the same as in testbed/fabric.
var DefaultClasses = Classes{Trimmable: 10, TrimmableRTX: 12, Trimmed: 26, TrimmedLastHop: 28, Control: 46}

// check returns what makes the classes useless, "" if nothing does.
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

// check returns an error that names the first contradiction.
func (c *Config) check() error {
	bad := func(what string, v any) error { return fmt.Errorf("transport: config: %s: %v", what, v) }
	pow2 := func(n int) bool { return n > 0 && n&(n-1) == 0 }
	switch {
	case !c.Local.Addr().IsValid() || c.Local.Addr().IsUnspecified() || c.Local.Port() == 0:
		return bad("Local must be one address and port", c.Local)
	case c.Paths[0] != c.Local.Port():
		return bad("Paths must begin with the main port", c.Paths)
	case c.Encapsulation > wire.Standard:
		return bad("Encapsulation must be symmetric or standard", c.Encapsulation)
	case c.Encapsulation == wire.Standard && c.Local.Port() != wire.Port:
		return bad("Standard encapsulation has port 4793, not that of Local", c.Local)
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
	case c.Congestion > NSCCAndRCCC:
		return bad("Congestion must be NSCC, RCCC or both", c.Congestion)
	case c.PathChoice > PathsOblivious:
		return bad("PathChoice is none", c.PathChoice)
	case c.LineRate < 0:
		return bad("LineRate is negative", c.LineRate)
	case c.BaseRTT < 0:
		return bad("BaseRTT is negative", c.BaseRTT)
	case c.RTOInit > c.RTOMax:
		return bad("RTOInit above RTOMax", c.RTOInit)
	case c.RendezvousMin > 0 && !c.Datagram && c.MaxPDCs < LeastRendezvousPDCs:
		return fmt.Errorf("%w: %d, at least %d", ErrFewPDCs, c.MaxPDCs, LeastRendezvousPDCs)
	case c.Lanes < 0 || c.Lanes > 16:
		return bad("Lanes must be 1 to 16", c.Lanes)
	}
	return nil
}

// secure is how others open PDCs.
func (c *Config) secure() Secure {
	switch {
	case c.TSS == nil:
		return SecureNone
	case c.OneRTT:
		return SecureOneRTT
	}
	return SecureZeroRTT
}

// offered is the PSN window that this FEP offers per PDC: at most the packets that the
// receive path can hold.
func (c *Config) offered() int {
	n := c.MPRange
	if c.RecvWindow > 0 {
		for n > 128 && n*c.PayloadMTU > c.RecvWindow {
			n /= 2
		}
	}
	return n
}
