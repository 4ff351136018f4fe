// Package probe finds out what a network does to UDP datagrams between two hosts, without
// UET: which sizes pass, which addresses and ECN bits arrive, what routers report.
//
// One end is an Echo on a port that the other end knows. Each datagram to it is a question.
// Its answer tells what arrived and is never longer than the question, so an Echo cannot be
// used to amplify an attack with forged addresses.
package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/udp"
)

// A question begins with magic, an answer with reply. Both have the same header and zeros
// up to their length.
const (
	magic = "UETprob?"
	reply = "UETprob!"

	atFull    = 8  // 1: the answer is to be as long as the question
	atID      = 9  // uint64
	atSeq     = 17 // uint32
	atECN     = 21 // this and what follows is set in answers only: ECN bits that arrived, 0xff if not known
	atSize    = 22 // uint16, bytes that arrived
	atFrom    = 24 // IP address (16) and port (2) of the question's source
	atTo      = 42 // the same of the Echo
	atProto   = 60 // uint16, version of the control exchange of uetperf
	atRelease = 62 // 16 bytes of text
	header    = 78

	// MinSize is the least UDP payload of a probe.
	MinSize = 96
)

// unknownECN means that the system does not report ECN bits.
const unknownECN = 0xff

// maxRate is the number of questions a second that an Echo answers.
const maxRate = 5000

// An Echo answers questions. It runs a goroutine.
type Echo struct {
	conn *udp.Conn
	wg   sync.WaitGroup
	id   Identity
}

// Identity is what an Echo tells about itself.
type Identity struct {
	Protocol uint16 // version of the control exchange
	Release  string // of the program, at most 16 bytes
}

// Listen opens an Echo.
func Listen(at netip.AddrPort, id Identity) (*Echo, error) {
	conn, err := udp.Open(udp.Config{Addr: at, RecvBuf: 1 << 20, SendBuf: 1 << 20, EveryClass: true})
	if err != nil {
		return nil, err
	}
	e := &Echo{conn: conn, id: id}
	e.wg.Add(1)
	go e.run()
	return e, nil
}

// Addr is the Echo's address.
func (e *Echo) Addr() netip.AddrPort { return e.conn.LocalAddr() }

// Close ends the Echo and its goroutine.
func (e *Echo) Close() {
	_ = e.conn.Close()
	e.wg.Wait()
}

// run answers questions until the socket is closed.
func (e *Echo) run() {
	defer e.wg.Done()
	knows := e.conn.Info().ECN.On
	rx := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	out := make([]byte, dgram.SlabLen)
	from, n := time.Now(), 0
	for {
		ok, err := e.conn.Recv(rx)
		if err != nil {
			return
		}
		if !ok {
			e.conn.Errors(func(*udp.Evidence) {}) // about askers that are gone
			if e.conn.Wait(time.Time{}) != nil {
				return
			}
			continue
		}
		if now := time.Now(); now.Sub(from) > time.Second {
			from, n = now, 0
		}
		for b, rest := rx.Next(rx.Data); len(b) > 0; b, rest = rx.Next(rest) {
			if n++; n > maxRate || len(b) < MinSize || string(b[:8]) != magic {
				continue
			}
			size := MinSize
			if b[atFull] == 1 {
				size = len(b)
			}
			a := out[:size]
			clear(a)
			copy(a, reply)
			copy(a[atFull:atECN], b[atFull:atECN])
			a[atECN] = unknownECN
			if knows {
				a[atECN] = rx.ECN()
			}
			binary.BigEndian.PutUint16(a[atSize:], uint16(len(b)))
			putAddr(a[atFrom:], rx.Remote)
			putAddr(a[atTo:], e.conn.LocalAddr())
			binary.BigEndian.PutUint16(a[atProto:], e.id.Protocol)
			copy(a[atRelease:header], e.id.Release)
			// An answer that finds no room in the socket is lost.
			_ = e.conn.Send(&dgram.Datagram{Data: a, Seg: size, Remote: rx.Remote, TOS: rx.ECN()})
		}
	}
}

func putAddr(b []byte, a netip.AddrPort) {
	ip := a.Addr().As16()
	copy(b, ip[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
}

func getAddr(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), binary.BigEndian.Uint16(b[16:]))
}

// An Asker sends questions. Its methods belong to one goroutine.
type Asker struct {
	conn *udp.Conn
	to   netip.AddrPort
	id   uint64
	seq  uint32
	rx   dgram.Datagram
	buf  []byte
}

// Open opens an Asker at a local IP address, with one of these ports, for the Echo at to.
func Open(local netip.Addr, ports portrange.Range, to netip.AddrPort) (*Asker, error) {
	conn, err := udp.Open(udp.Config{Addr: netip.AddrPortFrom(local, 0), Ports: ports, RecvBuf: 1 << 20, SendBuf: 1 << 20, EveryClass: true})
	if err != nil {
		return nil, err
	}
	return &Asker{conn: conn, to: to, id: rand.Uint64(), rx: dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}, buf: make([]byte, dgram.SlabLen)}, nil
}

// Local is the Asker's address.
func (a *Asker) Local() netip.AddrPort { return a.conn.LocalAddr() }

// KnowsECN reports whether this host reports the ECN bits of what arrives.
func (a *Asker) KnowsECN() bool { return a.conn.Info().ECN.On }

// Close closes the socket.
func (a *Asker) Close() { _ = a.conn.Close() }

// A Question is a datagram to be sent.
type Question struct {
	Size int   // UDP payload, at least MinSize
	Full bool  // the answer is to be as long as the question
	ECN  uint8 // bits that the question is sent with
}

// An Answer is the outcome of a Question.
type Answer struct {
	// Arrived says that an answer came. If it is false, Heard may tell why.
	Arrived bool
	RTT     time.Duration
	// From is the question's source as the Echo saw it, To the Echo's own address.
	From, To netip.AddrPort
	Size     int   // bytes that arrived at the Echo
	ECN      uint8 // ECN bits of the question when it arrived; the Echo answers with the same
	Back     uint8 // ECN bits of the answer when it arrived
	// ECNKnown and BackKnown say whether the hosts report ECN and Back.
	ECNKnown, BackKnown bool
	Identity
	Heard Heard
}

// Heard is an error that was reported for a datagram that did not arrive.
type Heard struct {
	Errno    syscall.Errno // 0 means that nothing was reported
	By       netip.Addr    // who reported it; not valid means this host, or not known
	ICMP     bool
	Type     uint8
	Code     uint8
	MTU      int // with EMSGSIZE, the size that would pass; 0 means not told
	Prohibit bool
}

func (h Heard) String() string {
	switch {
	case h.Errno == 0:
		return "nothing"
	case !h.ICMP:
		return "this host says: " + h.Errno.Error()
	}
	who := "a router"
	if h.By.IsValid() {
		who = h.By.String()
	}
	s := fmt.Sprintf("%s says by ICMP (type %d code %d): %v", who, h.Type, h.Code, h.Errno)
	if h.Prohibit {
		s = fmt.Sprintf("%s says by ICMP (type %d code %d): administratively prohibited", who, h.Type, h.Code)
	}
	if h.MTU > 0 {
		s += fmt.Sprintf(", packets of %d bytes would pass", h.MTU)
	}
	return s
}

// prohibited reports whether e is an ICMP message of a packet filter.
func prohibited(e *udp.Evidence) bool {
	switch e.Origin {
	case udp.OriginICMP:
		return e.Type == 3 && (e.Code == 9 || e.Code == 10 || e.Code == 13)
	case udp.OriginICMP6:
		return e.Type == 1 && (e.Code == 1 || e.Code == 5)
	}
	return false
}

// Ask sends a question up to tries times, waiting each time for wait, until an answer
// comes. It fails only if the socket does; a missing answer is no error.
func (a *Asker) Ask(ctx context.Context, q Question, tries int, wait time.Duration) (Answer, error) {
	var out Answer
	for range tries {
		a.seq++
		b := a.buf[:max(q.Size, MinSize)]
		clear(b)
		copy(b, magic)
		if q.Full {
			b[atFull] = 1
		}
		binary.BigEndian.PutUint64(b[atID:], a.id)
		binary.BigEndian.PutUint32(b[atSeq:], a.seq)
		begin := time.Now()
		err := a.conn.Send(&dgram.Datagram{Data: b, Seg: len(b), Remote: a.to, TOS: q.ECN})
		var no syscall.Errno
		switch {
		case err == nil, errors.Is(err, dgram.ErrNoRoom):
		case errors.As(err, &no):
			out.Heard = Heard{Errno: no}
			if no == syscall.EMSGSIZE {
				return out, nil // repeating would not make it fit
			}
		default:
			return out, err
		}
		ok, err := a.await(ctx, begin, begin.Add(wait), &out)
		if ok || err != nil {
			return out, err
		}
	}
	return out, ctx.Err()
}

// await waits for the answer to the newest question.
func (a *Asker) await(ctx context.Context, begin, until time.Time, out *Answer) (bool, error) {
	for {
		ok, err := a.conn.Recv(&a.rx)
		if err != nil {
			return false, err
		}
		if ok {
			b, _ := a.rx.Next(a.rx.Data)
			if len(b) < MinSize || string(b[:8]) != reply || binary.BigEndian.Uint64(b[atID:]) != a.id || binary.BigEndian.Uint32(b[atSeq:]) != a.seq {
				continue
			}
			*out = Answer{
				Arrived: true, RTT: time.Since(begin), From: getAddr(b[atFrom:]), To: getAddr(b[atTo:]), Size: int(binary.BigEndian.Uint16(b[atSize:])),
				ECN: b[atECN], ECNKnown: b[atECN] != unknownECN, Back: a.rx.ECN(), BackKnown: a.KnowsECN(),
				Identity: Identity{binary.BigEndian.Uint16(b[atProto:]), strings.TrimRight(string(b[atRelease:header]), "\x00")},
			}
			return true, nil
		}
		a.conn.Errors(func(e *udp.Evidence) {
			if e.Remote.Port() == a.to.Port() {
				out.Heard = Heard{Errno: e.Errno, By: e.Offender, ICMP: e.Origin != udp.OriginLocal, Type: e.Type, Code: e.Code, MTU: e.MTU, Prohibit: prohibited(e)}
			}
		})
		if ctx.Err() != nil || !time.Now().Before(until) {
			return false, ctx.Err()
		}
		// Wait in steps, because on some systems an error does not end the wait.
		step := time.Now().Add(20 * time.Millisecond)
		if step.After(until) {
			step = until
		}
		if err := a.conn.Wait(step); err != nil {
			return false, err
		}
	}
}

// The ECN bits that questions are sent with.
const (
	NotECT = dgram.NotECT
	ECT0   = dgram.ECT0
	CE     = dgram.CE
)
