package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The raw baselines: what UDP achieves on this machine with the same system calls and no
// protocol. Nothing is lost because the receiver gives credit.

// raw runs one end of a baseline and prints its measurements as JSON.
func raw(args []string) error {
	kind, args := args[0], args[1:]
	fs := flag.NewFlagSet("raw", flag.ExitOnError)
	serve := fs.Bool("serve", false, "server end")
	addr := fs.String("addr", "127.0.0.1:7100", "server's address")
	mode := fs.String("mode", "spin", "pong: spin; block; hybrid: spin for 50 µs, then block: on sockets of package net. bare: spin on others; calls: the same with the system calls of uetkit, an ACK behind each message")
	fs.Parse(args)
	runtime.LockOSThread()
	at := netip.MustParseAddrPort(*addr)
	var s *rawSock
	if kind == "pong" && *mode != "bare" && *mode != "calls" {
		s = newNetSock(*serve, at, *mode == "block")
	} else {
		s = newSock(*serve, at)
	}
	res := map[string]float64{}
	switch kind {
	case "pong":
		s.pong(*serve, *mode, res)
	case "flow": // 1,024 bytes of payload behind 72 of header and a CRC
		s.flow(*serve, 76, 1024, 59, 256<<10, true, res)
	case "msgs": // 8 bytes behind 60, a message a datagram, window 512
		s.flow(*serve, 60, 8, 64, 512*68, false, res)
	default:
		return fmt.Errorf("unknown baseline %q", kind)
	}
	if *serve {
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

type rawSock struct {
	fd   int
	conn *net.UDPConn // whose fd it is, or nil
	peer [16]byte
	n    uint32
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars: raw:", err)
		os.Exit(1)
	}
}

func newSock(serve bool, addr netip.AddrPort) *rawSock {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(err)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
	sa := &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
	s := &rawSock{fd: fd}
	if serve {
		must(unix.Bind(fd, sa))
		got, err := unix.Getsockname(fd)
		must(err)
		fmt.Println(netip.AddrPortFrom(addr.Addr(), uint16(got.(*unix.SockaddrInet4).Port)))
	} else {
		must(unix.Connect(fd, sa))
	}
	return s
}

// newNetSock is newSock with package net, for the ping-pong that the bars name. The
// runtime's poller watches the socket, so the kernel reports each datagram to it.
func newNetSock(serve bool, addr netip.AddrPort, block bool) *rawSock {
	var c *net.UDPConn
	var err error
	if serve {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		must(err)
		fmt.Println(c.LocalAddr())
	} else {
		c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(addr))
		must(err)
	}
	s := &rawSock{conn: c}
	rc, err := c.SyscallConn()
	must(err)
	must(rc.Control(func(fd uintptr) { s.fd = int(fd) }))
	unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
	unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20)
	if block {
		must(unix.SetNonblock(s.fd, false))
	}
	return s
}

func (s *rawSock) recv(b []byte, flags int) (int, unix.Errno) {
	s.n = 16
	call := unix.RawSyscall6
	if flags&unix.MSG_DONTWAIT == 0 {
		call = unix.Syscall6 // it may block, so the scheduler hears of it
	}
	n, _, e := call(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), uintptr(unsafe.Pointer(&s.peer[0])), uintptr(unsafe.Pointer(&s.n)))
	return int(n), e
}

// Sizes of a packet with 64 bytes of payload, and of an ACK with a response, both with CRC.
const (
	uetHeaders = 12 + 44 + 4
	uetAck     = 32 + 12 + 4
)

// hybridSpin is how long a hybrid receive spins before it sleeps.
const hybridSpin = 50 * time.Microsecond

// send sends to the connected peer, or else to the peer that was last heard.
func (s *rawSock) send(b []byte, answer bool) unix.Errno {
	var to, n uintptr
	if answer {
		to, n = uintptr(unsafe.Pointer(&s.peer[0])), 16
	}
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, to, n)
	return e
}

// pong runs 64-byte round trips and reports half of the median.
func (s *rawSock) pong(serve bool, mode string, res map[string]float64) {
	size := 64
	if mode == "calls" {
		size += uetHeaders
	}
	b, ack := make([]byte, size), make([]byte, uetAck)
	flags := unix.MSG_DONTWAIT
	if mode == "block" {
		flags = 0
	}
	get := func() {
		var since time.Time
		for {
			n, e := s.recv(b, flags)
			if e == 0 && n == size {
				return
			}
			if mode != "hybrid" {
				continue
			}
			if since.IsZero() {
				since = time.Now()
			} else if time.Since(since) > hybridSpin {
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 50)
				since = time.Time{}
			}
		}
	}
	if serve {
		for {
			get()
			s.send(b, true)
			if mode == "calls" {
				s.send(ack, true)
			}
		}
	}
	const total, warm = 20000, 1000
	h := make([]time.Duration, 0, total)
	for i := range total {
		t := time.Now()
		s.send(b, false)
		if mode == "calls" {
			s.send(ack, false)
		}
		get()
		if i >= warm {
			h = append(h, time.Since(t))
		}
	}
	slices.Sort(h)
	res["p50"] = float64(h[len(h)/2].Nanoseconds()) / 2e3
	res["p99"] = float64(h[len(h)*99/100].Nanoseconds()) / 2e3
}

// flow sends segs datagrams a call under receiver credit for two seconds.
func (s *rawSock) flow(serve bool, hdr, size, segs, window int, crc bool, res map[string]float64) {
	table := crc32.MakeTable(crc32.Castagnoli)
	seg := hdr + size
	if serve {
		must(unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1))
		b := make([]byte, 1<<16)
		app := make([]byte, 64<<20)
		ack := make([]byte, 8)
		var got, acked uint64
		off := 0
		for {
			n, e := s.recv(b, unix.MSG_DONTWAIT)
			if e != 0 {
				continue
			}
			if n < seg {
				got, acked = 0, 0
				continue // a new client says hello
			}
			for p := b[:n]; len(p) >= seg; p = p[seg:] {
				if crc && crc32.Checksum(p[4:seg], table) != binary.BigEndian.Uint32(p) {
					panic("wrong CRC")
				}
				if off+size > len(app) {
					off = 0
				}
				copy(app[off:], p[hdr:seg])
				off += size
			}
			got += uint64(n)
			if got-acked >= uint64(window/4) {
				acked = got
				binary.BigEndian.PutUint64(ack, got)
				s.send(ack, true)
			}
		}
	}
	must(unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, seg))
	s.send([]byte{1}, false)
	src, b, ack := make([]byte, 1<<20), make([]byte, seg*segs), make([]byte, 8)
	var sent, acked uint64
	start := time.Now()
	stall := start
	off, msgs := 0, 0
	for i := 0; ; i++ {
		if i&63 == 0 && time.Since(start) > 2*time.Second {
			break
		}
		for sent-acked+uint64(len(b)) > uint64(max(window, len(b))) {
			if n, e := s.recv(ack, unix.MSG_DONTWAIT); e == 0 && n == 8 {
				acked = max(acked, binary.BigEndian.Uint64(ack))
				stall = time.Now()
			} else if time.Since(stall) > 100*time.Millisecond {
				acked, stall = sent, time.Now()
			}
		}
		for k := range segs {
			p := b[k*seg : (k+1)*seg]
			binary.BigEndian.PutUint64(p[8:], sent)
			binary.BigEndian.PutUint64(p[16:], uint64(k))
			copy(p[hdr:], src[off:off+size])
			if crc {
				binary.BigEndian.PutUint32(p, crc32.Checksum(p[4:], table))
			}
			if off += size; off+size > len(src) {
				off = 0
			}
		}
		for s.send(b, false) == unix.EAGAIN {
		}
		sent += uint64(len(b))
		msgs += segs
	}
	sec := time.Since(start).Seconds()
	res["GBps"] = float64(sent) / sec / 1e9
	res["Mmsgs"] = float64(msgs) / sec / 1e6
}
