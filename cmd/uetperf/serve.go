package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
)

// runServe serves until it is interrupted, which is its normal end.
func runServe(ctx context.Context, cfg *Config, stdout, stderr io.Writer) (err error) {
	sc := perf.ServerConfig{Domain: cfg.Domain, MaxClients: cfg.MaxClients, Once: cfg.Once}
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
	var m *metricsServer
	if cfg.Metrics != "" {
		if m, err = openMetrics(cfg.Metrics); err != nil {
			return err
		}
		defer m.close()
		sc.Opened, sc.Closed = m.endpoints.Add, m.endpoints.Remove
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

// parseListen reads IP:PORT, IP, :PORT or PORT.
func parseListen(s string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap, nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(ip, 4793), nil
	}
	if p, err := strconv.ParseUint(strings.TrimPrefix(s, ":"), 10, 16); err == nil {
		return netip.AddrPortFrom(netip.Addr{}, uint16(p)), nil
	}
	return netip.AddrPort{}, &usage{fmt.Errorf("--listen %q is not IP:PORT, such as 192.0.2.7:4793", s)}
}
