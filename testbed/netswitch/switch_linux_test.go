package netswitch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// needRoot skips a test that cannot make network namespaces.
func needRoot(t testing.TB) {
	t.Helper()
	ns, err := newNamespace()
	if err != nil {
		t.Skip(err)
	}
	_ = ns.Close()
}

// A rig is a lab with a running switch and a UDP socket at each end.
type rig struct {
	*lab
	t    *testing.T
	log  *logBuffer
	a, b *net.UDPConn
	url  string
	stop func()
}

func newRig(t *testing.T, mod func(*Options)) *rig {
	t.Helper()
	return newRigWith(t, mod, nil)
}

// newRigWith calls prepare before the switch exists.
func newRigWith(t *testing.T, mod func(*Options), prepare func(*rig)) *rig {
	t.Helper()
	needRoot(t)
	r := &rig{t: t, log: &logBuffer{}}
	opts := Options{Config: Config{Fabric: fabric.Config{Seed: 1, Ports: labPorts(fabric.Line{}, fabric.Line{})}}, HTTP: labIn + "1:0", Log: r.log}
	if mod != nil {
		mod(&opts)
	}
	var err error
	if r.lab, err = newLab(1500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.lab.close)
	if prepare != nil {
		prepare(r)
	}
	if err := r.openSwitch(opts); err != nil {
		t.Fatal(err)
	}
	listen := func(addr netip.Addr) *net.UDPConn {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 7000)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetReadBuffer(4 << 20)
		raw, _ := c.SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
		})
		return c
	}
	r.in(r.from, func() { r.a = listen(r.src) })
	r.in(r.to, func() { r.b = listen(r.dst) })
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.sw.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	r.url = "http://" + r.sw.Addr().String()
	return r
}

func (r *rig) in(ns netns.NsHandle, f func()) {
	r.t.Helper()
	if err := inNamespace(ns, func() error { f(); return nil }); err != nil {
		r.t.Fatal(err)
	}
}

// send sends a datagram from a to b.
func (r *rig) send(format string, args ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(writerTo{r.a, r.b.LocalAddr()}, format, args...); err != nil {
		r.t.Fatal(err)
	}
}

type writerTo struct {
	c  *net.UDPConn
	to net.Addr
}

func (w writerTo) Write(b []byte) (int, error) { return w.c.WriteTo(b, w.to) }

// recv returns the next datagram at c, and its TOS.
func recv(t *testing.T, c *net.UDPConn) (string, byte) {
	t.Helper()
	s, tos, err := tryRecv(c, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s, tos
}

func tryRecv(c *net.UDPConn, d time.Duration) (string, byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	b, oob := make([]byte, 2000), make([]byte, 64)
	n, on, _, _, err := c.ReadMsgUDP(b, oob)
	if err != nil {
		return "", 0, err
	}
	var tos byte
	ms, _ := unix.ParseSocketControlMessage(oob[:on])
	for _, m := range ms {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TOS {
			tos = m.Data[0]
		}
	}
	return string(b[:n]), tos, nil
}

// stats gets the Stats over HTTP.
func (r *rig) stats() (st Stats) {
	r.t.Helper()
	b := r.get("/stats")
	if err := json.Unmarshal(b, &st); err != nil {
		r.t.Fatalf("%v in %s", err, b)
	}
	return st
}

// client returns an HTTP client that connects from the first namespace to the switch's
// address.
func (r *rig) client() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = inNamespace(r.from, func() (err error) {
			c, err = net.Dial(network, addr)
			return err
		})
		return c, err
	}}}
}

func (r *rig) get(path string) []byte {
	r.t.Helper()
	resp, err := r.client().Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s: %s %v %s", path, resp.Status, err, b)
	}
	return b
}

func (r *rig) post(path, body string) (code int, text string) {
	r.t.Helper()
	resp, err := r.client().Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func TestForwardsBothWays(t *testing.T) {
	r := newRig(t, nil)
	const n = 200
	for i := range n {
		r.send("to b %d", i)
		if got, _ := recv(t, r.b); got != fmt.Sprintf("to b %d", i) {
			t.Fatalf("b got %q, not number %d", got, i)
		}
		fmt.Fprintf(writerTo{r.b, r.a.LocalAddr()}, "to a %d", i)
		if got, _ := recv(t, r.a); got != fmt.Sprintf("to a %d", i) {
			t.Fatalf("a got %q, not number %d", got, i)
		}
	}
	st := r.stats()
	// The fabric does not count packets for the switch itself, such as this request.
	if st.Fabric.Received != 2*n || st.Fabric.Sent != 2*n || st.Health.Drops != 0 {
		t.Errorf("after %d packets each way: %+v", n, st)
	}
	if h := st.Health; h.Leave.Count < 2*n-1 || h.Wait.Count < 2*n || h.Leave.P99 <= 0 {
		t.Errorf("lateness was not measured: %+v", h)
	}
}

// generator sends packets of 100 bytes from the first namespace to a socket in the last.
func (r *rig) generator() *generator {
	r.t.Helper()
	sink, err := r.newSink() // without it there would be ICMP
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { unix.Close(sink) })
	cpus, err := allowedCPUs()
	if err != nil {
		r.t.Fatal(err)
	}
	g, err := r.newGenerator(100, cpus[0])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(g.close)
	return g
}

// Only frames that are addressed to the switch are forwarded. On a bridge it also sees
// frames to others, and forwarded broadcasts would circulate.
func TestForwardsOnlyWhatItIsSent(t *testing.T) {
	r := newRig(t, nil)
	g := r.generator()
	ours := mac(g.frame[:6])
	for _, dst := range []mac{{2, 9, 9, 9, 9, 9}, broadcast, {1, 0, 0x5e, 0, 0, 1}, ours} {
		copy(g.frame, dst[:])
		if _, err := unix.Write(g.fd, g.frame); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, func() bool { return r.stats().Fabric.Sent > 0 })
	if st := r.stats(); st.Fabric.Received != 1 {
		t.Errorf("%d of 4 entered the fabric", st.Fabric.Received)
	}
}

func TestMorePacketsThanTheRingHas(t *testing.T) {
	r := newRig(t, nil)
	g := r.generator()
	before, err := r.arrived()
	if err != nil {
		t.Fatal(err)
	}
	sent := uint64(0)
	for sent < uint64(2*r.sw.ports[0].frames) {
		n, _, err := g.send(context.Background(), 20000, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		// A switch that was off its processor is no loss.
		wait(t, func() bool { return r.stats().Fabric.Received == sent })
	}
	st := r.stats()
	after, err := r.arrived()
	// One of them is the request for the receiver's address.
	if err != nil || after-before < sent || after-before > sent+5 || st.Fabric.Sent != sent || st.Health.Drops > 0 || st.Health.Malformed > 0 {
		t.Errorf("%d sent, %d arrived, %v, %+v", sent, after-before, err, st)
	}
}

// Interfaces of the namespaces leave checksums to hardware by default. Packets that arrive
// at a kernel socket have right checksums all the same.
func TestChecksumsLeftToHardware(t *testing.T) {
	r := newRig(t, nil)
	big := strings.Repeat("x", 1001)
	r.send("%s", big)
	if got, _ := recv(t, r.b); got != big {
		t.Fatalf("%d bytes arrived", len(got))
	}
	if st := r.stats(); st.Health.Checksums == 0 {
		t.Errorf("no checksum was computed: is the sender's offload off? %+v", st.Health)
	}
	r.in(r.from, func() {
		if err := OffloadsOff("eth0"); err != nil {
			t.Error(err)
		}
	})
	before := r.stats().Health.Checksums
	r.send("%s", big)
	if got, _ := recv(t, r.b); got != big {
		t.Fatalf("%d bytes arrived", len(got))
	}
	if st := r.stats(); st.Health.Checksums != before {
		t.Errorf("offloads are off and still checksums are missing: %+v", st.Health)
	}
}

func TestLossEqualsLog(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Fabric.Ports[0].From.Rules = []fabric.Rule{{Name: "third", Loss: 0.3, Match: fabric.Match{DstPort: 7000}}}
	})
	const n = 500
	got := map[string]bool{}
	for i := range n {
		r.send("%d", i)
	}
	// All packets have passed when every one is counted.
	wait(t, func() bool {
		st := r.stats()
		return st.Fabric.Whys["lost_random"]+st.Fabric.Lines["out.to"].SentPkts == n
	})
	st := r.stats()
	for {
		s, _, err := tryRecv(r.b, 50*time.Millisecond)
		if err != nil {
			break
		}
		got[s] = true
	}
	lost := int(st.Fabric.Lines["in.from"].Whys["lost_random"])
	if lost < n/5 || lost > n*2/5 || len(got) != n-lost {
		t.Errorf("of %d: %d lost, %d arrived", n, lost, len(got))
	}
	r.stop()
	lines := r.log.lines(t)
	if len(lines) != lost {
		t.Errorf("%d lines for %d losses", len(lines), lost)
	}
	for _, l := range lines {
		if l.Why != "lost_random" || l.Rule != "third" || l.Line != "in.from" || l.Dst.Addr() != r.dst || l.Src.Port() != 7000 || l.Kind != "other" {
			t.Fatalf("line %+v", l)
		}
	}
}

func TestEventWhileItRuns(t *testing.T) {
	r := newRig(t, func(o *Options) { o.LogAll = true })
	r.send("before")
	recv(t, r.b)
	if code, text := r.post("/events", `{"on":["out.to"],"rule":{"name":"hole","blackhole":true}}`); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, text)
	}
	r.send("lost")
	wait(t, func() bool { return r.stats().Fabric.Whys["lost_blackhole"] == 1 })
	if code, text := r.post("/events", `{"on":["out.to"],"clear":"hole","set":{"delay":"30ms"}}`); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, text)
	}
	at := time.Now()
	r.send("after")
	if got, _ := recv(t, r.b); got != "after" {
		t.Errorf("got %q", got)
	}
	if d := time.Since(at); d < 30*time.Millisecond {
		t.Errorf("arrived after %v in spite of 30ms delay", d)
	}
	for body, want := range map[string]string{
		`{"on":["nowhere.to"],"down":true}`: "nowhere.to",
		`{"at":"x","on":["*"]}`:             "x",
		`{"onn":["*"]}`:                     "onn",
		`{`:                                 "one whole JSON",
		``:                                  "one whole JSON",
		`{"on":["*"],"down":true} {}`:       "more follows",
		`[`:                                 "",
	} {
		code, text := r.post("/events", body)
		if code != http.StatusBadRequest || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %d %q", body, code, text)
		}
	}
	// The other pages of the control interface.
	if code, _ := r.post("/start", ""); code != http.StatusNoContent {
		t.Errorf("/start: %d", code)
	}
	if st := r.stats(); st.Fabric.Started == nil {
		t.Error("not started")
	}
	if b := r.get("/healthz"); string(b) != "ok\n" {
		t.Errorf("/healthz: %s", b)
	}
	var c Config
	if err := json.Unmarshal(r.get("/config"), &c); err != nil || c.Interfaces["in"] != "in" || len(c.Fabric.Ports) != 2 {
		t.Errorf("/config: %v %+v", err, c)
	}
	if b := r.get("/metrics"); !bytes.Contains(b, []byte(`uetswitch_decisions_total{line="out.to",why="lost_blackhole"} 1`)) {
		t.Errorf("/metrics: %s", b)
	}
	wait(t, func() bool { return bytes.Contains(r.get("/series"), []byte("out.to")) })
	r.stop()
	whys := map[string]int{}
	for _, l := range r.log.lines(t) {
		whys[l.Why]++
	}
	if whys["passed"] != 2 || whys["lost_blackhole"] != 1 {
		t.Errorf("log: %v", whys)
	}
}

func TestMarkedAndTrimmedArrive(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Fabric.Ports[0].From.Rules = []fabric.Rule{{Name: "mark", CE: 1}, {Name: "trim", Trim: 1}}
	})
	raw, err := r.a.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		tos, got byte
		trimmed  bool
	}{
		{"not ECT", 46 << 2, 46 << 2, false},
		{"ECT", 46<<2 | 2, 46<<2 | 3, false},
		{"trimmable", 10<<2 | 2, 26<<2 | 3, true},
	} {
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, int(c.tos)) })
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Repeat("0123456789", 60)
		r.send("%s", body)
		got, tos := recv(t, r.b)
		if !strings.HasPrefix(body, got) || (len(got) < len(body)) != c.trimmed {
			t.Errorf("%s: %d bytes arrived", c.name, len(got))
		}
		if tos != c.got {
			t.Errorf("%s: TOS %#02x, want %#02x", c.name, tos, c.got)
		}
	}
}

// The switch asks for the address of a host that has never sent, while packets wait for it.
// It gives up a host that does not exist.
func TestAsksForHosts(t *testing.T) {
	r := newRig(t, nil)
	r.send("first")
	if got, _ := recv(t, r.b); got != "first" {
		t.Errorf("got %q", got)
	}
	nobody := netip.MustParseAddrPort(labOut + "77:7000")
	for range 3 {
		if _, err := r.a.WriteToUDPAddrPort([]byte("x"), nobody); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, func() bool { return r.stats().Health.Unresolved == 3 })
	if h := r.stats().Health; h.Drops != 0 || len(h.Warnings) == 0 {
		t.Errorf("%+v", h)
	}
	// Another host replaced a host and took its address.
	r.in(r.to, func() {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 9})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	wait(t, func() bool {
		r.send("again")
		got, _, err := tryRecv(r.b, 100*time.Millisecond)
		return err == nil && got == "again"
	})
}

// Trains that a host did not split are lost, and Health says what to do.
func TestTrainsAreReported(t *testing.T) {
	r := newRig(t, nil)
	raw, err := r.a.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) })
	if err != nil {
		t.Skip("no UDP GSO:", err)
	}
	train := strings.Repeat("x", 10000)
	r.send("%s", train)
	wait(t, func() bool { return r.stats().Health.Oversize == 1 })
	if w := strings.Join(r.stats().Health.Warnings, "\n"); !strings.Contains(w, "ethtool") {
		t.Errorf("warnings: %s", w)
	}
	r.in(r.from, func() {
		if err := OffloadsOff("eth0"); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.a.WriteTo([]byte(train), r.b.LocalAddr()); errors.Is(err, unix.EIO) {
		t.Skip("this kernel makes no trains without checksum offload")
	}
	for range 10 {
		if got, _ := recv(t, r.b); len(got) != 1000 {
			t.Fatalf("%d bytes arrived", len(got))
		}
	}
}

func TestRefusals(t *testing.T) {
	needRoot(t)
	port := func(name string, addrs ...string) fabric.Port {
		p := fabric.Port{Name: name}
		for _, a := range addrs {
			p.Addrs = append(p.Addrs, netip.MustParsePrefix(a))
		}
		return p
	}
	in := port("in", labIn+"0/24")
	l, err := newLab(1500)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, c := range []struct {
		name string
		cfg  Config
		http string
		want string
	}{
		{"no such interface", Config{Fabric: fabric.Config{Ports: []fabric.Port{in}}, Interfaces: map[string]string{"in": "eth9"}}, "", "there is no interface eth9 here; there are in 198.18.100.1/24"},
		{"no such port", Config{Fabric: fabric.Config{Ports: []fabric.Port{in}}, Interfaces: map[string]string{"i": "in"}}, "", `there is no port "i"; the ports are in`},
		{"no address", Config{Fabric: fabric.Config{Ports: []fabric.Port{in, port("x", "198.18.119.0/24")}}}, "", "no interface has an address in 198.18.119.0/24"},
		{"twice", Config{Fabric: fabric.Config{Ports: []fabric.Port{in, port("x", "198.18.119.0/24")}}, Interfaces: map[string]string{"x": "in"}}, "", "both use interface in"},
		{"HTTP", Config{Fabric: fabric.Config{Ports: []fabric.Port{in}}}, "198.18.119.1:80", "--http 198.18.119.1:80"},
		{"fabric", Config{}, "", "port"},
	} {
		log := &logBuffer{}
		err := l.openSwitch(Options{Config: c.cfg, HTTP: c.http, Log: log})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
		if !log.closed {
			t.Errorf("%s: the log is open", c.name)
		}
	}
}

func TestSecondSwitchIsRefused(t *testing.T) {
	r := newRig(t, nil)
	err := inNamespace(r.mid, func() error {
		_, err := Open(Options{Config: Config{Fabric: fabric.Config{Ports: labPorts(fabric.Line{}, fabric.Line{})}}})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `port "in": interface in: another switch forwards here already`) {
		t.Errorf("%v", err)
	}
	r.send("still")
	if got, _ := recv(t, r.b); got != "still" {
		t.Errorf("got %q", got)
	}
}

func TestForwardsIPv6(t *testing.T) {
	r := newRigWith(t, func(o *Options) {
		o.Fabric.Ports[0].Addrs = append(o.Fabric.Ports[0].Addrs, netip.MustParsePrefix("2001:db8:100::/64"))
		o.Fabric.Ports[1].Addrs = append(o.Fabric.Ports[1].Addrs, netip.MustParsePrefix("2001:db8:101::/64"))
	}, func(r *rig) {
		addr := func(dev, a string) {
			l, err := netlink.LinkByName(dev)
			if err == nil {
				x, _ := netlink.ParseAddr(a)
				x.Flags = unix.IFA_F_NODAD // usable at once
				err = netlink.AddrAdd(l, x)
			}
			if err == nil && dev == "eth0" {
				_, all, _ := net.ParseCIDR("::/0")
				gw := netip.MustParsePrefix(a).Masked().Addr().Next()
				err = netlink.RouteAdd(&netlink.Route{Dst: all, Gw: gw.AsSlice()})
			}
			if err != nil {
				r.t.Skip("no IPv6:", err)
			}
		}
		r.in(r.mid, func() { addr("in", "2001:db8:100::1/64"); addr("out", "2001:db8:101::1/64") })
		r.in(r.from, func() { addr("eth0", "2001:db8:100::2/64") })
		r.in(r.to, func() { addr("eth0", "2001:db8:101::2/64") })
	})
	listen := func(a string) (c *net.UDPConn) {
		c, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(a)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var a, b *net.UDPConn
	r.in(r.from, func() { a = listen("[2001:db8:100::2]:7006") })
	r.in(r.to, func() { b = listen("[2001:db8:101::2]:7006") })
	for range 3 {
		fmt.Fprint(writerTo{a, b.LocalAddr()}, "over six")
		if got, _ := recv(t, b); got != "over six" {
			t.Errorf("b got %q", got)
		}
		fmt.Fprint(writerTo{b, a.LocalAddr()}, "and back")
		if got, _ := recv(t, a); got != "and back" {
			t.Errorf("a got %q", got)
		}
	}
}

func TestKernelDoesNotForward(t *testing.T) {
	r := newRig(t, nil)
	const path = "/proc/sys/net/ipv4/ip_forward"
	forwards := func() (s string) {
		r.in(r.mid, func() {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s = strings.TrimSpace(string(b))
		})
		return s
	}
	r.in(r.mid, func() {
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		undo, err := stopForwarding()
		if err != nil {
			t.Fatal(err)
		}
		if got := forwards(); got != "0" {
			t.Errorf("ip_forward is %s with the switch", got)
		}
		undo()
	})
	if got := forwards(); got != "1" {
		t.Errorf("ip_forward is %s after the switch", got)
	}
}
