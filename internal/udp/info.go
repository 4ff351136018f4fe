package udp

import (
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// Info is what a Conn found and does.
type Info struct {
	Local netip.AddrPort // path 0
	Ports []uint16       // by path
	// Method names the system calls in use, for people to read.
	Method string
	// GSO and GRO also tell what became of them since Open.
	GSO, GRO Feature
	// ECN is on if the traffic class of what arrives is known.
	ECN Feature
	// Evidence is on if NextError returns ICMP messages.
	Evidence Feature
	// DontFragment is on if packets that exceed the MTU are not fragmented.
	DontFragment Feature
	// Unsummed is on if datagrams with a UDP checksum of zero arrive, over IPv6, too (S-PKT-05).
	Unsummed Feature
	// RecvBuf and SendBuf are the socket buffers of each path.
	RecvBuf, SendBuf Buffer
	// Interface is the name of the interface with the local address, MTU its largest IP packet
	// in bytes. "" and 0 mean unknown.
	Interface string
	MTU       int
}

// A Feature is something that a system may not have.
type Feature struct {
	On  bool
	Why string // why it is off, or off for some destinations
}

// A Buffer is the size of a socket buffer in bytes. Asked is as in Config. Got is what the
// kernel reports, which includes its overhead; 0 means unknown.
type Buffer struct {
	Asked, Got int
	// Short is true if the system gave less than was asked for.
	Short bool
}

// Usable estimates how many bytes of UDP payload the receive buffer of one path holds, in
// datagrams of size bytes without GRO. It bounds what peers may have in flight. The kernel
// charges a datagram with the memory it occupies, and frees a quarter of the buffer late.
func (b Buffer) Usable(size int) int {
	if size <= 0 || b.Got <= 0 {
		return 0
	}
	return b.Got / 4 * 3 / truesize(size) * size
}

// Cost is what a datagram of size bytes takes of Usable(full). Short ones take more than their size.
func Cost(size, full int) int { return truesize(size) * full / truesize(full) }

// truesize is what Linux charges for one datagram from a network interface: a struct sk_buff of
// 256 bytes, and a power of two that holds Ethernet, IPv6 and UDP headers, 64 bytes of
// headroom, the payload and a skb_shared_info of 320.
func truesize(size int) int {
	n := size + 14 + 40 + 8 + 64 + 320
	return 256 + 1<<bits.Len(uint(n-1))
}

// Stats counts what a Conn did. All values only grow.
type Stats struct {
	RecvCalls    uint64 // system calls that receive, empty ones included
	RecvEmpty    uint64 // those that returned nothing
	RecvTrains   uint64
	RecvSegments uint64
	RecvBytes    uint64
	RecvCut      uint64 // datagrams dropped because they exceeded the buffer
	KernelDrops  uint64 // datagrams that the kernel dropped, mostly for lack of buffer

	SendCalls    uint64 // system calls that send
	SendTrains   uint64 // trains sent, whole or as single datagrams
	SendSegments uint64
	SendBytes    uint64
	SendAgain    uint64 // sends for which there was no room (EAGAIN); nothing is lost
	SendNoBufs   uint64 // sends lost to ENOBUFS
	SendTooBig   uint64 // sends lost to EMSGSIZE
	SendLost     uint64 // sends lost to any other error
	Split        uint64 // trains sent as single datagrams
	Fallbacks    uint64 // times that GSO was switched off for a destination

	EchoBound uint64 // ports that Echo bound

	Pending      uint64 // errors of earlier packets that a call met
	Evidence     uint64 // pieces of evidence that NextError returned
	EvidenceLost uint64 // pieces dropped because nobody read them
}

// An Origin is where an error was noticed.
type Origin uint8

const (
	OriginLocal Origin = iota + 1 // this host
	OriginICMP                    // an ICMP message
	OriginICMP6                   // an ICMPv6 message
)

// Evidence says that a packet did not arrive. Anybody can forge ICMP messages: compare Payload
// before you believe anything. Even then it is no proof (T34).
type Evidence struct {
	// Remote is the destination of the packet.
	Remote netip.AddrPort
	// Path is the local port that sent it, as in a Datagram.
	Path int
	// Errno is the error in the system's terms: ECONNREFUSED (port closed), EHOSTUNREACH,
	// ENETUNREACH, EMSGSIZE, …
	Errno syscall.Errno
	// Origin is where the error was noticed. Type and Code are those of the ICMP message.
	Origin     Origin
	Type, Code uint8
	// MTU, with EMSGSIZE, is the largest IP packet that would have passed.
	MTU int
	// Offender is the address that the ICMP message came from, if known.
	Offender netip.Addr
	// Payload is the beginning of the packet's UDP payload as the message quotes it: often a
	// few bytes, perhaps none. It is valid until the next call of NextError.
	Payload []byte
}

// interfaceOf finds the interface that has address a.
func interfaceOf(a netip.Addr) (name string, mtu int) {
	ifs, err := net.Interfaces()
	if err != nil {
		return "", 0
	}
	for _, f := range ifs {
		if a.Zone() != "" && a.Zone() != f.Name && a.Zone() != strconv.Itoa(f.Index) {
			continue
		}
		as, err := f.Addrs()
		if err != nil {
			continue
		}
		for _, x := range as {
			p, err := netip.ParsePrefix(x.String())
			if err != nil {
				continue
			}
			// All of 127.0.0.0/8 is local, not only the address in the list.
			lo := f.Flags&net.FlagLoopback != 0 && p.Contains(a.WithZone(""))
			if lo || p.Addr() == a.WithZone("") {
				return f.Name, f.MTU
			}
		}
	}
	return "", 0
}
