package perf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// listen opens all services at all addresses that were asked for. It fails only if no
// address works.
func (s *Server) listen() error {
	port := s.cfg.Listen.Port()
	if port == 0 && !s.cfg.AnyPort {
		port = Port
	}
	if int(port)+Ports-1 > 1<<16-1 {
		return usagef("port %d leaves no room for the %d ports of a server: take at most %d", port, Ports, 1<<16-Ports)
	}
	node := ""
	if ip := s.cfg.Listen.Addr(); ip.IsValid() && !ip.IsUnspecified() {
		node = ip.String()
	}
	infos, err := uet.GetInfo(node, fmt.Sprint(port), fi.Source, s.hints(services[0]))
	if err != nil {
		return explain(err, node, s.cfg.Domain)
	}
	if s.cfg.Listen.Addr() == netip.IPv4Unspecified() { // 0.0.0.0 means IPv4 only; :: means both, as elsewhere
		infos = slices.DeleteFunc(infos, func(in *uet.Info) bool { return !in.SrcAddr.IP.Is4() })
		if len(infos) == 0 {
			return usagef("no interface has an IPv4 address")
		}
	}
	var refused []error
	for _, info := range infos {
		if err := s.open(netip.AddrPortFrom(info.SrcAddr.IP, info.SrcAddr.Port)); err != nil {
			refused = append(refused, err)
		}
	}
	if len(s.ports.addrs) == 0 {
		last := refused[len(refused)-1]
		if errors.Is(last, fi.EADDRINUSE) {
			return fmt.Errorf("%w: does a server run already? another port: --listen %s", last, otherPort(node, port))
		}
		return last
	}
	for _, err := range refused {
		s.cfg.Warn("%v", err)
	}
	return nil
}

// has reports whether a port is one of the server.
func (s *Server) has(a netip.AddrPort) bool {
	return slices.ContainsFunc(s.ports.addrs, func(first netip.AddrPort) bool {
		return first.Addr() == a.Addr() && first.Port() <= a.Port() && int(a.Port()) <= int(first.Port())+ProbePort
	})
}

// otherPort suggests a place to listen on instead of a port and those behind it.
func otherPort(node string, port uint16) string {
	next := max(int(port)+ProbePort+1, 1024)
	if next+ProbePort > 1<<16-1 {
		next = 0 // any free port
	}
	return net.JoinHostPort(node, strconv.Itoa(next))
}

// noListening explains why there is no socket at an address, without repetition.
func noListening(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, fi.EADDRINUSE):
		err = fi.EADDRINUSE
	case errors.Is(err, fi.EACCES) && at.Port() < 1024:
		return fmt.Errorf("cannot listen on %v: %w: ports below 1024 are of root: take another one by --listen", at, fi.EACCES)
	case errors.Is(err, fi.EACCES):
		err = fi.EACCES
	case errors.Is(err, fi.EADDRNOTAVAIL) && at.Addr().Is6():
		return fmt.Errorf("cannot listen on %v: %w: no interface here has it, or the system still looks for others that have it: then start again in two seconds", at, fi.EADDRNOTAVAIL)
	}
	return fmt.Errorf("cannot listen on %v: %w", at, err)
}

// hints returns the hints for the control endpoints of a service.
func (s *Server) hints(svc service) *uet.Info {
	h := ctlHints(beatLost)
	h.Domain.Name = s.cfg.Domain
	h.Config.Tap = s.cfg.Tap
	h.Config.Socket.Ports = uet.PortRange(s.cfg.DataPorts)
	return svc.hints(h, s.cfg.Keys.of(svc), acceptTime, traffic.MaxSilence)
}

// anyTries is how often open looks for a free port that has free ports behind it.
const anyTries = 100

// open opens all services at an address, or none of them.
func (s *Server) open(at netip.AddrPort) error {
	if at.Port() != 0 {
		return s.openAt(at, true)
	}
	for try := 1; ; try++ {
		err := s.openAt(at, try == anyTries)
		if err == nil || try == anyTries || !errors.Is(err, fi.EADDRINUSE) {
			return err
		}
	}
}

// openAt opens all services at an address, or none of them. Port 0 takes a free port. With must it does
// without a port for probes that is taken.
func (s *Server) openAt(at netip.AddrPort, must bool) (err error) {
	ctls, listeners := len(s.ports.ctls), len(s.ports.listeners)
	defer func() {
		if err != nil {
			s.closeFrom(ctls, listeners)
		}
	}()
	first := at
	for _, svc := range services {
		if svc.sec != traffic.Off && s.cfg.Keys.of(svc) == nil {
			continue
		}
		here := at
		if first.Port() != 0 {
			here = svc.at(first)
		}
		c, err := s.openService(svc, here)
		if err != nil {
			return err
		}
		if svc == services[0] {
			if first = c.end.local; int(first.Port())+Ports-1 > 1<<16-1 {
				return fi.EADDRINUSE
			}
		}
	}
	if err := s.openEcho(first); err != nil {
		if !must && errors.Is(err, syscall.EADDRINUSE) { // another port has a free one for probes behind it
			return fi.EADDRINUSE
		}
		s.cfg.Warn("uetperf doctor will find no answer at %v", err)
	}
	s.ports.addrs = append(s.ports.addrs, first)
	if s.cfg.Listening != nil {
		for _, l := range s.ports.listeners[listeners:] {
			s.cfg.Listening(l.pep)
		}
	}
	return nil
}

// openService opens the control endpoint of a service, or the listener of one with
// connections.
func (s *Server) openService(svc service, here netip.AddrPort) (*ctl, error) {
	infos, err := uet.GetInfo(here.Addr().String(), fmt.Sprint(here.Port()), fi.Source|uet.NumericHost, s.hints(svc))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %v for %v: %w", here, svc, err)
	}
	if svc.ep == traffic.MSG {
		l, err := listen(infos[0], svc, s.called)
		if err != nil {
			return nil, noListening(here, err)
		}
		s.ports.listeners = append(s.ports.listeners, l)
		return nil, nil
	}
	c, err := openCtl(svc, infos[0], netip.AddrPort{}, s.message, s.lost)
	if err != nil {
		return nil, noListening(here, err)
	}
	s.cfg.Opened(c.end.ep, "control")
	s.ports.ctls = append(s.ports.ctls, c)
	return c, nil
}

// closeFrom closes what was opened beyond the given numbers.
func (s *Server) closeFrom(ctls, listeners int) {
	p := &s.ports
	for _, c := range p.ctls[ctls:] {
		c.close()
		s.cfg.Closed(c.end.ep)
	}
	for _, l := range p.listeners[listeners:] {
		l.close()
	}
	p.ctls, p.listeners = p.ctls[:ctls], p.listeners[:listeners]
}
