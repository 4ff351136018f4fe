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

// This file inserts addresses that are given in other forms than wire.Addr: as IP address
// and port, as bytes, as text, by name, and as ranges.

// InsertAddrPorts is Insert of IP addresses with UDP ports, without flags and context.
func (v *AV) InsertAddrPorts(addrs []netip.AddrPort, handles []fi.Addr) (int, error) {
	return v.insertAll(len(addrs), func(i int) (wire.Addr, fi.Errno) { return wire.SockAddr(addrs[i]), 0 }, handles, 0, nil)
}

// InsertRecords is Insert of addresses as bytes, each in any form that ParseRecord accepts. An
// address that cannot be decoded fails with fi.EINVAL and does not stop the others
// (R-ADDR-04). InsertRecords does not retain the bytes.
func (v *AV) InsertRecords(recs [][]byte, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	return v.insertAll(len(recs), func(i int) (wire.Addr, fi.Errno) {
		a, err := ParseRecord(recs[i])
		if err != nil {
			return a, fi.EINVAL
		}
		return a, 0
	}, handles, flags, context)
}

// ErrRecord is the error of ParseRecord for bytes in none of its forms.
var ErrRecord = errors.New("av: not an address record")

// ParseRecord decodes an address. It accepts the UET record of version 1 or 2 (R-ADDR-01),
// the platform's sockaddr_in and sockaddr_in6 (R-ADDR-14; port 0 means the well-known UDP
// port), and the string form (R-ADDR-06).
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
		family = int(b[1]) // BSD: the first byte is the length
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

// AppendRecord appends an address to b, as bytes in the format of the AV. It fails if a has no
// IP address. The socket formats lose PIDonFEP, RI and initiator: use another format if they
// are not the defaults.
func (v *AV) AppendRecord(b []byte, a wire.Addr) ([]byte, error) {
	switch {
	case !a.IP.IsValid():
		return b, fmt.Errorf("av: address: %w: %w", wire.ErrAddrNoIP, fi.EINVAL)
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

// scope returns the index of the interface that a zone names, 0 if there is none.
func scope(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}

// Named returns ip with its zone as sockets report it: the name of the interface instead of its
// index, and no zone unless ip is link-local.
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

// zone returns the name of an interface, or its index as text.
func zone(index uint32) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		return i.Name
	}
	return strconv.Itoa(int(index))
}

// InsertString inserts one address in string form (FI_ADDR_STR), or as ip:port, ip, host:port or
// host; a host name is resolved. Without a port it is the well-known one. InsertString fails with
// fi.EINVAL for anything else, with fi.ENODATA if there is no such host.
func (v *AV) InsertString(s string) (fi.Addr, error) {
	a, err := parse(s)
	if err != nil {
		return fi.AddrNotAvail, fmt.Errorf("av: insert %q (it takes host:port, ip:port, or %s…): %w", s, wire.AddrScheme, err)
	}
	return v.one(a, "insert "+s)
}

// one inserts one address and returns its handle. what describes the call in an error.
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
		text := ""
		switch why[0] {
		case fi.EINVAL:
			text = "it is no address of one host, or has an id beyond 4095: "
		case fi.ENOMEM:
			text = "the vector is full: Remove addresses of peers that are gone: "
		}
		return fi.AddrNotAvail, fmt.Errorf("av: %s: %s%w", what, text, why[0])
	}
	return h[0], nil
}

func parse(s string) (wire.Addr, error) {
	bad := func(err error) (wire.Addr, error) { return wire.Addr{}, fmt.Errorf("%w: %w", err, fi.EINVAL) }
	if strings.HasPrefix(s, wire.AddrScheme) {
		a, err := wire.ParseAddr(s)
		if err != nil {
			return bad(err)
		}
		return a, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return wire.SockAddr(ap), nil
	}
	if ip, err := netip.ParseAddr(s); err == nil {
		return wire.SockAddr(netip.AddrPortFrom(ip, wire.Port)), nil
	}
	host, service := s, ""
	if strings.Contains(s, ":") {
		var err error
		if host, service, err = net.SplitHostPort(s); err != nil {
			return bad(err)
		}
		if service == "" {
			return bad(errors.New("the port is missing"))
		}
	}
	if !hostName(host) {
		return bad(errors.New("neither an address nor a host name"))
	}
	return resolve(host, service)
}

// hostName reports whether s can be a host name: what cannot is a mistake, and not looked up.
func hostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, c := range s {
		if !(c == '-' || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80) {
			return false
		}
	}
	return true
}

// InsertSvc inserts the address of a node and a service, resolved as uet.GetInfo does
// (fi_av_insertsvc, R-AV-15). node is an IP address, a host name, or an address in string form;
// service is a UDP port or its name, empty for the well-known port, and empty with a string
// form. InsertSvc fails with fi.ENODATA if the name is not known.
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
			return wire.Addr{}, fmt.Errorf("av: resolve %q: no address is known for this name: check it, or give the IP address: %w", node, fi.ENODATA)
		}
		ip = best(ips)
	}
	return wire.SockAddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))), nil
}

// best chooses the address of a name as uet.GetInfo does: the first of IPv4, or else the first.
func best(ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if ip.Unmap().Is4() {
			return ip.Unmap()
		}
	}
	return ips[0]
}

// InsertSym inserts nodeCount nodes with svcCount services each (fi_av_insertsym): all services
// of node, then those of the next node (R-AV-16). If node is an IP address or a host name,
// services are consecutive UDP ports from service on; a host name must end in a number if
// nodeCount is above 1. If node is an address in string form, service must be empty and the
// services are consecutive PIDonFEPs. handles, flags and context are as for Insert.
func (v *AV) InsertSym(node string, nodeCount int, service string, svcCount int, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	bad := func(what string) (int, error) { return 0, fmt.Errorf("av: insertsym: %s: %w", what, fi.EINVAL) }
	if nodeCount < 0 || svcCount < 0 || svcCount > 1<<16 || nodeCount > MaxLen/max(svcCount, 1) {
		return bad("counts")
	}
	if nodeCount*svcCount == 0 { // an empty insertion has errors and events too
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

// nextName adds i to the number at the end of a name, which keeps its width.
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
