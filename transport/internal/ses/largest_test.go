package ses

import (
	"testing"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// largest is memory of MaxMessage bytes, the same MiB again and again.
func largest() (iov [][]byte, mib []byte) {
	mib = pattern(1 << 20)
	iov = make([][]byte, (MaxMessage+2)>>20)
	for i := range iov {
		iov[i] = mib
	}
	iov[len(iov)-1] = mib[:len(mib)-2]
	return iov, mib
}

func TestAccessLargest(t *testing.T) {
	// S-FLD-04: a write and a read have as many bytes as a message, and not one more: neither is it
	// posted, nor does a target take it.
	if testing.Short() {
		t.Skip("it copies 16 GiB")
	}
	iov, mib := largest()
	const most, mtu = MaxMessage, 8192
	const tail = most + 2 - mtu // where the last packet begins
	self := testConfig()
	post := func(k Kind, iov [][]byte) (*SES, Handle) {
		t.Helper()
		a := other(17)
		op := Op{Kind: k, Key: 5, Iov: iov, PIDonFEP: self.PIDonFEP, RI: self.RI, JobID: self.JobID, Context: "all"}
		one := op
		one.Iov = append(append([][]byte{}, iov...), mib[:1])
		if _, err := a.Send(0, &one, most+1); err != ErrTooLong {
			t.Errorf("kind %d: one byte too long: %v", k, err)
		}
		h, err := a.Send(0, &op, most)
		if err != nil || k == EvRead && !a.On(h, 7) {
			t.Fatal(err)
		}
		return a, h
	}
	end := func(a *SES, k Kind) {
		t.Helper()
		if e := a.Event(); e == nil || e.Kind != k || e.Cause != OK || e.Len != most {
			t.Errorf("kind %d ends with %+v", k, e)
		}
	}
	g := newRig(t)
	src := Source{Peer: 1, PDC: 7}
	g.region(RegionConfig{Key: 5, Iov: iov, Access: RemoteWrite | RemoteRead})

	a, h := post(EvWrite, iov)
	for p, ok := a.Peek(h, mtu); ok; p, ok = a.Peek(h, mtu) {
		pkt := a.AppendPiece(nil, p)
		if p.Off == 0 || p.Off == tail { // of all packets the target gets the first and the last one
			if p.Off == tail {
				clear(mib[1<<20-mtu:])
			}
			if got := answer(g.Request(&src, wire.NextReqStd, pkt)); got != "default OK 4294967294" && got != "default OK 2147483646" {
				t.Fatalf("write at %d: %s", p.Off, got)
			}
		}
		a.Answered(h, nil)
	}
	end(a, EvWrite)
	want := pattern(1 << 20)
	wantBytes(t, mib[:1<<20-2], want[:1<<20-2])
	g.PDCGone(7, TimedOut)

	a, h = post(EvRead, iov)
	var r wire.ReqStd
	body := make([]byte, 0, mtu+wire.RspDataLen)
	asked := 0
	for p, ok := a.Peek(h, mtu); ok; p, ok = a.Peek(h, mtu) {
		if _, err := r.Parse(a.AppendPiece(body[:0], p)); err != nil || r.ReqLen != most || p.Kind&piece.Ask == 0 {
			t.Fatal(r, err)
		}
		n := min(mtu, int(most-p.Off)) // what it asks for
		asked += n
		if p.Off == 0 || p.Off == tail {
			if res := g.Request(&src, wire.NextReqStd, r.Append(nil)); res.Nack != 0 || res.Rsp.RC > wire.RCOK {
				t.Fatalf("read at %d: %s", p.Off, answer(res))
			}
			q, ok := g.PeekReturn(7, mtu)
			ret := g.AppendReturn(nil, q)
			d, head, err := wire.ParseRspData(ret)
			if !ok || err != nil || d.MsgOff != p.Off || int(d.PayloadLen) != n {
				t.Fatalf("read %+v: returned %+v %v", p, d, err)
			}
			off := int(p.Off) & (1<<20 - 1)
			wantBytes(t, ret[head:], want[off:off+n])
		}
		a.Answered(h, nil)
		d := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: r.MsgID, ReadMsgID: r.MsgID, JobID: r.JobID, ModLen: most, MsgOff: p.Off, PayloadLen: uint16(n)}
		off := int(p.Off) & (1<<20 - 1)
		if res := a.Request(&src, wire.NextRspData, append(d.Append(body[:0]), want[off:off+n]...)); res.Nack != 0 || res.Bad {
			t.Fatalf("read data at %d: %s", p.Off, answer(res))
		}
	}
	if asked != most {
		t.Errorf("%d bytes were asked for", asked)
	}
	end(a, EvRead)
	g.PDCGone(7, TimedOut)

	for _, op := range []wire.Opcode{wire.OpWrite, wire.OpRead} {
		for n, want := range map[uint32]string{most + 1: "response UNSUPPORTED_SIZE 0 gtd", most: "response BAD_ADDR 0 gtd"} { // the second lies one byte further
			pkt := g.req(func(r *wire.ReqStd) {
				r.Opcode, r.Match, r.ReqLen, r.Flags, r.MsgOff, r.PayloadLen, r.BufOff = op, 5, n, wire.SESREL|wire.SESEOM, n-8, 8, 1
			})
			if op == wire.OpWrite {
				pkt = append(pkt, make([]byte, 8)...)
			}
			g.want(src, pkt, want)
		}
	}
}
