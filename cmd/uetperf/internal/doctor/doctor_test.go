package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var here = netip.MustParseAddr("127.0.0.1")

// serve starts a server and returns its first address.
func serve(t *testing.T, change func(*perf.ServerConfig)) netip.AddrPort {
	t.Helper()
	cfg := perf.ServerConfig{Listen: netip.AddrPortFrom(here, 0), AnyPort: true}
	if change != nil {
		change(&cfg)
	}
	s, err := perf.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		s.Close()
	})
	return s.Addrs()[0]
}

func visitTo(t *testing.T, to netip.AddrPort, change func(*Config)) *Report {
	t.Helper()
	cfg := Config{Target: to, Timeout: 2 * time.Second, Say: func(c *Check) { t.Logf("%-4s %s: %s → %s", c.Verdict, c.Name, c.Cause, c.Mend) }}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if c.Cause == "" || c.Verdict != OK && c.Mend == "" || strings.Contains(c.Cause+c.Mend, "%!") || strings.ContainsRune(c.Cause+c.Mend, '\n') {
			t.Errorf("not a whole check: %+v", c)
		}
	}
	return r
}

// An interrupted doctor reports no more checks, because missing answers then say nothing of
// the network.
func TestInterruptedFindsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	there := serve(t, nil)
	_, err := Run(ctx, Config{Target: there, Say: func(c *Check) {
		switch {
		case ctx.Err() != nil:
			t.Errorf("%s %s: %s", c.Verdict, c.Name, c.Cause)
		case c.Name == "reach":
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, and not interrupted", err)
	}
}

// wants fails the test unless the check has the verdict and the text.
func wants(t *testing.T, r *Report, name string, v Verdict, text string) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name && c.Verdict == v && strings.Contains(c.Cause, text) {
			return
		}
	}
	t.Errorf("no check %s is %s with %q", name, v, text)
}

func exits(t *testing.T, r *Report, want int) {
	t.Helper()
	if got := r.Exit(); got != want {
		t.Errorf("exit status %d, want %d", got, want)
	}
}

func TestHealthy(t *testing.T) {
	r := visitTo(t, serve(t, nil), nil)
	for _, name := range []string{"interfaces", "loopback", "files", "reach", "version", "security", "nat", "mtu"} {
		wants(t, r, name, OK, "")
	}
	exits(t, r, 0)
	if r.Peer == nil || r.Reached == nil || !*r.Reached {
		t.Errorf("%+v", r)
	}
}

func TestHere(t *testing.T) {
	r := visitTo(t, netip.AddrPort{}, nil)
	for _, name := range []string{"interfaces", "loopback", "files"} {
		wants(t, r, name, OK, "")
	}
	if r.Reached != nil || r.Peer != nil || r.Of("reach") != nil {
		t.Errorf("nobody was asked for: %+v", r)
	}
}

func TestNobodyThere(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ICMP is heard on Linux only")
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := c.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = c.Close()
	r := visitTo(t, at, nil)
	wants(t, r, "reach", Bad, "it is closed")
	exits(t, r, 3)
}

func TestSilence(t *testing.T) {
	var ports []net.PacketConn
	var first netip.AddrPort
	// All ports that the doctor asks receive and do not answer.
	for range 20 {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := c.LocalAddr().(*net.UDPAddr).AddrPort()
		d, err := net.ListenPacket("udp", netip.AddrPortFrom(at.Addr(), at.Port()+uint16(perf.ProbePort)).String())
		if err == nil {
			first, ports = at, append(ports, c, d)
			break
		}
		_ = c.Close()
	}
	if ports == nil {
		t.Skip("no two free ports")
	}
	defer func() {
		for _, c := range ports {
			_ = c.Close()
		}
	}()
	r := visitTo(t, first, nil)
	wants(t, r, "reach", Bad, "not even that the port is closed")
	exits(t, r, 3)
}

func TestOtherVersion(t *testing.T) {
	r := visitTo(t, serve(t, func(c *perf.ServerConfig) { c.Pretend.Protocol = 9 }), nil)
	wants(t, r, "version", Bad, "speaks protocol 9, the client 1")
	exits(t, r, 1)
}

func TestOlderServer(t *testing.T) {
	r := visitTo(t, serve(t, func(c *perf.ServerConfig) { c.Pretend.Older = true }), nil)
	wants(t, r, "version", Warn, "is older")
	wants(t, r, "reach", OK, "")
	// On a busy host packets are sent again without being lost. That does not matter here.
	if !slices.ContainsFunc(r.Checks, func(c Check) bool {
		return c.Name == "memory" && c.Verdict == OK && strings.Contains(c.Cause, "write in ") && strings.Contains(c.Cause, "fadd in ") && strings.Contains(c.Cause, "read by RUDI in ")
	}) {
		t.Errorf("no operation on memory was tried: %+v", r.Checks)
	}
	if !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == "data" && strings.Contains(c.Cause, "Gb/s") }) {
		t.Error("no test of one second")
	}
	if r.Of("firewall") != nil {
		t.Error("that an old server answers no probes is no firewall's fault")
	}
	exits(t, r, 0)
}

func TestFullServer(t *testing.T) {
	at := serve(t, func(c *perf.ServerConfig) { c.MaxClients = 1 })
	c, err := perf.Dial(context.Background(), at, perf.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := visitTo(t, at, nil)
	wants(t, r, "reach", Bad, "the server is busy with 1 client")
	exits(t, r, 1)
}

func TestKeys(t *testing.T) {
	load := func() *uet.Security {
		t.Helper()
		folder := t.TempDir() + "/keys"
		if _, err := keys.Make(folder, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		s, err := keys.LoadPSK(folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	mine, theirs := load(), load()
	psk := func(k *uet.Security) func(*Config) {
		return func(c *Config) { c.Sec, c.Keys = traffic.PSK, k }
	}
	at := serve(t, func(c *perf.ServerConfig) { c.Keys.PSK = theirs })
	t.Run("other key", func(t *testing.T) {
		r := visitTo(t, at, psk(mine))
		wants(t, r, "security", Bad, "has its --keys FOLDER the same cluster.key")
		exits(t, r, 1)
	})
	t.Run("same key", func(t *testing.T) {
		r := visitTo(t, at, psk(theirs))
		wants(t, r, "security", OK, "--sec psk works")
	})
	t.Run("none", func(t *testing.T) {
		r := visitTo(t, serve(t, nil), psk(mine))
		wants(t, r, "security", Bad, "has no keys for --sec psk")
		exits(t, r, 1)
	})
}

// A translator stands at 127.0.0.2 for the server at 127.0.0.1, with the same ports. It
// rewrites addresses, as a NAT does, and clears the TOS octet.
type translator struct {
	// mend rewrites the CRC, which no real NAT does. Packets then get through.
	mend bool
	most int // largest UDP payload that passes; 0 means any
}

func (x translator) open(t *testing.T, to netip.AddrPort) netip.AddrPort {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.2 is an address of its own on Linux only")
	}
	front := netip.MustParseAddr("127.0.0.2")
	var wg sync.WaitGroup
	var all []*net.UDPConn
	var mu sync.Mutex
	t.Cleanup(func() {
		mu.Lock()
		for _, c := range all {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	for i := range perf.Ports + 1 {
		server := netip.AddrPortFrom(to.Addr(), to.Port()+uint16(i))
		at := netip.AddrPortFrom(front, server.Port())
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Skipf("%v: %v", at, err)
		}
		all = append(all, c)
		behind := map[netip.AddrPort]*net.UDPConn{} // by client
		wg.Go(func() {
			b := make([]byte, 1<<16)
			for {
				n, client, err := c.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				out := behind[client]
				if out == nil {
					if out, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), net.UDPAddrFromAddrPort(server)); err != nil {
						continue
					}
					behind[client] = out
					mu.Lock()
					all = append(all, out)
					mu.Unlock()
					wg.Go(func() {
						b := make([]byte, 1<<16)
						for {
							n, err := out.Read(b)
							if err != nil {
								return
							}
							x.pass(b[:n], server, out.LocalAddr(), at, client, func(b []byte) { _, _ = c.WriteToUDPAddrPort(b, client) })
						}
					})
				}
				x.pass(b[:n], client, net.UDPAddrFromAddrPort(at), out.LocalAddr().(*net.UDPAddr).AddrPort(), server, func(b []byte) { _, _ = out.Write(b) })
			}
		})
	}
	return netip.AddrPortFrom(front, to.Port())
}

func (x translator) pass(b []byte, src netip.AddrPort, via net.Addr, newSrc, newDst netip.AddrPort, send func([]byte)) {
	if x.most > 0 && len(b) > x.most {
		return
	}
	dst := via.(*net.UDPAddr).AddrPort()
	n := uint16(8 + len(b))
	if x.mend && len(b) > wire.CRCLen && wire.VerifyCRC(b, wire.CRCPrefix(src.Addr(), dst.Addr(), src.Port(), dst.Port(), n)) {
		wire.PutCRC(b, wire.CRCPrefix(newSrc.Addr(), newDst.Addr(), newSrc.Port(), newDst.Port(), n))
	}
	send(b)
}

// Through a NAT, plain UDP arrives and UET does not.
func TestTranslator(t *testing.T) {
	r := visitTo(t, translator{}.open(t, serve(t, nil)), nil)
	wants(t, r, "nat", Bad, "somebody in between rewrites addresses")
	wants(t, r, "reach", Bad, "though plain UDP gets there")
	exits(t, r, 3)
}

// The doctor finds cleared ECN bits and a black hole for large packets.
func TestBlackHole(t *testing.T) {
	r := visitTo(t, translator{mend: true, most: 3000}.open(t, serve(t, nil)), nil)
	wants(t, r, "reach", OK, "")
	wants(t, r, "nat", Bad, "arrives from 127.0.0.1:")
	wants(t, r, "ecn", Warn, "bleached on the way there: sent 2, arrived 0")
	wants(t, r, "mtu", Bad, "packets above 2304 B do not pass there (no router says so: a black hole), and ours carry 8192 B of payload, the path to 127.0.0.2 2048 B")
	if c := r.Of("mtu"); c == nil || !strings.HasPrefix(c.Mend, "--mtu 2048, or ") {
		t.Errorf("%+v", c)
	}
	exits(t, r, 1)
}

func TestOffloadsOff(t *testing.T) {
	r := visitTo(t, netip.AddrPort{}, func(c *Config) { c.GSO = "off" })
	wants(t, r, "offloads", Warn, "GSO off (")
}

// The checks of conditions that a test cannot make on a real host.
func TestJudgements(t *testing.T) {
	costs := func(here record.Counters, there *record.Counters) func(*visit) {
		return func(v *visit) {
			(&far{v: v}).assess(&perf.Result{Run: record.Run{Transport: here, PeerTransport: there}})
		}
	}
	for _, c := range []struct {
		name    string
		run     func(*visit)
		verdict Verdict
		text    string
	}{
		{"small", func(v *visit) {
			v.buffers("x", "", &record.Path{Rcvbuf: 425984, RcvbufAsked: 8 << 20, Sndbuf: 425984, SndbufAsked: 8 << 20}, true, true)
		}, Bad, "receive 416 KiB of 8 MiB, send 416 KiB of 8 MiB: bursts overrun it"},
		{"smaller", func(v *visit) {
			v.buffers("x", "", &record.Path{Rcvbuf: 8 << 20, RcvbufAsked: 8 << 20, Sndbuf: 16 << 20, SndbufAsked: 8 << 20}, true, false)
		}, Warn, "receive 8 MiB of 16 MiB, send 16 MiB: bursts may"},
		{"one processor", func(v *visit) { v.processors("x", "", &perf.Facts{CPUs: 4, Allowed: 1}) }, Warn, "1 of 4 processors"},
		{"host with one", func(v *visit) { v.processors("x", "", &perf.Facts{CPUs: 1, Allowed: 1}) }, Warn, "1 of 1 processors"},
		{"governor", func(v *visit) { v.processors("x", "", &perf.Facts{CPUs: 4, Allowed: 4, Governor: "powersave"}) }, Warn, "governor powersave"},
		{"clock source", func(v *visit) { v.clock("x", "", &perf.Facts{Clock: "hpet"}) }, Warn, "clock source hpet"},
		{"good clock", func(v *visit) { v.clock("x", "", &perf.Facts{Clock: "tsc"}) }, OK, "tsc"},
		{"late", func(v *visit) { v.load("x", "the server", &perf.Facts{Lag: 80 * time.Millisecond, Load: -1}) }, Warn, "within 80ms: it is busy with others, or stopped"},
		{"clocks apart", func(v *visit) {
			(&far{v: v, facts: &perf.Facts{Time: time.Now().Add(-time.Hour)}}).clocks()
		}, Warn, "differ by 1h0m0s"},
		{"slow receiver", func(v *visit) {
			(&far{v: v}).slower(&record.Run{DurationNS: 1e9, CPU: &record.CPU{UserNS: 3e8, PeerSysNS: 98e7}, PeerTransport: &record.Counters{}})
		}, Warn, "98% of a processor there, 30% here"},
		{"slow sender", func(v *visit) {
			(&far{v: v}).slower(&record.Run{DurationNS: 1e9, CPU: &record.CPU{UserNS: 99e7, PeerSysNS: 98e7}, PeerTransport: &record.Counters{}})
		}, OK, "99% of one here"},
		{"lossy", costs(record.Counters{TxPkts: 1000, RxPkts: 45, RtxSACK: 20}, &record.Counters{TxPkts: 50, RxPkts: 982}), Warn,
			"2.00% of the packets were sent again: the path lost 18 of 1000 on the way there, 5 of 50 on the way back"},
		{"nobody tells", costs(record.Counters{TxPkts: 1000, RtxSACK: 20}, nil), Warn, "whether they were lost is not known"},
		{"overrun", costs(record.Counters{TxPkts: 1000, RxPkts: 50, RtxSACK: 20}, &record.Counters{TxPkts: 50, RxPkts: 980, Drops: map[string]uint64{"kernel": 20}}), Warn, "the kernel dropped 20 packets"},
		{"overrun and lossy", costs(record.Counters{TxPkts: 1000, RxPkts: 50, RtxSACK: 20}, &record.Counters{TxPkts: 50, RxPkts: 980, Drops: map[string]uint64{"kernel": 1}}), Warn, "the path lost 20 of 1000 on the way there, 0 of 50"},
		{"mixed up", costs(record.Counters{TxPkts: 1000, RxPkts: 50, RtxSACK: 20}, &record.Counters{TxPkts: 50, RxPkts: 1000, OOO: 90}), Warn, "hardly any was lost: they overtake each other, 90 came"},
		{"busy", costs(record.Counters{TxPkts: 1000, RxPkts: 50, RtxRTO: 20}, &record.Counters{TxPkts: 50, RxPkts: 999, Dup: 3}), Warn, "hardly any was lost: they, or their acknowledgements, were late"},
		{"repeated", costs(record.Counters{TxPkts: 1000, RxPkts: 55, RtxRTO: 2}, &record.Counters{TxPkts: 50, RxPkts: 1010}), OK, "0.20% of the packets were sent again"},
		{"damaged", func(v *visit) {
			(&far{v: v}).assess(&perf.Result{Run: record.Run{Transport: record.Counters{TxPkts: 1000}, PeerTransport: &record.Counters{Drops: map[string]uint64{"crc": 1}}}})
		}, Bad, "1 packets came with a wrong CRC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &visit{ctx: t.Context(), rep: &Report{OK: true}}
			c.run(v)
			if len(v.rep.Checks) != 1 {
				t.Fatalf("%+v", v.rep.Checks)
			}
			if got := v.rep.Checks[0]; got.Verdict != c.verdict || !strings.Contains(got.Cause, c.text) || (got.Verdict != OK) == (got.Mend == "") {
				t.Errorf("%+v, want %s with %q", got, c.verdict, c.text)
			}
			if v.rep.OK != (c.verdict != Bad) {
				t.Errorf("ok %v", v.rep.OK)
			}
		})
	}
}
