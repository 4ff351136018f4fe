package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/uet"
)

// runServe serves until it is interrupted, which is its normal end.
func runServe(ctx context.Context, cfg *Config, stdout, stderr io.Writer) (err error) {
	sc := perf.ServerConfig{Domain: cfg.Domain, DataPorts: cfg.DataPorts, MaxClients: cfg.MaxClients, Once: cfg.Once, Mesh: cfg.Mesh}
	if cfg.Listen != "" {
		addr, err := parseListen(cfg.Listen)
		if err != nil {
			return err
		}
		sc.Listen, sc.AnyPort = addr, addr.Port() == 0
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(stderr, "uetperf: "+format+"\n", args...)
	}
	sc.Warn = say
	if cfg.Verbose && !cfg.Quiet {
		sc.Log = say
	}
	pcap, err := openTap(cfg)
	if err != nil {
		return err
	}
	sc.Tap = pcap.seen()
	if cfg.Keys != "" {
		if sc.Keys.PSK, err = keys.LoadPSK(cfg.Keys); err != nil {
			return &usage{err}
		}
		defer func() { _ = sc.Keys.PSK.Close() }()
		if sc.Keys.TLS, err = keys.LoadTLS(cfg.Keys, cfg.As, keys.Server); err != nil {
			return &usage{err}
		}
		defer func() { _ = sc.Keys.TLS.Close() }()
		for _, s := range keys.Loose(cfg.Keys) {
			say("%s", s)
		}
	} else if cfg.As != "" {
		return &usage{errors.New("--as names a certificate: it needs --keys")}
	}
	var m *metricsServer
	if cfg.Metrics != "" {
		if m, err = openMetrics(cfg.Metrics); err != nil {
			return err
		}
		defer m.close()
		sc.Opened, sc.Closed = m.endpoints.Add, m.endpoints.Remove
		sc.Listening = func(p *uet.PassiveEndpoint) { m.endpoints.AddConns(p, "control") }
	}
	s, err := perf.NewServer(sc)
	if err != nil {
		return err
	}
	m.serve(s.Clients)
	defer func() {
		s.Close()
		said, e := pcap.close()
		if said != "" && !cfg.Quiet {
			fmt.Fprintln(stdout, said)
		}
		err = errors.Join(err, e)
	}()
	if !cfg.Quiet {
		var addrs []string
		for _, a := range s.Addrs() {
			addrs = append(addrs, a.String())
		}
		fmt.Fprintf(stdout, "%s serves at %s\n", versionLine(), strings.Join(addrs, " "))
		fmt.Fprintln(stdout, portsText(s.Addrs(), s.Services()))
		if m != nil {
			fmt.Fprintf(stdout, "metrics at %s\n", m.url())
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if cfg.UntilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, cfg.Stdin)
			cancel()
		}()
	}
	s.Serve(ctx)
	return nil
}

// portsText says which service is at which port. If the addresses have different ports it
// gives distances from the first port instead.
func portsText(addrs []netip.AddrPort, services []string) string {
	base := addrs[0].Port()
	same := !slices.ContainsFunc(addrs, func(a netip.AddrPort) bool { return a.Port() != base })
	var parts []string
	for i, name := range services {
		if name == "" {
			return "UDP ports: " + strings.Join(parts, ", ") + "; secured tests need --keys FOLDER (uetperf keys)"
		}
		port := strconv.Itoa(int(base) + i)
		if !same {
			port = "the named one"
			if i > 0 {
				port = "+" + strconv.Itoa(i)
			}
		}
		parts = append(parts, port+" "+name)
	}
	return "UDP ports: " + strings.Join(parts, ", ")
}

// parseListen reads IP:PORT, IP, :PORT or PORT.
func parseListen(s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(ip, perf.Port), nil
	}
	if p, err := strconv.ParseUint(strings.TrimPrefix(s, ":"), 10, 16); err == nil {
		return netip.AddrPortFrom(netip.Addr{}, uint16(p)), nil
	}
	if host, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 64); err == nil && n > 1<<16-1 {
			return netip.AddrPort{}, &usage{fmt.Errorf("--listen %q: port %d is more than 65535", s, n)}
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, &usage{fmt.Errorf("--listen %q is not IP:PORT, such as 192.0.2.7:4793: %q is a name, give its address", s, host)}
		}
	}
	return netip.AddrPort{}, &usage{fmt.Errorf("--listen %q is not IP:PORT, such as 192.0.2.7:4793", s)}
}
