package ses

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// FuzzRequest executes any bytes as requests, many in a row, between receives and their
// cancelling. Each packet is [source, next header, length 2 bytes, bytes]. Nothing may panic,
// every answer must encode, and all state must be gone at the end.
func FuzzRequest(f *testing.F) {
	cfg := testConfig()
	cfg.UnexpectedBytes, cfg.UnexpectedMsgs, cfg.OpenPerPeer = 1<<18, 64, 4
	a := New(cfg)
	add := func(script ...[]byte) {
		var b []byte
		for i, p := range script {
			b = append(b, byte(i), byte(wire.NextReqStd))
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
			b = append(b, p...)
		}
		f.Add(b)
	}
	add(packets(a, &Send{Tagged: true, Tag: 1, Buf: pattern(10), Target: self(a)}, 1024)...)
	add(packets(a, &Send{Tag: 1, Buf: pattern(3000), Target: self(a)}, 1024)...)
	add(packets(a, &Send{Tagged: true, Buf: pattern(20_000), Target: self(a)}, 8192)...)
	add(announcement{tag: 1, body: pattern(5000), eager: 2500, key: 5}.packets(a)...)
	add(announcement{untag: true, body: pattern(3000), key: 5}.packets(a)...)
	h, _ := a.sendOp(&Send{Buf: pattern(5000), Target: self(a)})
	p, _ := a.Next(h, 1024)
	first := a.Append(nil, p)
	a.Answered(h, perm)
	p, _ = a.Next(h, 1024)
	add(first, a.Append(nil, p), first)
	med := wire.ReqMedium{Opcode: wire.OpSend, Flags: single, JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI}.Append(nil)
	f.Add(append([]byte{0, byte(wire.NextReqMedium), 0, 32}, med...))

	f.Fuzz(func(t *testing.T, in []byte) {
		s := New(cfg)
		posted := 0
		ended := 0
		events := func() {
			for e := s.Event(); e != nil; e = s.Event() {
				if e.Len > len(e.Buf) {
					t.Fatalf("%d bytes in %d", e.Len, len(e.Buf))
				}
				ended++
			}
		}
		now := time.Second
		for k := 0; len(in) >= 4; k++ {
			src := Source{Peer: uint32(in[0] & 3), PDC: uint32(in[0] & 15)}
			next := wire.NextHdr(in[1] & 15)
			switch in[1] >> 4 {
			case 1:
				s.recvOp(&Recv{Tagged: in[0]&1 != 0, Tag: uint64(in[2]), Ignore: uint64(in[3]), Buf: make([]byte, int(in[2])<<4), Context: k})
				posted++
			case 2:
				s.PDCGone(src.PDC, TimedOut)
			case 3:
				now += 21 * time.Second
				s.Advance(now)
			}
			n := min(int(binary.BigEndian.Uint16(in[2:])), len(in)-4)
			pkt := in[4 : 4+n : 4+n]
			in = in[4+n:]
			r := s.Request(&src, next, pkt)
			if r.Bad == (r.Reason == ReasonNone) || r.Bad && r.Nack != 0 {
				t.Fatalf("%+v", r)
			}
			if !r.Bad && r.Nack == 0 {
				b := r.Rsp.Append(nil)
				if q, _, err := wire.ParseRsp(b); err != nil || q != r.Rsp {
					t.Fatalf("%+v: %v", r.Rsp, err)
				}
				plain := r.Rsp.Opcode == wire.RspDefault && r.Rsp.RC <= wire.RCOK && r.Rsp.List == wire.ListExpected
				if plain == r.Gtd {
					t.Fatalf("%+v", r) // S-RSP-03
				}
			}
			events()
			if s.bytes > cfg.UnexpectedBytes || s.kept > cfg.UnexpectedMsgs || s.in.live() > s.maxState() {
				t.Fatalf("%d bytes in %d messages, %d states", s.bytes, s.kept, s.in.live())
			}
		}
		for pdc := range uint32(16) {
			s.PDCGone(pdc, Closed)
			if s.Incomplete(pdc) {
				t.Fatal("open")
			}
		}
		s.CancelAll()
		events()
		if ended != posted || s.Recvs() != 0 || !s.Idle() || s.pulls.live()+s.named.n+s.in.live()+s.peers.live()+s.store.used+s.store.reserved != 0 || s.NextTimeout() != 0 {
			t.Fatalf("%d of %d receives ended; left: %d states, %d peers, %d chunks", ended, posted, s.in.live(), s.peers.live(), s.store.used)
		}
	})
}

// FuzzAnswered gives a message any sequence of responses and failures.
func FuzzAnswered(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, 3000)
	f.Add([]byte{0x45, 0x85, 0x05, 0x15, 0x25}, 3)
	f.Fuzz(func(t *testing.T, script []byte, n int) {
		if n < 0 || n > 1<<20 {
			t.Skip()
		}
		s := New(testConfig())
		h, err := s.sendOp(&Send{Buf: make([]byte, n), Context: 1})
		if err != nil {
			t.Fatal(err)
		}
		events, open := 0, 0
		now := time.Second
		for i := 0; i < len(script) && s.Sends() > 0; i++ {
			b := script[i]
			switch {
			case b >= 0xf0:
				now += time.Duration(b) * 100 * time.Millisecond
				s.Advance(now)
				s.Resend()
			case b >= 0xe0 || open == 0:
				if _, ok := s.Next(h, 1024); ok {
					open++
				} else if open == 0 {
					s.Advance(now)
					now += time.Second
					s.Resend()
				}
			case b >= 0xd8:
				s.Failed(h, TimedOut, 0)
				open--
			case b >= 0xd0:
				s.Answered(h, nil)
				open--
			default:
				s.Answered(h, &wire.Rsp{Opcode: wire.RspOpcode(b >> 6), RC: wire.RC(b & 63), List: wire.List(b & 3)})
				open--
			}
			for e := s.Event(); e != nil; e = s.Event() {
				events++
			}
		}
		if s.Sends() > 0 {
			for ; open > 0; open-- {
				s.Failed(h, Closed, 0)
			}
			s.Abandon(h, Closed)
			for e := s.Event(); e != nil; e = s.Event() {
				events++
			}
		}
		if events != 1 || s.Sends() != 0 || s.NextTimeout() != 0 || s.ids != nil && *s.ids != [1024]uint64{} {
			t.Fatalf("%d events, %d sends, timer %v", events, s.Sends(), s.NextTimeout())
		}
	})
}
