package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
)

const (
	// fewBytes is a receive buffer, in bytes, that bursts of a single peer overrun: it is
	// smaller than the initial congestion window of one megabyte.
	fewBytes = 1 << 20
	// fewFiles and veryFewFiles are limits of open files that may not suffice. An endpoint
	// takes about five descriptors.
	fewFiles, veryFewFiles = 256, 64
	// late is how much later than asked a process may wake up on a host that is not
	// overloaded.
	late = 50 * time.Millisecond
)

// local checks this host. It returns an error if the interface that was asked for does not
// exist.
func (v *visit) local(ctx context.Context) error {
	infos, err := v.interfaces()
	if err != nil {
		return err
	}
	v.loopback(ctx)
	if len(infos) > 0 {
		in := *infos[0]
		if v.cfg.GSO == "off" {
			in.Config.Socket.GSO, in.Config.Socket.GRO = uet.OffloadOff, uet.OffloadOff
		}
		p, err := perf.Probe(&in)
		if err != nil {
			v.bad("socket", "look who has the port, and what limits there are (ulimit -n)", "no endpoint can be opened at %v: %v", in.SrcAddr.IP, err)
		} else {
			path := perf.PathOf(&p)
			v.buffers("buffers", "", &path, p.Socket.RecvBuf.Short, p.Socket.SendBuf.Short)
			v.offloads("offloads", "", &path)
		}
	}
	v.privileges()
	v.files()
	f := perf.ThisHostFacts()
	v.processors("processors", "", &f)
	v.clock("clock", "", &f)
	v.load("load", "this host", &f)
	return nil
}

// interfaces reports which interfaces can be used. It returns the one that leads to the
// server, or all if there is no server.
func (v *visit) interfaces() ([]*uet.Info, error) {
	hints := &uet.Info{}
	hints.Domain.Name = v.cfg.Domain
	infos, err := perf.Infos(hints)
	if err != nil {
		return nil, err
	}
	if v.cfg.Target.IsValid() {
		in, err := perf.InfoTo(v.cfg.Target, v.cfg.Domain)
		if err != nil {
			v.bad("interfaces", "add a route or an interface that leads there (ip route get "+v.cfg.Target.Addr().String()+")", "%v", err)
			return nil, nil
		}
		v.ok("interfaces", "%s leads to %v", in.Domain.Name, v.cfg.Target.Addr())
		return []*uet.Info{in}, nil
	}
	var names, idle []string
	outside := false
	for _, in := range infos {
		if !slices.Contains(names, in.Domain.Name) {
			names = append(names, in.Domain.Name)
		}
		outside = outside || !in.SrcAddr.IP.IsLoopback()
	}
	var first uet.Reason
	for _, r := range uet.Explain(hints) {
		if r.Field != "Domain.Name" && !slices.Contains(idle, r.Interface) {
			if idle = append(idle, r.Interface); first.Why == "" {
				first = r
			}
		}
	}
	can := strings.Join(names, ", ") + " can be used"
	switch {
	case !outside && v.cfg.Domain == "":
		mend := first.Mend
		if mend == "" {
			mend = "add an interface with an IP address"
		}
		v.warn("interfaces", mend, "%s, which reaches nobody but this host%s", can, notUsed(idle))
	default:
		v.ok("interfaces", "%s%s", can, notUsed(idle))
	}
	return infos, nil
}

func notUsed(idle []string) string {
	if idle == nil {
		return ""
	}
	return "; " + strings.Join(idle, ", ") + " can not (uetperf info --explain)"
}

// loopback checks that datagrams of the size of large packets pass through the kernel.
func (v *visit) loopback(ctx context.Context) {
	const name = "loopback"
	ip := netip.MustParseAddr("127.0.0.1")
	e, err := probe.Listen(netip.AddrPortFrom(ip, 0), probe.Identity{})
	if err != nil {
		v.bad(name, "ip link set lo up; ulimit -n", "no UDP socket can be opened at %v: %v", ip, err)
		return
	}
	defer e.Close()
	a, err := probe.Open(ip, portrange.Range{}, e.Addr())
	if err != nil {
		v.bad(name, "ip link set lo up; ulimit -n", "no UDP socket can be opened at %v: %v", ip, err)
		return
	}
	defer a.Close()
	got, err := a.Ask(ctx, probe.Question{Size: 8400, Full: true, ECN: probe.ECT0}, 3, 300*time.Millisecond)
	switch {
	case err != nil:
		v.bad(name, "look at packet filters for lo (nft list ruleset)", "UDP over %v fails: %v", ip, err)
	case !got.Arrived:
		v.bad(name, "look at packet filters for lo (nft list ruleset)", "UDP over %v does not arrive; heard: %v", ip, got.Heard)
	case got.ECNKnown && got.ECN != probe.ECT0:
		v.warn(name, "look at packet filters that change the TOS octet (nft list ruleset)", "ECN marks are changed on this very host: sent %d, arrived %d", probe.ECT0, got.ECN)
	default:
		v.ok(name, "UDP datagrams of 8400 B go there and back in %v", got.RTT.Round(time.Microsecond))
	}
}

// buffers checks the socket buffers of a host. rcvShort and sndShort say which are smaller
// than asked for; the size alone does not tell, because some systems count their own
// overhead.
func (v *visit) buffers(name, whose string, p *record.Path, rcvShort, sndShort bool) {
	if p.Rcvbuf == 0 {
		v.warn(name, "", "%sthe system does not tell the size of socket buffers", whose)
		return
	}
	of := func(got, asked int, short bool) string {
		switch {
		case !short:
			return units.Bytes(int64(got))
		case got >= asked: // the size includes as much again for the system's own use
			asked *= 2
		}
		return units.Bytes(int64(got)) + " of " + units.Bytes(int64(asked))
	}
	got := fmt.Sprintf("%ssocket buffers: receive %s, send %s", whose, of(p.Rcvbuf, p.RcvbufAsked, rcvShort), of(p.Sndbuf, p.SndbufAsked, sndShort))
	mend := fmt.Sprintf("sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d, or give the program CAP_NET_ADMIN", p.RcvbufAsked, p.SndbufAsked)
	switch {
	case rcvShort && p.Rcvbuf < fewBytes:
		v.bad(name, mend, "%s: bursts overrun it, and what is lost is sent again", got)
	case rcvShort || sndShort:
		v.warn(name, mend, "%s: bursts may overrun them", got)
	default:
		v.ok(name, "%s", got)
	}
}

func (v *visit) offloads(name, whose string, p *record.Path) {
	var off []string
	mend := "take Linux 5.0 or later"
	if !p.GSO.On {
		off = append(off, "GSO off ("+p.GSO.Why+"): each datagram sent costs a system call")
	}
	if !p.GRO.On {
		off = append(off, "GRO off ("+p.GRO.Why+"): each datagram is received by itself")
	}
	if strings.Contains(p.GSO.Why+p.GRO.Why, "Config.") {
		mend = "leave --gso off out"
	}
	if off != nil {
		v.warn(name, mend, "%s%s", whose, strings.Join(off, "; "))
		return
	}
	v.ok(name, "%sGSO and GRO on", whose)
}

func (v *visit) privileges() {
	const name = "privileges"
	switch can, known := netAdmin(); {
	case !known:
		v.ok(name, "no special ones are needed")
	case can:
		v.ok(name, "CAP_NET_ADMIN: socket buffers may exceed the limits of the system")
	default:
		v.ok(name, "none, and none are needed: socket buffers are as large as net.core.rmem_max lets them be")
	}
}

func (v *visit) files() {
	const name = "files"
	soft, known := openFiles()
	mend := "ulimit -n 4096, or LimitNOFILE= of the service"
	switch {
	case !known:
		v.ok(name, "the system sets no limit that concerns us")
	case soft < veryFewFiles:
		v.bad(name, mend, "at most %d files may be open: an endpoint takes about five", soft)
	case soft < fewFiles:
		v.warn(name, mend, "at most %d files may be open: an endpoint takes about five", soft)
	default:
		v.ok(name, "%d files may be open", soft)
	}
}

func (v *visit) processors(name, whose string, f *perf.Facts) {
	gov := ""
	if f.Governor != "" {
		gov = ", governor " + f.Governor
	}
	text := fmt.Sprintf("%s%d of %d processors may be used%s", whose, f.Allowed, f.CPUs, gov)
	switch {
	case f.Allowed == 1 && f.CPUs > 1:
		v.warn(name, "let the process use more processors (taskset, AllowedCPUs=, the limits of the container)", "%s: program and kernel take turns", text)
	case f.Allowed == 1:
		v.warn(name, "a host with two processors or more", "%s: program and kernel take turns", text)
	case f.Governor == "powersave":
		v.warn(name, "cpupower frequency-set -g performance", "%s: it takes time to become fast", text)
	default:
		v.ok(name, "%s", text)
	}
}

// slowClocks are clock sources that take a system call, or a microsecond of I/O, to read.
var slowClocks = []string{"acpi_pm", "hpet", "jiffies", "refined-jiffies", "pit", "xen"}

func (v *visit) clock(name, whose string, f *perf.Facts) {
	switch {
	case slices.Contains(slowClocks, f.Clock):
		v.warn(name, "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if the processor's is stable", "%sclock source %s: each look at the clock costs about a microsecond", whose, f.Clock)
	case f.Clock == "":
		v.ok(name, "%sthe clock of %s", whose, runtime.GOOS)
	default:
		v.ok(name, "%sclock source %s", whose, f.Clock)
	}
}

func (v *visit) load(name, whose string, f *perf.Facts) {
	text := fmt.Sprintf("%s lets its process run within %v", whose, f.Lag.Round(100*time.Microsecond))
	if f.Load >= 0 {
		text += fmt.Sprintf(", load %.1f on %d processors", f.Load, f.Allowed)
	}
	if f.Lag > late {
		v.warn(name, "stop what else runs there, or give the process more of the processor (nice, CPU limits of the container)", "%s: it is busy with others, or stopped, and answers late", text)
		return
	}
	v.ok(name, "%s", text)
}
