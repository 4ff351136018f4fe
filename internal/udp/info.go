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
	// Method names the system calls in use, for people.
	Method string
	// GSO and GRO also say what happened to them since Open.
	GSO, GRO Feature
	// ECN is on if the traffic class of what arrives is known.
	ECN Feature
	// Evidence is on if NextError hears of ICMP messages.
	Evidence Feature
	// DontFragment is on if packets that exceed the MTU are not fragmented.
	DontFragment Feature
	// RecvBuf and SendBuf are the socket buffers of each path.
	RecvBuf, SendBuf Buffer
	// Interface is the name of the interface that has the local address and
	// MTU its largest IP packet, in bytes; "" and 0: unknown.
	Interface string
	MTU       int
}

// A Feature is something that the system may not have.
type Feature struct {
	On  bool
	Why string // why it is off, or off for some
}

// A Buffer is the size of a socket buffer in bytes. Got counts as the kernel
// does, with its own overhead; 0: unknown. Asked is as in Config.
type Buffer struct {
	Asked, Got int
	// Short is true if the system gave less than was asked for.
	Short bool
}

// Usable estimates how many bytes of UDP payload the receive buffer of one path
// holds when they come in datagrams of size bytes each, without GRO: a bound for
// what peers may have in flight. The kernel charges a datagram with the memory
// it occupies, and gives a quarter of the buffer back late.
func (b Buffer) Usable(size int) int {
	if size <= 0 || b.Got <= 0 {
		return 0
	}
	return b.Got / 4 * 3 / truesize(size) * size
}

// truesize is what Linux charges for one datagram from a network interface: a
// struct sk_buff of 256 bytes and a power of two that holds Ethernet, IPv6 and
// UDP headers, 64 bytes of headroom, the payload and a skb_shared_info of 320.
func truesize(size int) int {
	n := size + 14 + 40 + 8 + 64 + 320
	return 256 + 1<<bits.Len(uint(n-1))
}

// Stats counts what a Conn did. All values only grow.
type Stats struct {
	RecvCalls    uint64 // system calls to receive, empty ones included
	RecvEmpty    uint64 // those that found nothing
	RecvTrains   uint64
	RecvSegments uint64
	RecvBytes    uint64
	RecvCut      uint64 // datagrams dropped because they exceeded the buffer
	KernelDrops  uint64 // datagrams the kernel dropped, most for lack of buffer

	SendCalls    uint64 // system calls to send
	SendTrains   uint64 // trains sent, whole or as single datagrams
	SendSegments uint64
	SendBytes    uint64
	SendAgain    uint64 // sends that found no room (EAGAIN): nothing is lost
	SendNoBufs   uint64 // sends lost to ENOBUFS
	SendTooBig   uint64 // sends lost to EMSGSIZE
	SendLost     uint64 // sends lost to any other error
	Split        uint64 // trains sent as single datagrams
	Fallbacks    uint64 // times that GSO was switched off for a destination

	Pending      uint64 // errors of earlier packets that a call came upon
	Evidence     uint64 // pieces of evidence handed out by NextError
	EvidenceLost uint64 // pieces thrown away because nobody asked for them
}

// An Origin is where an error was noticed.
type Origin uint8

const (
	OriginLocal Origin = iota + 1 // this host
	OriginICMP                    // an ICMP message
	OriginICMP6                   // an ICMPv6 message
)

// Evidence says that a packet did not get where it was to go. ICMP messages can
// be forged by anybody: check Payload before believing anything, and even then
// it is no proof (T34).
type Evidence struct {
	// Remote is where the packet was going.
	Remote netip.AddrPort
	// Path is the local port it had left from.
	Path int
	// Errno is what the system makes of it: ECONNREFUSED (port closed),
	// EHOSTUNREACH, ENETUNREACH, EMSGSIZE, …
	Errno syscall.Errno
	// Origin is where the error was noticed, Type and Code are those of the ICMP
	// message.
	Origin     Origin
	Type, Code uint8
	// MTU, with EMSGSIZE, is the largest IP packet that would have passed.
	MTU int
	// Offender is the address that the ICMP message came from, if known.
	Offender netip.Addr
	// Payload is the beginning of the UDP payload of the packet as the message
	// quotes it; often a few bytes, perhaps none. It is valid until the next
	// call of NextError.
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
			// The whole of 127.0.0.0/8 is local, not only the address listed.
			lo := f.Flags&net.FlagLoopback != 0 && p.Contains(a.WithZone(""))
			if lo || p.Addr() == a.WithZone("") {
				return f.Name, f.MTU
			}
		}
	}
	return "", 0
}
