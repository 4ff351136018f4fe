package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

const (
	// A probe is sent up to tries times; each time its answer may take patience.
	tries    = 4
	patience = 150 * time.Millisecond
	// lossy is the share of resends above which a path is not good.
	lossy = 0.01
	// astray is the share of resends that lost or overtaken packets must reach to count as the
	// cause of the resends.
	astray = 0.1
	// apart is how far two clocks may differ.
	apart = 30 * time.Second
	// An end is the slower one if it uses more than busy of a processor while the other uses
	// less than idle.
	busy, idle = 0.9, 0.7
)

const sameRelease = "use the same release of uetperf at both ends"

// A far is what is known of the way to the server.
type far struct {
	v      *visit
	local  netip.Addr
	to     netip.AddrPort // of the server's first service
	first  probe.Answer   // of a small probe
	heard  probe.Heard    // ICMP about the first port
	asker  *probe.Asker
	facts  *perf.Facts
	mtuFit int // bytes of payload per packet that fit the path; 0 means the default of the interface
}

// remote checks the way to the server and what the server reports. It reports whether the
// server was reached.
func (v *visit) remote(ctx context.Context) bool {
	in, err := perf.InfoTo(v.cfg.Target, v.cfg.Domain)
	if err != nil {
		return false // the check of interfaces reported it
	}
	f := &far{v: v, local: in.SrcAddr.IP, to: v.cfg.Target}
	at := netip.AddrPortFrom(f.to.Addr(), f.to.Port()+uint16(perf.ProbePort))
	if int(f.to.Port())+perf.ProbePort < 1<<16 {
		if f.asker, err = probe.Open(f.local, v.cfg.DataPorts, at); err == nil {
			defer f.asker.Close()
			f.first, _ = f.asker.Ask(ctx, probe.Question{ECN: probe.NotECT}, tries, patience)
		}
	}
	c, err := f.dial(ctx, traffic.RDM, traffic.Off)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		return f.unreached(ctx, err)
	}
	defer c.Close()
	host := c.Host()
	v.rep.Peer = &host
	v.ok("reach", "the server at %v answers in %v (%s, %s)", f.to, c.Setup().Round(10*time.Microsecond), host.Name, host.Kernel)
	f.facts, err = c.Facts(ctx)
	if tool := c.Tool(); err == nil {
		v.ok("version", "both ends speak protocol %d (uetperf %s there)", perf.ProtocolVersion, tool.Version)
	} else if errors.Is(err, perf.ErrOlder) {
		v.warn("version", sameRelease, "the server (uetperf %s) is older: it answers no probes and tells nothing of itself", tool.Version)
	} else {
		v.warn("version", "try again", "the server does not tell of itself: %v", err)
	}
	if f.facts != nil {
		v.ok("ports", "a firewall has to let UDP ports %d to %d of the server pass, and for data %s", f.to.Port(), int(f.to.Port())+perf.ProbePort, f.dataPorts())
	}
	f.security(ctx)
	f.nat()
	f.firewallOfProbes()
	f.mtu(ctx)
	f.ecn(ctx)
	if f.facts != nil {
		p := f.facts
		v.buffers("peer_buffers", "the server's ", &p.Path, p.RcvShort, p.SndShort)
		v.offloads("peer_offloads", "the server: ", &p.Path)
		v.processors("peer_processors", "the server: ", p)
		v.clock("peer_clock", "the server: ", p)
		f.clocks()
		v.load("slow_peer", "the server", p)
	}
	if ctx.Err() == nil && f.data(ctx, c) {
		f.memory(ctx, c)
	}
	return true
}

func (f *far) dial(ctx context.Context, ep, sec string) (*perf.Client, error) {
	cfg := perf.ClientConfig{EP: ep, Sec: sec, Domain: f.v.cfg.Domain, DataPorts: f.v.cfg.DataPorts, Timeout: f.v.cfg.Timeout}
	if sec != traffic.Off {
		cfg.Keys = f.v.cfg.Keys
	}
	return perf.Dial(ctx, f.to, cfg)
}

// unreached adds the check that tells why the control exchange does not work. It reports
// whether the server answered nevertheless.
func (f *far) unreached(ctx context.Context, err error) bool {
	v := f.v
	if !errors.Is(err, perf.ErrUnreachable) {
		name, mend := "reach", "see what the server says (uetperf serve -v)"
		if strings.Contains(err.Error(), "version mismatch") {
			name, mend = "version", sameRelease
		}
		v.bad(name, mend, "%v", err)
		f.nat()
		return true
	}
	var wrong *perf.WrongPortError
	if errors.As(err, &wrong) {
		v.bad("reach", "name "+wrong.First.String(), "%v", err)
		return false
	}
	if a, e := probe.Open(f.local, v.cfg.DataPorts, f.to); e == nil {
		got, _ := a.Ask(ctx, probe.Question{}, 2, patience)
		f.heard = got.Heard
		a.Close()
	}
	port := f.to.Port()
	heard := f.heard
	if heard.Errno == 0 {
		heard = f.first.Heard
	}
	switch {
	case f.nat():
		v.bad("reach", "see nat", "the server at %v does not take our packets, though plain UDP gets there", f.to)
	case f.heard.Prohibit:
		v.bad("firewall", fmt.Sprintf("let UDP ports %d to %d pass there", port, int(port)+perf.ProbePort), "UDP port %d: %v", port, f.heard)
	case f.heard.Errno == syscall.ECONNREFUSED && f.first.Arrived:
		v.bad("reach", "restart `uetperf serve` there", "UDP port %d of %v is closed, though its port for probes answers", port, f.to.Addr())
	case f.heard.Errno == syscall.ECONNREFUSED:
		v.bad("reach", "start `uetperf serve` there, or name its port", "nothing listens at UDP port %d of %v: it is closed", port, f.to.Addr())
	case f.first.Arrived && f.first.Protocol != uint16(perf.ProtocolVersion):
		v.bad("version", sameRelease, "the server speaks protocol %d (uetperf %s), this end %d", f.first.Protocol, f.first.Release, perf.ProtocolVersion)
	case f.first.Arrived:
		v.bad("firewall", fmt.Sprintf("let UDP port %d pass, both ways", port), "UDP port %d of %v is silent, while its port for probes (%d) answers in %v: a firewall keeps packets back",
			port, f.to.Addr(), int(port)+perf.ProbePort, f.first.RTT.Round(time.Microsecond))
	case heard.Prohibit:
		v.bad("firewall", fmt.Sprintf("let UDP ports %d to %d pass there", port, int(port)+perf.ProbePort), "%v", heard)
	case heard.Errno == syscall.EHOSTUNREACH || heard.Errno == syscall.ENETUNREACH:
		v.bad("reach", "look whether the host is up, and at the routes to it (ip route get "+f.to.Addr().String()+")", "no host at %v: %v", f.to.Addr(), heard)
	default:
		v.bad("reach", fmt.Sprintf("look whether `uetperf serve` runs there (ping the host), and let UDP ports %d to %d pass in firewalls", port, int(port)+perf.ProbePort),
			"nothing comes back from %v, not even that the port is closed: the host is down, or a firewall drops what we send", f.to)
	}
	return false
}

// security tries the endpoint type and security that tests are to use.
func (f *far) security(ctx context.Context) {
	v, ep, sec := f.v, f.v.cfg.EP, f.v.cfg.Sec
	if ep == "" {
		ep = traffic.RDM
	}
	if sec == "" {
		sec = traffic.Off
	}
	offers := ""
	if f.facts != nil {
		var names []string
		for _, s := range f.facts.Services {
			if s != "" {
				names = append(names, s)
			}
		}
		offers = "; it offers " + strings.Join(names, ", ")
	}
	if ep == traffic.RDM && sec == traffic.Off {
		v.ok("security", "tests in clear work%s", offers)
		return
	}
	c, err := f.dial(ctx, ep, sec)
	if err != nil {
		mend := "make keys with `uetperf keys FOLDER`, and give both ends copies of that folder (--keys)"
		if sec == traffic.Off {
			mend = fmt.Sprintf("let UDP ports %d to %d pass in firewalls", f.to.Port(), int(f.to.Port())+perf.Ports-1)
		}
		v.bad("security", mend, "-e %s --sec %s does not work: %v%s", ep, sec, err, offers)
		return
	}
	c.Close()
	v.ok("security", "-e %s --sec %s works%s", ep, sec, offers)
}

// nat checks whether addresses arrive as they left. It reports whether they were
// translated.
func (f *far) nat() bool {
	a := f.first
	if !a.Arrived {
		return false
	}
	const mend = "connect the two without address translation: a direct route, or a tunnel (WireGuard, VXLAN) between the hosts"
	switch {
	case a.From != netip.AddrPortFrom(f.asker.Local().Addr().WithZone(""), f.asker.Local().Port()):
		f.v.bad("nat", mend, "what leaves %v arrives from %v: somebody in between rewrites addresses, and CRC and seal cover them", f.asker.Local(), a.From)
		return true
	case a.To.Addr().WithZone("") != f.to.Addr().WithZone(""):
		f.v.bad("nat", mend, "what is sent to %v arrives at %v: somebody in between rewrites addresses, and CRC and seal cover them", f.to.Addr(), a.To.Addr())
		return true
	}
	f.v.ok("nat", "addresses arrive as they left: %v", a.From)
	return false
}

// dataPorts names the UDP ports between which tests send.
func (f *far) dataPorts() string {
	const free = "any of net.ipv4.ip_local_port_range"
	theirs, here := "", f.v.cfg.DataPorts.String()
	if f.facts != nil {
		theirs = f.facts.DataPorts
	}
	if theirs == "" && here == "" {
		return free + " at both hosts (--data-ports A-B narrows that)"
	}
	return cmp.Or(theirs, free) + " at the server, " + cmp.Or(here, free) + " here"
}

// firewallOfProbes reports that the control exchange works but probes do not.
func (f *far) firewallOfProbes() {
	if f.first.Arrived || f.facts == nil || f.asker == nil {
		return
	}
	if f.facts.Probe == 0 {
		f.v.warn("probes", "free the UDP port behind those of the server, and restart it", "the server answers no probes: what the path does is not known")
		return
	}
	heard := ""
	if f.first.Heard.Errno != 0 {
		heard = "; " + f.first.Heard.String()
	}
	f.v.bad("firewall", fmt.Sprintf("let UDP ports %d to %d pass, and %s", f.to.Port(), f.facts.Probe, f.dataPorts()),
		"control at UDP port %d works, and port %d is silent: a firewall lets single ports pass%s", f.to.Port(), f.facts.Probe, heard)
}

// sizes are IP packet sizes of common paths: jumbo frames, what our payloads need,
// Ethernet, tunnels, the minimum of IPv6.
var sizes = []int{9000, 8400, 4352, 2304, 1500, 1450, 1400, 1280}

// headers is the length of the IP and UDP headers in bytes.
func (f *far) headers() int {
	if f.local.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// packetOf is the size of the IP packet that carries a payload, with all headers and a
// seal.
func packetOf(payload int) int { return payload + 200 }

// mtu checks which packet sizes pass.
func (f *far) mtu(ctx context.Context) {
	v := f.v
	if !f.first.Arrived {
		return
	}
	in, err := perf.InfoTo(v.cfg.Target, v.cfg.Domain)
	if err != nil {
		return
	}
	p, err := perf.Probe(in)
	if err != nil || p.Socket.MTU == 0 {
		return
	}
	here := p.Socket.MTU
	most := here
	if f.facts != nil && f.facts.Path.MTU > 0 {
		most = min(most, f.facts.Path.MTU)
	}
	most = min(most, sizes[0])
	wait := max(patience, 4*f.first.RTT)
	passes := func(size int, full bool) (bool, probe.Heard) {
		a, err := f.asker.Ask(ctx, probe.Question{Size: size - f.headers(), Full: full}, 3, wait)
		return err == nil && a.Arrived, a.Heard
	}
	tested := []int{most}
	for _, s := range sizes {
		if s < most {
			tested = append(tested, s)
		}
	}
	fit, back, heard := 0, false, probe.Heard{}
	for _, s := range tested {
		ok, h := passes(s, false)
		if h.Errno == syscall.EMSGSIZE && heard.Errno == 0 {
			heard = h
		}
		if ok {
			if ok, _ = passes(s, true); !ok {
				back = true
				continue
			}
			fit = s
			break
		}
		if ctx.Err() != nil {
			return
		}
	}
	way := "there"
	if back {
		way = "back"
	}
	said := "no router says so: a black hole"
	if heard.Errno != 0 {
		said = heard.String()
	}
	switch {
	case fit == most:
		v.ok("mtu", "packets of %d B pass there and back (interface MTU %d, payload %d B)", most, here, p.PayloadMTU)
	case fit == 0:
		v.bad("mtu", "look for a firewall that drops large or plain UDP packets", "no packet of %d B or more passes, though one of %d B does", sizes[len(sizes)-1], probe.MinSize+f.headers())
	default:
		for f.mtuFit = p.PayloadMTU; f.mtuFit > 1024 && packetOf(f.mtuFit) > fit; {
			f.mtuFit /= 2
		}
		mend := fmt.Sprintf("ip link set %s mtu %d here, or the same at the server, or mend the path", p.Socket.Interface, fit)
		text := fmt.Sprintf("the interface has an MTU of %d, but packets above %d B do not pass %s (%s)", here, fit, way, said)
		if packetOf(p.PayloadMTU) <= fit {
			v.warn("mtu", mend, "%s; ours of %d B payload still do", text, p.PayloadMTU)
			return
		}
		v.bad("mtu", fmt.Sprintf("--mtu %d, or %s", f.mtuFit, mend), "%s, and ours carry %d B of payload, the path to %v %d B", text, p.PayloadMTU, f.to.Addr(), f.mtuFit)
	}
}

// ecn checks whether congestion marks arrive.
func (f *far) ecn(ctx context.Context) {
	v := f.v
	if !f.first.Arrived {
		return
	}
	const mend = "let switches and firewalls leave the lower two bits of the TOS octet alone; without them congestion is noticed by loss and delay"
	for _, sent := range []uint8{probe.ECT0, probe.CE} {
		a, err := f.asker.Ask(ctx, probe.Question{ECN: sent}, tries, max(patience, 4*f.first.RTT))
		switch {
		case err != nil || !a.Arrived:
			v.warn("ecn", mend, "packets with ECN bits %d do not arrive, though others do: somebody drops them", sent)
			return
		case !a.ECNKnown && !a.BackKnown:
			v.ok("ecn", "neither host tells which marks arrive")
			return
		case a.ECNKnown && a.ECN != sent:
			v.warn("ecn", mend, "ECN is bleached on the way there: sent %d, arrived %d", sent, a.ECN)
			return
		case a.BackKnown && a.Back != sent:
			v.warn("ecn", mend, "ECN is bleached on the way back: sent %d, arrived %d", sent, a.Back)
			return
		}
	}
	v.ok("ecn", "marks arrive, there and back")
}

// clocks compares the clocks of both hosts.
func (f *far) clocks() {
	d := time.Since(f.facts.Time).Round(time.Millisecond)
	if d > apart || d < -apart {
		f.v.warn("clocks", "let both hosts have the time (NTP, chrony)", "the clocks of the hosts differ by %v: certificates of one may not be valid at the other", d.Abs())
		return
	}
	f.v.ok("clocks", "those of both hosts agree within %v", max(d.Abs(), time.Millisecond))
}

// spec is what the doctor's tests have in common.
func (f *far) spec(test, op string, size int64) traffic.Spec {
	s := traffic.Spec{
		Test: test, Op: op, EP: traffic.RDM, Sec: traffic.Off, Mode: traffic.RUD, Complete: "transmit", Parallel: 1, Progress: "auto", CRC: true, CC: "nscc", GSO: "auto",
		Size: size, Seed: 1, PeerTimeout: min(f.v.cfg.Timeout, 7*time.Second), MTU: f.mtuFit,
	}
	if f.v.cfg.GSO != "" {
		s.GSO = f.v.cfg.GSO
	}
	return s
}

// accesses are the operations on memory of the server that are tried.
var accesses = []struct{ op, mode string }{{traffic.Write, traffic.RUD}, {traffic.Read, traffic.RUD}, {traffic.FAdd, traffic.RUD}, {traffic.Read, traffic.RUDI}}

// memory tries operations on memory of the server, whose data is verified.
func (f *far) memory(ctx context.Context, c *perf.Client) {
	var said []string
	for _, a := range accesses {
		s := f.spec(traffic.Lat, a.op, 8)
		s.Mode, s.Iters, s.Warmup, s.Check = a.mode, 20, 2, true
		if a.op != traffic.FAdd {
			s.Size = 4 << 10
		}
		name := a.op
		if a.mode == traffic.RUDI {
			name += " by RUDI"
		}
		res, err := c.Run(ctx, s, perf.Hooks{})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && strings.Contains(err.Error(), "is not one of"): // as a server of an older release says it
			f.v.warn("memory", sameRelease, "the server is of a release that does not have %s: %v", name, err)
			return
		case err != nil:
			f.v.bad("memory", "see what the server says (uetperf serve -v), and what is under way: uetperf lat HOST "+a.op+" --mode "+a.mode+" --pcap x.pcapng, uetdump --ops x.pcapng",
				"messages work, but %s fails: %v", name, err)
			return
		case res.Run.DataCheck != nil && res.Run.DataCheck.Wrong > 0:
			f.v.bad("memory", "report it, with what uetperf soak HOST "+a.op+" says: no network may change bytes unseen", "%s brought wrong data in %d of %d operations", name, res.Run.DataCheck.Wrong, res.Run.Msgs)
			return
		}
		took := ""
		if l := res.Run.Latency; l != nil {
			took = " in " + time.Duration(l.P50).Round(time.Microsecond/10).String()
		}
		said = append(said, name+took)
	}
	f.v.ok("memory", "operations on memory of the server work: %s", strings.Join(said, ", "))
}

// data runs a short test and checks what it cost. It reports whether the test ran.
func (f *far) data(ctx context.Context, c *perf.Client) bool {
	v := f.v
	s := f.spec(traffic.BW, traffic.TSend, 64<<10)
	s.Window, s.Time, s.Warmup = 32, time.Second, 32
	res, err := c.Run(ctx, s, perf.Hooks{})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && (perf.Unreachable(err) || errors.Is(err, perf.ErrUnreachable)):
		waits := ""
		if res != nil && len(res.Waiting) > 0 {
			waits = "; " + res.Waiting[0]
		}
		v.bad("firewall", "let UDP ports pass, both ways: "+f.dataPorts(), "control at UDP port %d works, and data between other ports does not arrive: %v%s", f.to.Port(), err, waits)
		return false
	case err != nil:
		v.bad("data", "see what the server says (uetperf serve -v)", "a test of one second fails: %v", err)
		return false
	}
	f.assess(res)
	return true
}

// assess reports what a test cost.
func (f *far) assess(res *perf.Result) {
	v, r := f.v, &res.Run
	sum := r.Transport
	sum.Drops = nil
	drops := map[string]uint64{}
	for _, c := range []*record.Counters{&r.Transport, r.PeerTransport} {
		if c == nil {
			continue
		}
		for k, n := range c.Drops {
			drops[k] += n
		}
	}
	rtx, pkts := sum.Rtx(), max(sum.TxPkts, 1)
	speed := "not measured"
	if r.GoodputBPS != nil {
		speed = fmt.Sprintf("%.2f Gb/s", *r.GoodputBPS/1e9)
	}
	share := float64(rtx) / float64(pkts)
	text := fmt.Sprintf("a test of one second: %s, %.2f%% of the packets were sent again", speed, 100*share)
	there, back := missing(r)
	switch {
	case drops["crc"] > 0:
		v.bad("data", "look at what is in between: address translation, or a broken link", "%s; %d packets came with a wrong CRC", text, drops["crc"])
	case drops["kernel"] > 0 && 2*drops["kernel"] >= there+back && share > lossy/10:
		v.warn("data", "larger socket buffers at the end that drops (sysctl -w net.core.rmem_max=…)", "%s; the kernel dropped %d packets that found the receive buffer full", text, drops["kernel"])
	case share <= lossy:
		v.ok("data", "%s", text)
	case r.PeerTransport == nil:
		v.warn("data", "try again", "%s; whether they were lost is not known: the server did not tell what it received", text)
	case float64(there+back) > float64(rtx)*astray:
		v.warn("data", "look for a link that loses packets (ethtool -S, counters of the switch)", "%s: the path lost %d of %d on the way there, %d of %d on the way back",
			text, there, r.Transport.TxPkts, back, r.PeerTransport.TxPkts)
	case float64(r.Transport.OOO+r.PeerTransport.OOO) > float64(rtx)*astray:
		v.warn("data", "look for links that share the packets of one flow between them", "%s, and hardly any was lost: they overtake each other, %d came behind later ones",
			text, r.Transport.OOO+r.PeerTransport.OOO)
	default:
		v.warn("data", "give both processes time: stop what else runs there, or give them processors of their own (taskset)",
			"%s, and hardly any was lost: they, or their acknowledgements, were late, as where an end is busy with other work", text)
	}
	f.slower(r)
}

// missing is how many packets got lost on the way there and on the way back. Both ends
// count all packets that they send and receive.
func missing(r *record.Run) (there, back uint64) {
	if r.PeerTransport == nil {
		return 0, 0
	}
	sub := func(a, b uint64) uint64 { return a - min(a, b) } // not negative, as a path may duplicate packets
	return sub(r.Transport.TxPkts, r.PeerTransport.RxPkts), sub(r.PeerTransport.TxPkts, r.Transport.RxPkts)
}

// slower reports whether one end had no processor time left.
func (f *far) slower(r *record.Run) {
	if r.CPU == nil || r.DurationNS <= 0 || r.CPU.PeerUserNS+r.CPU.PeerSysNS == 0 {
		return
	}
	mine := float64(r.CPU.UserNS+r.CPU.SysNS) / float64(r.DurationNS)
	peer := float64(r.CPU.PeerUserNS+r.CPU.PeerSysNS) / float64(r.DurationNS)
	if peer > busy && mine < idle {
		f.v.warn("receiver", "a faster processor there, or GSO and GRO, or more streams (-P)", "the server is the slower end: %.0f%% of a processor there, %.0f%% here", 100*peer, 100*mine)
		return
	}
	f.v.ok("receiver", "processor time: %.0f%% of one here, %.0f%% at the server", 100*mine, 100*peer)
}

// Exit is the exit status of a report.
func (r *Report) Exit() int {
	switch {
	case r.Reached != nil && !*r.Reached:
		return 3
	case !r.OK:
		return 1
	}
	return 0
}

// Of returns the check with the name if it is not ok, else nil.
func (r *Report) Of(name string) *Check {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name && c.Verdict != OK })
	if i < 0 {
		return nil
	}
	return &r.Checks[i]
}
