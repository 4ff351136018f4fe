package netswitch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// Bench measures how many packets the switch forwards per second. A generator in one
// namespace sends through the switch in another to a UDP socket in a third. The switch's
// goroutine and the generator are pinned to different processors.
//
// The namespaces have no name, so the kernel removes them when the call is over, however it
// ends.
func Bench(ctx context.Context, cfg BenchConfig) (*BenchResult, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	res := &BenchResult{}
	if runtime.GOMAXPROCS(0) < 2 {
		// Generator and switch run at the same time, each on its own thread.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	cpus, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	// Machines put their interrupts on the first processors.
	res.SwitchCPU, res.LoadCPU = cpus[len(cpus)-1], cpus[0]
	for _, size := range cfg.Sizes {
		s, err := benchSize(ctx, &cfg, size, res)
		if err != nil {
			return nil, err
		}
		res.Speeds = append(res.Speeds, *s)
	}
	return res, nil
}

func allowedCPUs() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &set))
}

// A lab is three namespaces in a row.
type lab struct {
	from, mid, to netns.NsHandle
	fromL, toL    *netlink.Handle
	sw            *Switch
	src, dst      netip.Addr
	swMAC, srcMAC mac
	fromIndex     int
	toIndex       int
}

// inThread runs f on a thread that ends with it. So f may change the thread's namespace and
// similar state.
func inThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// keepNamespace runs f on a thread of its own and then returns the thread to its first
// namespace, because the first thread of a process cannot end.
func keepNamespace(f func() error) error {
	return inThread(func() error {
		was, err := netns.Get()
		if err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		defer was.Close()
		defer netns.Set(was)
		return f()
	})
}

// inNamespace runs f in a network namespace.
func inNamespace(ns netns.NsHandle, f func() error) error {
	return keepNamespace(func() error {
		if err := netns.Set(ns); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return f()
	})
}

// newNamespace makes a network namespace without a name.
func newNamespace() (ns netns.NsHandle, err error) {
	err = keepNamespace(func() (err error) {
		if ns, err = netns.New(); errors.Is(err, unix.EPERM) {
			return errors.New("no network namespace: CAP_SYS_ADMIN and CAP_NET_ADMIN are missing: run as root")
		}
		if err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		return nil
	})
	return ns, err
}

// join makes a veth pair between two namespaces, each end with an address.
func join(a netns.NsHandle, aDev, aAddr string, b netns.NsHandle, bDev, bAddr string, mtu int) error {
	return inNamespace(a, func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: aDev, MTU: mtu}, PeerName: bDev, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b)}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("veth %s: %w", aDev, err)
		}
		if err := bringUp(aDev, aAddr); err != nil {
			return err
		}
		return inNamespace(b, func() error { return bringUp(bDev, bAddr) })
	})
}

// bringUp gives an interface of the calling thread's namespace an address and sets it up.
func bringUp(dev, addr string) error {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return fmt.Errorf("interface %s: %w", dev, err)
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		return fmt.Errorf("address %s of %s: %w", addr, dev, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("interface %s up: %w", dev, err)
	}
	return nil
}

// route makes gw the route to all other networks of a namespace.
func route(ns netns.NsHandle, gw string) error {
	return inNamespace(ns, func() error {
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		return os.NewSyscallError("route", netlink.RouteAdd(&netlink.Route{Dst: all, Gw: net.ParseIP(gw)}))
	})
}

// Addresses of a lab. RFC 2544 reserves this block for benchmarks; nothing outside the
// namespaces sees them.
const (
	labIn, labOut = "198.18.100.", "198.18.101."
)

// labPorts are the ports of a lab: "in" to the first namespace, "out" to the last.
func labPorts(from, to fabric.Line) []fabric.Port {
	return []fabric.Port{
		{Name: "in", Addrs: []netip.Prefix{netip.MustParsePrefix(labIn + "0/24")}, From: from, To: to},
		{Name: "out", Addrs: []netip.Prefix{netip.MustParsePrefix(labOut + "0/24")}, From: from, To: to},
	}
}

// newLab makes the namespaces and the veth pairs between them.
func newLab(mtu int) (*lab, error) {
	l := &lab{from: netns.None(), mid: netns.None(), to: netns.None()}
	if err := l.open(mtu); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) open(mtu int) (err error) {
	for _, ns := range []*netns.NsHandle{&l.from, &l.mid, &l.to} {
		if *ns, err = newNamespace(); err != nil {
			return err
		}
	}
	l.src, l.dst = netip.MustParseAddr(labIn+"2"), netip.MustParseAddr(labOut+"2")
	if err = join(l.mid, "in", labIn+"1/24", l.from, "eth0", labIn+"2/24", mtu); err != nil {
		return err
	}
	if err = join(l.mid, "out", labOut+"1/24", l.to, "eth0", labOut+"2/24", mtu); err != nil {
		return err
	}
	if err = route(l.from, labIn+"1"); err != nil {
		return err
	}
	if err = route(l.to, labOut+"1"); err != nil {
		return err
	}
	end := func(ns netns.NsHandle) (h *netlink.Handle, index int, m mac, err error) {
		if h, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE); err != nil {
			return nil, 0, m, fmt.Errorf("netlink: %w", err)
		}
		k, err := h.LinkByName("eth0")
		if err != nil {
			h.Close()
			return nil, 0, m, fmt.Errorf("netlink: %w", err)
		}
		return h, k.Attrs().Index, mac(k.Attrs().HardwareAddr), nil
	}
	if l.fromL, l.fromIndex, l.srcMAC, err = end(l.from); err != nil {
		return err
	}
	if l.toL, l.toIndex, _, err = end(l.to); err != nil {
		return err
	}
	return nil
}

// openSwitch opens the switch in the middle.
func (l *lab) openSwitch(opts Options) error {
	err := inNamespace(l.mid, func() (err error) {
		l.sw, err = Open(opts)
		return err
	})
	if err == nil {
		l.swMAC = l.sw.ports[0].mac
	}
	return err
}

func (l *lab) close() {
	if l.sw != nil {
		_ = l.sw.Close()
	}
	for _, h := range []*netlink.Handle{l.fromL, l.toL} {
		if h != nil {
			h.Close()
		}
	}
	for _, ns := range []netns.NsHandle{l.from, l.mid, l.to} {
		if ns.IsOpen() {
			_ = ns.Close()
		}
	}
}

// arrived returns how many packets have arrived at the far end.
func (l *lab) arrived() (uint64, error) {
	k, err := l.toL.LinkByIndex(l.toIndex)
	if err != nil {
		return 0, err
	}
	return k.Attrs().Statistics.RxPackets, nil
}

// benchSize measures the rates for packets of one size.
func benchSize(ctx context.Context, cfg *BenchConfig, size int, res *BenchResult) (_ *Speed, err error) {
	// Lines as in scenarios, but so fast that they never delay a packet.
	from := fabric.Line{Rules: []fabric.Rule{{Name: "ack loss", Match: fabric.Match{Kind: "ack"}, Loss: 0.01}}}
	to := fabric.Line{Rate: 400e9, Queue: 16 << 20, ECN: &fabric.ECN{Min: 4 << 20, Max: 8 << 20}}
	l, err := newLab(max(1500, size))
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.openSwitch(Options{pin: res.SwitchCPU + 1, Config: Config{Fabric: fabric.Config{Ports: labPorts(from, to)}}}); err != nil {
		return nil, err
	}
	sink, err := l.newSink()
	if err != nil {
		return nil, err
	}
	defer unix.Close(sink)
	g, err := l.newGenerator(size, res.LoadCPU)
	if err != nil {
		return nil, err
	}
	defer g.close()

	runCtx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- l.sw.Run(runCtx) }()
	defer func() {
		cancel()
		if e := <-ran; err == nil {
			err = e
		}
	}()

	b := &bench{l: l, g: g, trial: cfg.Trial}
	// The first packets teach the switch the sink's address.
	if _, err := b.run(ctx, 20_000, 20*time.Millisecond); err != nil {
		return nil, err
	}
	top, err := b.run(ctx, 0, cfg.Trial)
	if err != nil {
		return nil, err
	}
	if top.arrived == 0 {
		return nil, errors.New("no packet came through the switch")
	}
	s := &Speed{Size: size, Overload: float64(top.arrived) / top.all.Seconds(), Offered: float64(top.sent) / top.took.Seconds()}
	s.CPU = top.cpu / time.Duration(top.arrived)
	if res.SwitchCPU == res.LoadCPU {
		s.PPS = float64(time.Second) / float64(max(s.CPU, 1))
		return s, nil
	}
	// Bisect between 0 and a little more than arrived.
	lo, hi := 0.0, 1.1*s.Overload
	for try, i := 0.9*s.Overload, 0; i < cfg.Steps; i++ {
		t, err := b.run(ctx, try, cfg.Trial)
		if err == nil && !t.clean {
			// Another process may have used the processor: only a rate that fails twice is
			// too high.
			t, err = b.run(ctx, try, cfg.Trial)
		}
		if err != nil {
			return nil, err
		}
		if t.clean {
			lo = max(lo, float64(t.arrived)/t.took.Seconds())
		} else {
			hi = try
		}
		if hi <= lo {
			break
		}
		if try = (lo + hi) / 2; lo == 0 {
			try = 0.75 * hi
		}
	}
	s.PPS = lo
	return s, nil
}

// A bench is one generator and one switch.
type bench struct {
	l     *lab
	g     *generator
	trial time.Duration
}

// A trial is the result of sending at one rate.
type trial struct {
	sent, arrived uint64
	took          time.Duration // of the sender
	all           time.Duration // until the last packet arrived
	cpu           time.Duration // of the switch
	clean         bool
}

// run sends rate packets a second (0 means as many as it can) for d.
func (b *bench) run(ctx context.Context, rate float64, d time.Duration) (*trial, error) {
	before, err := b.l.arrived()
	if err != nil {
		return nil, err
	}
	h0, cpu0, err := b.l.sw.usage()
	if err != nil {
		return nil, err
	}
	t := &trial{}
	if t.sent, t.took, err = b.g.send(ctx, rate, d); err != nil {
		return nil, err
	}
	end := time.Now()
	// Wait until all packets have arrived, or no more arrive.
	last, lastAt := uint64(0), end
	for {
		n, err := b.l.arrived()
		if err != nil {
			return nil, err
		}
		now := time.Now()
		if n -= before; n != last {
			last, lastAt = n, now
		}
		if last >= t.sent || now.Sub(lastAt) > 2*drained {
			break
		}
	}
	t.arrived, t.all = last, t.took+lastAt.Sub(end)
	h1, cpu1, err := b.l.sw.usage()
	if err != nil {
		return nil, err
	}
	t.cpu = cpu1 - cpu0
	t.clean = t.arrived >= t.sent && h1 == h0 && lastAt.Sub(end) <= drained
	return t, nil
}

// usage returns the losses of the switch so far, and the processor time of forwarding.
func (s *Switch) usage() (lost uint64, cpu time.Duration, err error) {
	err = s.do(func(time.Duration) {
		for _, p := range s.ports {
			s.count.ringFull += p.ringDrops()
		}
		lost = s.count.ringFull + s.count.sendFailed
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) == nil {
			cpu = time.Duration(ts.Nano())
		}
	})
	return lost, cpu, err
}

const (
	benchPort  = 4793
	benchBatch = 32
)

// A generator sends the same UDP packet again and again, from a thread pinned to a
// processor.
type generator struct {
	cpu   int
	fd    int
	frame []byte
	vec   unix.Iovec
	msgs  [benchBatch]mmsghdr
}

// newSink opens the socket that packets go to. Nobody reads it: the packets pass the whole
// stack and then find the buffer full.
func (l *lab) newSink() (fd int, err error) {
	err = inNamespace(l.to, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1)
		if err = unix.Bind(fd, &unix.SockaddrInet4{Port: benchPort}); err != nil {
			_ = unix.Close(fd)
		}
		return os.NewSyscallError("bind", err)
	})
	return fd, err
}

// newGenerator makes a generator of packets of a size on a processor.
func (l *lab) newGenerator(size, cpu int) (*generator, error) {
	g := &generator{cpu: cpu}
	g.frame = appendEthernet(nil, l.swMAC, l.srcMAC, typeIPv4)
	ip := make([]byte, size)
	ip[0], ip[8], ip[9] = 0x45, 64, protoUDP
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	src, dst := l.src.As4(), l.dst.As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^fold(addWords(0, ip[:20])))
	binary.BigEndian.PutUint16(ip[20:], benchPort)
	binary.BigEndian.PutUint16(ip[22:], benchPort)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-20))
	completeChecksum(ip)
	g.frame = append(g.frame, ip...)
	g.vec.Base = &g.frame[0]
	g.vec.SetLen(len(g.frame))
	for i := range g.msgs {
		g.msgs[i].hdr.Iov, g.msgs[i].hdr.Iovlen = &g.vec, 1
	}
	err := inNamespace(l.from, func() (err error) {
		if g.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket(AF_PACKET)", err)
		}
		_ = unix.SetsockoptInt(g.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
		if err = unix.Bind(g.fd, &unix.SockaddrLinklayer{Ifindex: l.fromIndex}); err != nil {
			_ = unix.Close(g.fd)
		}
		return os.NewSyscallError("bind", err)
	})
	return g, err
}

func (g *generator) close() { _ = unix.Close(g.fd) }

// send sends rate packets a second for d. It returns how many the kernel accepted, and how
// long that took.
func (g *generator) send(ctx context.Context, rate float64, d time.Duration) (sent uint64, took time.Duration, err error) {
	err = inThread(func() error {
		if err := pinThread(g.cpu); err != nil {
			return err
		}
		start := time.Now()
		for {
			if took = time.Since(start); took >= d {
				return nil
			}
			n := uint64(benchBatch)
			if rate > 0 {
				due := uint64(took.Seconds() * rate)
				if due <= sent {
					continue
				}
				n = min(due-sent, benchBatch)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(g.fd), uintptr(unsafe.Pointer(&g.msgs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
			switch e {
			case 0:
				sent += uint64(r)
			case unix.ENOBUFS, unix.EAGAIN, unix.EINTR: // the processor's backlog is full
			default:
				return os.NewSyscallError("sendmmsg", e)
			}
		}
	})
	return sent, took, err
}
