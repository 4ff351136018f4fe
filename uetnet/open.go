package uetnet

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

// An Option changes what Open, Dial and Listen ask uet for.
type Option func(*uet.Info)

// WithConfig sets the settings of the provider: security, bounds, times, sockets. Options after it
// change single fields.
func WithConfig(c uet.Config) Option { return func(in *uet.Info) { in.Config = c } }

// WithSecurity encrypts and authenticates every packet (uet.LoadClusterKey,
// uet.LoadTLSSecurity). Both ends need it.
func WithSecurity(s *uet.Security) Option { return func(in *uet.Info) { in.Config.Security = s } }

// WithHints calls f with the hints before they are given to uet.GetInfo. f must not change the
// endpoint type.
func WithHints(f func(hints *uet.Info)) Option { return f }

// resolve returns the address that text names: host:port, host, :port, or an address in string
// form (fi_addr_uet://…). Without a port it has port 0, without a host no IP address.
func resolve(ctx context.Context, text string) (wire.Addr, error) {
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
			return wire.Addr{}, fmt.Errorf("address %q: no such host (an address is host:port, ip:port or %s…): %w", text, wire.AddrScheme, errors.Join(err, fi.ENODATA))
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

// A host is a fabric and a domain, which are closed with the last that uses them.
type host struct {
	info   *uet.Info
	fabric *uet.Fabric
	domain *uet.Domain

	mu   sync.Mutex
	uses int
}

// openHost opens a fabric and a domain for hints, used once.
func openHost(hints *uet.Info) (*host, error) {
	infos, err := uet.GetInfo("", "", 0, hints)
	if err != nil {
		return nil, err
	}
	h := &host{info: infos[0], uses: 1}
	if h.fabric, err = uet.OpenFabric(h.info, nil); err != nil {
		return nil, err
	}
	if h.domain, err = h.fabric.OpenDomain(h.info, nil); err != nil {
		_ = h.fabric.Close()
		return nil, err
	}
	return h, nil
}

func (h *host) use() {
	h.mu.Lock()
	h.uses++
	h.mu.Unlock()
}

// release ends one use. The last one closes the domain, which waits until the peers of its
// connections know that they are over.
func (h *host) release() error {
	h.mu.Lock()
	h.uses--
	last := h.uses == 0
	h.mu.Unlock()
	if !last {
		return nil
	}
	return errors.Join(h.domain.Close(), h.fabric.Close())
}

// closers closes what was opened, the newest first, if opening the rest failed.
type closers []func() error

func (c closers) close() {
	for i := len(c) - 1; i >= 0; i-- {
		_ = c[i]()
	}
}
