package uet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// BenchmarkSYNFlood moves 1 MiB messages between two endpoints of one goroutine, with and without
// 30,000 packets a second that open PDCs at the receiver from 64 addresses that it does not know
// (T1): in clear, where the sources are sockets that take the answers, or nobody is and ICMP says
// so; with KnownPeersOnly; and sealed. The flood comes from a process of its own, each packet from
// another address than the one before, so that none arrive as a train. The goodput counts what other
// work on the machine takes, the processor time of this process does not:
//
//   - cpu-µs/SYN is what each packet of the flood takes, beyond what the messages take without it;
//   - left is what 30,000 of those leave of a second of one processor;
//   - RSS-MiB is how much the resident memory of this process grew.
func BenchmarkSYNFlood(b *testing.B) {
	key, err := NewClusterKey(NewKey(1))
	ok(b, err)
	var calm time.Duration // processor time of a message without a flood
	for _, c := range []struct {
		name  string
		flood string
		cfg   Config
	}{
		{"clear/none", "", Config{}}, {"clear", "sockets", Config{}}, {"clear/unreachable", nowhere, Config{}}, {"known", nowhere, Config{KnownPeersOnly: true}},
		{"sealed/none", "", Config{Security: key}}, {"sealed", nowhere, Config{Security: key}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{DataProgress: fi.ProgressManual}, Config: c.cfg})
			x, y := r.node(), r.node()
			to := x.know(y)
			_ = y.know(x)
			buf, msg := make([]byte, 1<<20), make([]byte, 1<<20)
			var e [8]cq.Entry
			move := func() {
				ok(b, y.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
				ok(b, x.TSend(msg, to, 1, nil))
				for n := 0; n < 1; n, _ = y.rx.Read(e[:]) {
					_, _ = x.tx.Read(e[:])
				}
			}
			move()
			size := resident()
			if c.flood != "" {
				defer openAll(b, y.name.AddrPort(), c.flood)()
				for begun := time.Now(); time.Since(begun) < 1500*time.Millisecond; { // until the tables are full
					move()
				}
			}
			opening := func() uint64 {
				s := y.Stats()
				return s.PDCAccepted + s.Drops[transport.DropLimit] + s.Drops[transport.DropUnknown] + s.Drops[transport.DropClear]
			}
			b.SetBytes(1 << 20)
			syns, used := opening(), processorTime()
			for b.Loop() {
				move()
			}
			syns, used = opening()-syns, processorTime()-used
			if c.flood == "" {
				calm = used / time.Duration(b.N)
				return
			}
			each := (used - calm*time.Duration(b.N)).Seconds() / float64(syns)
			b.ReportMetric(float64(syns)/b.Elapsed().Seconds(), "SYN/s")
			b.ReportMetric(each*1e6, "cpu-µs/SYN")
			b.ReportMetric(1-30_000*each, "left")
			b.ReportMetric(float64(resident()-size)/(1<<20), "RSS-MiB")
		})
	}
}

// processorTime is the processor time of this process.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the resident memory of this process in bytes.
func resident() int64 {
	var all, pages int64
	s, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(s), &all, &pages)
	return pages * int64(os.Getpagesize())
}

// The environment of the process that floods: where to, and whether nobody takes the answers.
const (
	floodTo   = "UETKIT_FLOOD_TO"
	floodFrom = "UETKIT_FLOOD_FROM"
	nowhere   = "nowhere"
)

// openAll has another process send 30,000 packets a second that open PDCs, until stop is called.
// from is nowhere, or anything else for sources that take the answers.
func openAll(b *testing.B, to netip.AddrPort, from string) (stop func()) {
	c := exec.Command(os.Args[0], "-test.run", "^TestFloodChild$")
	c.Env = append(os.Environ(), floodTo+"="+to.String(), floodFrom+"="+from)
	c.Stderr = os.Stderr
	ok(b, c.Start())
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// TestFloodChild is the process that openAll starts.
func TestFloodChild(t *testing.T) {
	to, err := netip.ParseAddrPort(os.Getenv(floodTo))
	if err != nil {
		t.Skip("it is for BenchmarkSYNFlood")
	}
	const perSecond, atOnce = 30_000, 30
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	ok(t, err)
	ok(t, unix.Bind(fd, &unix.SockaddrInet4{}))
	sa, err := unix.Getsockname(fd)
	ok(t, err)
	from := uint16(sa.(*unix.SockaddrInet4).Port)
	if os.Getenv(floodFrom) == nowhere {
		// A connected socket gets nothing for the 64 addresses, so ICMP says that nobody is there.
		ok(t, unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	}
	name := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: to.Port()<<8 | to.Port()>>8, Addr: to.Addr().As4()}
	type mmsg struct {
		msg unix.Msghdr
		len uint32
	}
	var hdr [atOnce]mmsg
	var iov [atOnce]unix.Iovec
	var ctl [atOnce][64]byte
	var pkt [atOnce][]byte
	rng := rand.New(rand.NewPCG(1, 2))
	q := wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, ReqLen: 16}
	parent := os.Getppid()
	for begun, sent := time.Now(), 0; os.Getppid() == parent; time.Sleep(500 * time.Microsecond) {
		for due := int(time.Since(begun).Seconds() * perSecond); sent+atOnce <= due; {
			for i := range pkt {
				src := netip.AddrFrom4([4]byte{127, 9, 0, byte(1 + sent%64)})
				h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(rng.Uint32()), SPDCID: uint16(1 + rng.IntN(0xffff)), ClearOff: -1}
				p := append(q.Append(h.Append(pkt[i][:0])), make([]byte, 16)...)
				crc := wire.CRCPrefix(src, to.Addr(), from, to.Port(), uint16(8+len(p)+wire.CRCLen))
				pkt[i] = binary.BigEndian.AppendUint32(p, wire.CRC(crc, p))
				iov[i].Base = &pkt[i][0]
				iov[i].SetLen(len(pkt[i]))
				c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[i]))
				c.Level, c.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
				c.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
				(*unix.Inet4Pktinfo)(unsafe.Pointer(&ctl[i][unix.CmsgLen(0)])).Spec_dst = src.As4()
				m := &hdr[i].msg
				m.Name, m.Namelen = (*byte)(unsafe.Pointer(&name)), unix.SizeofSockaddrInet4
				m.Iov = &iov[i]
				m.SetIovlen(1)
				m.Control = &ctl[i][0]
				m.SetControllen(unix.CmsgSpace(unix.SizeofInet4Pktinfo))
				sent++
			}
			_, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdr[0])), atOnce, 0, 0, 0)
			if e != 0 && e != unix.ECONNREFUSED {
				t.Fatal(e)
			}
		}
	}
}
