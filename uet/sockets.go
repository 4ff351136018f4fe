package uet

import (
	"fmt"
	"net/netip"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport"
)

// MaxPaths is the most UDP ports that an endpoint may have (Config.Paths).
const MaxPaths = udp.MaxPaths

// Socket holds the settings of an endpoint's UDP sockets. 0, or false, takes the default,
// which is right for most hosts; each field says when it is not. PathInfo reports what the
// system granted.
type Socket struct {
	// RecvBuf and SendBuf are the sizes of the socket buffers of each port, in bytes.
	// Default 8 MiB, at most 1 GiB. The system gives no more than net.core.rmem_max and
	// wmem_max allow. Raise RecvBuf where Stats.Socket.KernelDrops grows; lower both where
	// there are very many endpoints. fi.OptRecvBufSize and fi.OptSendBufSize change them
	// for one endpoint.
	RecvBuf, SendBuf int
	// GSO has the kernel cut one large buffer into many packets when sending; GRO has it
	// join received packets (Linux: UDP_SEGMENT, UDP_GRO). Both save most of the processor
	// time of long messages. Default OffloadAuto. Set OffloadOff to find out whether a
	// driver gets them wrong, OffloadOn where a system without them should be an error.
	GSO, GRO Offload
	// Ports are the UDP ports that the endpoint takes where its address has port 0, and for
	// Paths beyond the first: for hosts behind a firewall that lets a range through. Default
	// zero: any port that the system gives. Enable fails with fi.EADDRINUSE when all are taken.
	// The port that Encapsulation Standard owns is 4793 all the same.
	Ports PortRange
	// ConsecutivePorts gives the paths consecutive ports. Default false: the first path has
	// the port of the address, the others have ephemeral ports, which follow one on the other where
	// they are free. Set it where a firewall
	// lets a range of ports through.
	ConsecutivePorts bool
	// EveryClass asks the system for the traffic class of each packet that arrives. Default
	// false: where short packets come one by one, the class is read of some of them only,
	// which shows whether the network marks. Set it where every mark must be counted.
	// Tuning.Trimming and Tap need it and set it themselves.
	EveryClass bool
	// AllowFragments lets routers fragment packets that are too long for a line. Default
	// false: such packets are lost, and the next messages go in shorter ones. Set it where
	// the path has a line with an MTU below 1,100 bytes.
	AllowFragments bool
	// Portable uses only what all systems have: no offloads, one call per packet. Default
	// false. Set it to find out whether the faster code is at fault.
	Portable bool
}

// A PortRange is the UDP ports First to Last, both of it. The zero value is none in particular.
type PortRange struct{ First, Last uint16 }

// String is "20000-20063", "" for the zero value.
func (r PortRange) String() string { return portrange.Range(r).String() }

// An Offload says whether to use something that the system may not have.
type Offload uint8

// The offloads of a Socket.
const (
	OffloadAuto Offload = iota // use it if the system has it
	OffloadOn                  // Enable fails without it
	OffloadOff                 // do not use it
)

// String is "auto", "on" or "off".
func (o Offload) String() string {
	if o > OffloadOff {
		return fmt.Sprintf("uet.Offload(%d)", uint8(o))
	}
	return udp.Mode(o).String()
}

// sockets returns the configuration of the endpoint's sockets. dscp is the code point of
// most packets.
func (ep *Endpoint) sockets(dscp uint8) udp.Config {
	cfg := &ep.info.Config
	src, s, t := ep.info.SrcAddr, &cfg.Socket, &cfg.Tuning
	if t.Trimming && cfg.Security == nil {
		c := transport.Classes(t.TrimClasses)
		if c == (transport.Classes{}) {
			c = transport.DefaultClasses
		}
		dscp = c.Trimmable
	}
	changed := (*owner)(ep).offload
	if ep.port != nil {
		changed = ep.port.offload
	}
	return udp.Config{
		Addr: netip.AddrPortFrom(src.IP, src.Port), Paths: cfg.Paths, Ports: portrange.Range(s.Ports), Consecutive: s.ConsecutivePorts, SendOnly: cfg.Encapsulation == Standard, NoChecksum: cfg.Encapsulation == Standard,
		GSO: udp.Mode(s.GSO), GRO: udp.Mode(s.GRO), GSOChanged: changed,
		SendBuf: ep.opts.buf(fi.OptSendBufSize, s.SendBuf), RecvBuf: ep.opts.buf(fi.OptRecvBufSize, s.RecvBuf),
		TOS: dscp<<2 | dgram.ECT0, // another class costs a control message
		// Trimming switches mark a trimmed packet by its class, and a tap shows the class.
		EveryClass:     s.EveryClass || t.Trimming || cfg.Tap != nil,
		AllowFragments: s.AllowFragments, Portable: s.Portable, Network: cfg.network,
	}
}

// SocketInfo is what the system granted the sockets of an endpoint.
type SocketInfo struct {
	Local netip.AddrPort // of the first path
	Ports []uint16       // of all paths
	// Method names the system calls in use, for people.
	Method string
	// GSO and GRO also report their changes since Enable.
	GSO, GRO Feature
	// ECN is on if the traffic class of received packets is known.
	ECN Feature
	// Evidence is on if the endpoint receives ICMP errors.
	Evidence Feature
	// DontFragment is on if routers may not fragment packets that are too long.
	DontFragment Feature
	// Unsummed is on if packets with a UDP checksum of zero arrive, as conforming peers send
	// them. Off, over IPv6, the system drops them.
	Unsummed Feature
	// RecvBuf and SendBuf are the socket buffers of each path.
	RecvBuf, SendBuf Buffer
	// Interface is the name of the network interface and MTU its longest IP packet in
	// bytes; "" and 0 if unknown.
	Interface string
	MTU       int
}

// A Feature is something that the system may not have.
type Feature struct {
	On  bool
	Why string // why it is off, or off for some destinations
}

// A Buffer is the size of a socket buffer in bytes.
type Buffer struct {
	Asked int  // as in Socket
	Got   int  // as the kernel counts, with its own overhead; 0 means unknown
	Short bool // the system gave less than was asked for
}

func socketInfo(in udp.Info) SocketInfo {
	return SocketInfo{
		Local: in.Local, Ports: in.Ports, Method: in.Method,
		GSO: Feature(in.GSO), GRO: Feature(in.GRO), ECN: Feature(in.ECN), Evidence: Feature(in.Evidence), DontFragment: Feature(in.DontFragment), Unsummed: Feature(in.Unsummed),
		RecvBuf: Buffer(in.RecvBuf), SendBuf: Buffer(in.SendBuf), Interface: in.Interface, MTU: in.MTU,
	}
}

// SocketStats counts what the sockets of an endpoint did. A train is packets of equal
// length to or from one peer in one buffer.
type SocketStats struct {
	RecvCalls    uint64 // system calls to receive, empty ones included
	RecvEmpty    uint64 // those that found nothing
	RecvTrains   uint64
	RecvSegments uint64 // packets
	RecvBytes    uint64
	RecvCut      uint64 // packets dropped because they exceeded the buffer
	KernelDrops  uint64 // packets that the kernel dropped, most for lack of buffer

	SendCalls    uint64 // system calls to send
	SendTrains   uint64 // trains sent, whole or as single packets
	SendSegments uint64 // packets
	SendBytes    uint64
	SendAgain    uint64 // sends that found no room: nothing is lost
	SendNoBufs   uint64 // sends lost because the system had no memory (ENOBUFS)
	SendTooBig   uint64 // sends lost because they exceed the MTU (EMSGSIZE)
	SendLost     uint64 // sends lost to any other error
	Split        uint64 // trains sent as single packets
	Fallbacks    uint64 // times that GSO was switched off for a destination

	EchoBound uint64 // ports bound to repeat entropy values of peers (Standard)

	Pending      uint64 // errors of earlier packets that a call came upon
	Evidence     uint64 // ICMP messages that were read
	EvidenceLost uint64 // those thrown away because nobody asked for them
}

// DriverStats counts which goroutines drove an endpoint, and when it sent.
type DriverStats struct {
	Turns     uint64 // looks at the socket by calls of the application
	Empty     uint64 // looks that found nothing
	Wakes     uint64 // times that the endpoint's goroutine woke up
	Queued    uint64 // posts left to another goroutine that was inside the endpoint
	Gathered  uint64 // posts whose packets waited for more, to leave together
	NoRoom    uint64 // sends that the socket had no room for
	SendError uint64 // sends that failed otherwise
}
