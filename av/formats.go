package av

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// Addresses come in many forms: as wire.Addr (Insert), as IP address and port,
// as bytes, as text, by name, and as ranges.

// InsertAddrPorts is Insert of IP addresses and UDP ports.
func (v *AV) InsertAddrPorts(addrs []netip.AddrPort, handles []fi.Addr) (int, error) {
	return v.insertAll(len(addrs), func(i int) (wire.Addr, fi.Errno) { return wire.SockAddr(addrs[i]), 0 }, handles, 0, nil)
}

// InsertRecords is Insert of addresses as bytes, each in any of the forms of
// ParseRecord. An address that cannot be decoded fails alone, with fi.EINVAL
// (R-ADDR-04). The bytes are borrowed.
func (v *AV) InsertRecords(recs [][]byte, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	return v.insertAll(len(recs), func(i int) (wire.Addr, fi.Errno) {
		a, err := ParseRecord(recs[i])
		if err != nil {
			return a, fi.EINVAL
		}
		return a, 0
	}, handles, flags, context)
}

// ErrRecord is the error of ParseRecord for bytes that are not an address.
var ErrRecord = errors.New("av: not an address record")

// ParseRecord decodes an address as bytes, in whichever form it is: the UET record of version 1 or 2
// (R-ADDR-01), the platform's sockaddr_in or sockaddr_in6 (R-ADDR-14: its port
// is the UDP port, 0 the well-known one), or the string form (R-ADDR-06).
func ParseRecord(b []byte) (wire.Addr, error) {
	switch {
	case len(b) > 0 && b[0] == 0x55:
		a, _, err := wire.ParseAddrBinary(b)
		return a, err
	case strings.HasPrefix(string(b), wire.AddrScheme):
		return wire.ParseAddr(string(b))
	case len(b) < 8:
		return wire.Addr{}, ErrRecord
	}
	family := int(binary.NativeEndian.Uint16(b))
	if b[0] == byte(len(b)) && (b[1] == syscall.AF_INET || int(b[1]) == syscall.AF_INET6) {
		family = int(b[1]) // with a length before it, as the BSDs have it
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch {
	case family == syscall.AF_INET && len(b) >= sockaddr4Len:
		return wire.SockAddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)), nil
	case family == syscall.AF_INET6 && len(b) >= sockaddr6Len:
		ip := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 && ip.IsLinkLocalUnicast() {
			ip = ip.WithZone(zone(scope))
		}
		return wire.SockAddr(netip.AddrPortFrom(ip, port)), nil
	}
	return wire.Addr{}, ErrRecord
}

// MaxRecord is the most bytes of an address in any format.
const MaxRecord = 128

// AppendRecord appends an address as bytes in the format of the AV. A socket address
// has no PIDonFEP, RI and initiator: who uses others than the defaults takes another
// format. It fails if the address has no IP address.
func (v *AV) AppendRecord(b []byte, a wire.Addr) ([]byte, error) {
	switch {
	case !a.IP.IsValid():
		return b, wire.ErrAddrNoIP
	case v.attr.Format == fi.FormatUnspec:
		return a.AppendBinary(b)
	case v.attr.Format == fi.FormatStr:
		return append(b, a.String()...), nil
	}
	return appendSockaddr(b, a.AddrPort()), nil
}

// appendSockaddr appends the platform's sockaddr_in or sockaddr_in6.
func appendSockaddr(b []byte, ap netip.AddrPort) []byte {
	family, length, ip := syscall.AF_INET, sockaddr4Len, ap.Addr()
	if ip.Is6() {
		family, length = syscall.AF_INET6, sockaddr6Len
	}
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "ios", "netbsd", "openbsd":
		b = append(b, byte(length), byte(family))
	default:
		b = binary.NativeEndian.AppendUint16(b, uint16(family))
	}
	b = binary.BigEndian.AppendUint16(b, ap.Port())
	if ip.Is4() {
		b = append(b, ip.AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b = append(b, 0, 0, 0, 0) // flow
	b = append(b, ip.AsSlice()...)
	return binary.NativeEndian.AppendUint32(b, scope(ip.Zone()))
}

// Lengths of sockaddr_in and sockaddr_in6.
const (
	sockaddr4Len = 16
	sockaddr6Len = 28
)

// scope is the number of the interface that a zone names, 0 if there is none.
func scope(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}

// Named returns ip with its zone as sockets write it: by the name of the interface
// instead of its number, and only for link-local addresses.
func Named(ip netip.Addr) netip.Addr {
	if ip.Zone() == "" {
		return ip
	}
	if !ip.IsLinkLocalUnicast() {
		return ip.WithZone("")
	}
	index, err := strconv.ParseUint(ip.Zone(), 10, 32)
	if err != nil {
		return ip
	}
	return ip.WithZone(zone(uint32(index)))
}

// zone is the name of an interface, as netip has zones.
func zone(index uint32) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		return i.Name
	}
	return strconv.Itoa(int(index))
}

// InsertString inserts one address in string form (FI_ADDR_STR) or as ip:port.
func (v *AV) InsertString(s string) (fi.Addr, error) {
	a, err := parse(s)
	if err != nil {
		return fi.AddrNotAvail, fmt.Errorf("av: insert %q: %w: %w", s, err, fi.EINVAL)
	}
	return v.one(a, "insert "+s)
}

// one inserts one address. On an AV opened with fi.Event the handle is not known
// yet.
func (v *AV) one(a wire.Addr, what string) (fi.Addr, error) {
	h, why := []fi.Addr{0}, []fi.Errno{0}
	var flags fi.Flags
	var context any
	if v.attr.Flags&fi.Event == 0 {
		flags, context = fi.SyncErr, why
	}
	if _, err := v.Insert([]wire.Addr{a}, h, flags, context); err != nil {
		return fi.AddrNotAvail, err
	}
	if why[0] != 0 {
		return fi.AddrNotAvail, fmt.Errorf("av: %s: %w", what, why[0])
	}
	return h[0], nil
}

func parse(s string) (wire.Addr, error) {
	if strings.HasPrefix(s, wire.AddrScheme) {
		return wire.ParseAddr(s)
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return wire.SockAddr(ap), nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return wire.Addr{}, err
	}
	return wire.SockAddr(netip.AddrPortFrom(ip, wire.Port)), nil
}

// InsertSvc inserts node and service as GetInfo resolves them (R-AV-15): a
// string form needs an empty service; service is a port number, empty for the
// well-known one. fi.ENODATA: the name is not known.
func (v *AV) InsertSvc(node, service string) (fi.Addr, error) {
	a, err := resolve(node, service)
	if err != nil {
		return fi.AddrNotAvail, err
	}
	return v.one(a, "insertsvc "+node+" "+service)
}

func resolve(node, service string) (wire.Addr, error) {
	bad := func(err error) (wire.Addr, error) {
		return wire.Addr{}, fmt.Errorf("av: resolve %q %q: %w: %w", node, service, err, fi.EINVAL)
	}
	if strings.HasPrefix(node, wire.AddrScheme) {
		if service != "" {
			return bad(errors.New("a string address takes no service"))
		}
		a, err := wire.ParseAddr(node)
		if err != nil {
			return bad(err)
		}
		return a, nil
	}
	port := wire.Port
	if service != "" {
		p, err := net.LookupPort("udp", service)
		if err != nil {
			return bad(err)
		}
		port = p
	}
	ip, err := netip.ParseAddr(node)
	if err != nil {
		ips, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", node)
		if err != nil || len(ips) == 0 {
			return wire.Addr{}, fmt.Errorf("av: resolve %q: %w", node, fi.ENODATA)
		}
		ip = best(ips)
	}
	return wire.SockAddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))), nil
}

// best is the address of a name that GetInfo takes: the first of IPv4, or of all.
func best(ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap()
		}
	}
	return ips[0]
}

// InsertSym inserts nodeCount nodes from node on with svcCount services each
// from service on: all services of a node, then the next node (R-AV-16). node is
// an IP address, or a name, which needs a number at its end if there are
// several; a service is then a UDP port. With a node in string form, which takes
// no service, the services are PIDonFEPs. flags and context are as for Insert.
func (v *AV) InsertSym(node string, nodeCount int, service string, svcCount int, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	bad := func(what string) (int, error) { return 0, fmt.Errorf("av: insertsym: %s: %w", what, fi.EINVAL) }
	if nodeCount < 0 || svcCount < 0 || svcCount > 1<<16 || nodeCount > MaxLen/max(svcCount, 1) {
		return bad("counts")
	}
	if nodeCount*svcCount == 0 { // fails or completes as any other insertion
		return v.insertAll(0, nil, handles, flags, context)
	}
	first, err := resolve(node, service)
	if err != nil {
		return 0, err
	}
	pids := strings.HasPrefix(node, wire.AddrScheme)
	if pids && int(first.PIDonFEP)+svcCount > 1<<12 || !pids && int(first.AddrPort().Port())+svcCount > 1<<16 {
		return bad("services beyond the last")
	}
	nodes := make([]wire.Addr, nodeCount)
	_, parseErr := netip.ParseAddr(node)
	for i := range nodes {
		switch {
		case i == 0:
			nodes[i] = first
		case pids || parseErr == nil:
			nodes[i] = nodes[i-1]
			nodes[i].IP = nodes[i].IP.Next()
			if !nodes[i].IP.IsValid() {
				return bad("nodes beyond the last")
			}
		default:
			name, err := nextName(node, i)
			if err != nil {
				return bad(err.Error())
			}
			if nodes[i], err = resolve(name, service); err != nil {
				return 0, err
			}
		}
	}
	return v.insertAll(nodeCount*svcCount, func(i int) (wire.Addr, fi.Errno) {
		a, s := nodes[i/svcCount], uint16(i%svcCount)
		if pids {
			a.PIDonFEP += s
			a.Flags |= wire.AddrPIDValid
		} else {
			a.Port = a.AddrPort().Port() + s
		}
		return a, 0
	}, handles, flags, context)
}

// nextName adds i to the number at the end of a name, keeping its width.
func nextName(name string, i int) (string, error) {
	k := len(name)
	for k > 0 && name[k-1] >= '0' && name[k-1] <= '9' {
		k--
	}
	n, err := strconv.ParseUint(name[k:], 10, 32)
	if err != nil {
		return "", fmt.Errorf("%q does not end in a number", name)
	}
	return fmt.Sprintf("%s%0*d", name[:k], len(name)-k, n+uint64(i)), nil
}
