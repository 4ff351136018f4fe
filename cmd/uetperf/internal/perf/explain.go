package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// ErrUsage means that an invocation is wrong.
var ErrUsage = errors.New("usage")

// A usageError is an ErrUsage with its own text.
type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// ErrUnreachable means that the peer could not be reached in time.
var ErrUnreachable = errors.New("unreachable")

type unreachableError struct{ text string }

func (e *unreachableError) Error() string        { return e.text }
func (e *unreachableError) Is(target error) bool { return target == ErrUnreachable }

func unreachablef(format string, args ...any) error {
	return &unreachableError{fmt.Sprintf(format, args...)}
}

// explain tells why GetInfo found nothing for a local address and an interface.
func explain(err error, node, domain string) error {
	if !errors.Is(err, fi.ENODATA) {
		return err
	}
	infos, e := uet.GetInfo("", "", 0, nil)
	if e != nil {
		return fmt.Errorf("no usable network interface: %w", e)
	}
	var names, addrs, there []string
	for _, in := range infos {
		if in.Domain.Name == domain {
			there = append(there, in.SrcAddr.IP.String())
		}
		if !slices.Contains(names, in.Domain.Name) {
			names = append(names, in.Domain.Name)
		}
		addrs = append(addrs, in.SrcAddr.IP.String())
	}
	if domain != "" && !slices.Contains(names, domain) {
		return usagef("no interface %q is up here with an IP address; there are: %s", domain, strings.Join(names, ", "))
	}
	if node != "" && !slices.Contains(addrs, node) {
		return usagef("%s is no address of this host; there are: %s", node, strings.Join(addrs, ", "))
	}
	if node != "" && domain != "" && !slices.Contains(there, node) {
		return usagef("%s is no address of interface %q, which has: %s", node, domain, strings.Join(there, ", "))
	}
	return fmt.Errorf("the interface cannot do what is asked for: %w", err)
}

// Resolve turns HOST[:PORT] into an address. HOST is a name, an IPv4 address or an IPv6
// address, which needs brackets if a port follows. Without one, the port is port.
// A host that cannot be found is ErrUnreachable. An address of a link without a zone is on the link
// of the interface domain, if that is named.
func Resolve(ctx context.Context, s string, port uint16, domain string) (netip.AddrPort, error) {
	a, err := lookup(ctx, s, port)
	if err == nil {
		a = netip.AddrPortFrom(zoned(a.Addr(), domain), a.Port())
		err = Bracketed(s, noPeer(a.Addr()))
	}
	return a, err
}

// zoned adds the zone of an interface to an address of a link that has none. "" is no interface.
func zoned(ip netip.Addr, domain string) netip.Addr {
	if ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
		return ip.WithZone(domain)
	}
	return ip
}

// ResolveAll is Resolve for a name that may have addresses of both families: it returns the best
// one first, and behind it the first of the other family.
func ResolveAll(ctx context.Context, s string, port uint16, domain string) ([]netip.AddrPort, error) {
	first, err := Resolve(ctx, s, port, domain)
	if err != nil {
		return nil, err
	}
	host := s
	if h, _, err := net.SplitHostPort(s); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return []netip.AddrPort{first}, nil
	}
	ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, ip := range ips {
		ips[i] = zoned(ip, domain)
	}
	return families(first, ips), nil
}

// families returns first, and the first of the addresses that is of the other family.
func families(first netip.AddrPort, ips []netip.Addr) []netip.AddrPort {
	out := []netip.AddrPort{first}
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() != first.Addr().Is4() && noPeer(ip) == nil {
			return append(out, netip.AddrPortFrom(ip, first.Port()))
		}
	}
	return out
}

// DialAny is Dial of the first of several addresses of a host that answers. If none does, the
// error says what was tried. It returns the address, too.
func DialAny(ctx context.Context, servers []netip.AddrPort, cfg ClientConfig) (*Client, netip.AddrPort, error) {
	var tried []string
	for _, a := range servers {
		c, err := Dial(ctx, a, cfg)
		if err == nil || !errors.Is(err, ErrUnreachable) || len(servers) == 1 || ctx.Err() != nil {
			return c, a, err
		}
		tried = append(tried, err.Error())
	}
	return nil, servers[0], unreachablef("the name has %d addresses, and none answers: %s", len(servers), strings.Join(tried, "; "))
}

// noPeer returns an error if an address cannot be that of a server.
func noPeer(ip netip.Addr) error {
	switch {
	case ip.IsUnspecified():
		return usagef("%v is every address of a host, and none to send to: name one, or localhost", ip)
	case ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return usagef("%v is a group of hosts: name one", ip)
	case ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "":
		return usagef("%v is an address of a link: say which, such as %v%%eth0 or -d eth0", ip, ip)
	}
	return nil
}

// Bracketed explains an error in reaching s, a HOST[:PORT]: what looks like a port behind
// an IPv6 address without brackets was read as a part of the address.
func Bracketed(s string, err error) error {
	i := strings.LastIndexByte(s, ':')
	if err == nil || i < 0 {
		return err
	}
	port, e := strconv.ParseUint(s[i+1:], 10, 16)
	if ip, e := netip.ParseAddr(s[:i]); e != nil || !ip.Is6() {
		return err
	}
	if _, whole := netip.ParseAddr(s); whole != nil || e != nil || port == 0 {
		return err
	}
	return fmt.Errorf("%w; if %d is the port, write [%s]:%d", err, port, s[:i], port)
}

// lookup is Resolve without its check that the address can be that of a server.
func lookup(ctx context.Context, s string, port uint16) (netip.AddrPort, error) {
	host, plain := s, s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		plain = s[1 : len(s)-1]
	}
	if ip, err := netip.ParseAddr(plain); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	if strings.Contains(s, "://") {
		return netip.AddrPort{}, usagef("%q is a URL: give HOST or HOST:PORT", s)
	}
	if h, p, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return netip.AddrPort{}, usagef("port %q of %q is not 1 to 65535", p, s)
		}
		host, port = h, uint16(n)
	} else if strings.Contains(s, ":") {
		return netip.AddrPort{}, usagef("%q is not HOST or HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT", s)
	}
	if host == "" || strings.ContainsAny(host, " /") {
		return netip.AddrPort{}, usagef("%q names no host", s)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return netip.AddrPort{}, unreachablef("no address is known for host %q: check the name, or give the IP address", host)
	}
	ip := ips[0]
	for _, x := range ips { // IPv4 first, as GetInfo does
		if x.Unmap().Is4() {
			ip = x
			break
		}
	}
	return netip.AddrPortFrom(ip.Unmap(), port), nil
}

// infoTo returns the best path to server that satisfies hints.
func infoTo(server netip.AddrPort, domain string, hints *uet.Info) (*uet.Info, error) {
	hints.Domain.Name = domain
	if hints.Config.Encapsulation == uet.Standard && hints.Ep.Type != fi.EpMsg {
		server = netip.AddrPortFrom(server.Addr(), wire.Port) // the port of its test endpoint
	}
	infos, err := uet.GetInfo(server.Addr().String(), fmt.Sprint(server.Port()), uet.NumericHost, hints)
	if err == nil {
		return infos[0], nil
	}
	if !errors.Is(err, fi.ENODATA) {
		return nil, err
	}
	// Find out which hint failed by dropping them one at a time.
	try := func(h *uet.Info) bool {
		_, err := uet.GetInfo(server.Addr().String(), fmt.Sprint(server.Port()), uet.NumericHost, h)
		return err == nil
	}
	if domain != "" {
		if err := explain(fi.ENODATA, "", domain); errors.Is(err, ErrUsage) {
			return nil, err
		}
		h := *hints
		h.Domain.Name = ""
		if try(&h) {
			return nil, usagef("interface %q has no way to %v: leave -d out, or name another", domain, server.Addr())
		}
	}
	if mtu := hints.Config.PayloadMTU; mtu != 0 {
		h := *hints
		h.Config.PayloadMTU = 0
		if try(&h) {
			return nil, usagef("--mtu %d does not fit the interface that leads to %v", mtu, server.Addr())
		}
	}
	if !try(&uet.Info{}) {
		if err := noZone(server.Addr()); err != nil {
			return nil, err
		}
		return nil, unreachablef("no route to %v from this host", server.Addr())
	}
	h := *hints
	h.DestAddr = wire.SockAddr(server)
	for _, r := range uet.Explain(&h) {
		if r.Interface == "" && r.Field != "Domain" {
			return nil, fmt.Errorf("no interface can do what is asked for: %v", r)
		}
	}
	return nil, fmt.Errorf("no interface can do what is asked for: %w", err)
}

// noZone returns an error if the zone of an address is no interface of this host.
func noZone(ip netip.Addr) error {
	if ip.Zone() == "" {
		return nil
	}
	infos, err := uet.GetInfo("", "", 0, nil)
	if err != nil {
		return nil
	}
	var names []string
	for _, in := range infos {
		if !slices.Contains(names, in.Domain.Name) {
			names = append(names, in.Domain.Name)
		}
	}
	if slices.Contains(names, ip.Zone()) {
		return nil
	}
	return usagef("no interface %q is up here, which is to lead to %v: there are %s", ip.Zone(), ip.WithZone(""), strings.Join(names, ", "))
}

// Infos returns the ways to communicate that this host offers.
func Infos(hints *uet.Info) ([]*uet.Info, error) {
	infos, err := uet.GetInfo("", "", 0, hints)
	if err != nil {
		return nil, explain(err, "", hints.Domain.Name)
	}
	return infos, nil
}

// AddressOf returns the first address of an interface.
func AddressOf(domain string) (string, error) {
	hints := &uet.Info{}
	hints.Domain.Name = domain
	infos, err := Infos(hints)
	if err != nil {
		return "", err
	}
	return infos[0].SrcAddr.IP.String(), nil
}
