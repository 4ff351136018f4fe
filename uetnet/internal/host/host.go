// Package host is what nodes and streams have in common below them: the address that a text names,
// and a fabric with a domain.
package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// Resolve returns the address that text names: host:port, host, :port, or an address in string
// form (fi_addr_uet://…). Without a port it has port 0, without a host no IP address.
func Resolve(ctx context.Context, text string) (wire.Addr, error) {
	if strings.HasPrefix(text, wire.AddrScheme) {
		a, err := wire.ParseAddr(text)
		if err != nil {
			return wire.Addr{}, fmt.Errorf("address %q: %w: %w", text, err, fi.EINVAL)
		}
		return a, nil
	}
	host, service, err := net.SplitHostPort(text)
	if err != nil { // there is no port
		host, service = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), ""
	}
	port := 0
	if service != "" {
		if port, err = net.DefaultResolver.LookupPort(ctx, "udp", service); err != nil {
			return wire.Addr{}, fmt.Errorf("address %q: %w: %w", text, err, fi.EINVAL)
		}
	}
	if host == "" {
		return wire.Addr{Port: uint16(port)}, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if ctx.Err() != nil {
			return wire.Addr{}, ctx.Err()
		}
		if err != nil || len(ips) == 0 {
			why := "" // one line, unlike errors.Join
			if err != nil {
				why = fmt.Sprintf(" (%v)", err)
			}
			return wire.Addr{}, fmt.Errorf("address %q: no such host%s; an address is host:port, ip:port or %s…: %w", text, why, wire.AddrScheme, fi.ENODATA)
		}
		ip = ips[0]
		for _, x := range ips { // IPv4 first, as uet.GetInfo does
			if x.Unmap().Is4() {
				ip = x
				break
			}
		}
	}
	return wire.SockAddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))), nil
}

// A Host is a fabric and a domain, which are closed with the last that uses them.
type Host struct {
	Info   *uet.Info
	Fabric *uet.Fabric
	Domain *uet.Domain

	mu   sync.Mutex
	uses int
}

// Open opens a fabric and a domain for hints, used once.
func Open(hints *uet.Info) (*Host, error) {
	infos, err := uet.GetInfo("", "", 0, hints)
	if err != nil {
		return nil, err
	}
	h := &Host{Info: infos[0], uses: 1}
	if h.Fabric, err = uet.OpenFabric(h.Info, nil); err != nil {
		return nil, err
	}
	if h.Domain, err = h.Fabric.OpenDomain(h.Info, nil); err != nil {
		_ = h.Fabric.Close()
		return nil, err
	}
	return h, nil
}

// Use counts one more use.
func (h *Host) Use() {
	h.mu.Lock()
	h.uses++
	h.mu.Unlock()
}

// Release ends one use. The last one closes the domain, which waits until the peers of its
// connections know that they are over.
func (h *Host) Release() error {
	h.mu.Lock()
	h.uses--
	last := h.uses == 0
	h.mu.Unlock()
	if !last {
		return nil
	}
	return errors.Join(h.Domain.Close(), h.Fabric.Close())
}

// Closers closes what was opened, the newest first, if opening the rest failed.
type Closers []func() error

// Close calls them.
func (c Closers) Close() {
	for i := len(c) - 1; i >= 0; i-- {
		_ = c[i]()
	}
}
