package uet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// datagrams returns hints for FI_EP_DGRAM.
func datagrams(caps fi.Caps) *Info {
	h := &Info{Caps: caps}
	h.Ep.Type = fi.EpDgram
	return h
}

func TestDatagramInfo(t *testing.T) {
	// R-INFO-01, R-INFO-06, R-INFO-11: messages of one packet, and what goes with them; no more.
	in := loopback(t, datagrams(0))
	if in.Ep.Type != fi.EpDgram || in.Ep.MaxMsgSize != uint64(in.Config.PayloadMTU) || in.Caps&(fi.Msg|fi.Source|fi.MultiRecv|fi.DirectedRecv) == 0 || in.Caps&^datagramCaps != 0 {
		t.Errorf("%+v", in)
	}
	for _, c := range []fi.Caps{fi.Tagged, fi.RMA, fi.Atomic, fi.Fence, fi.TaggedMultiRecv, fi.RMAEvent} {
		if _, err := GetInfo("127.0.0.1", "", fi.Source, datagrams(fi.Msg|c)); !errors.Is(err, fi.ENODATA) {
			t.Errorf("%v: %v", c, err)
		}
	}
	for name, change := range map[string]func(*Info){
		"order":    func(h *Info) { h.Tx.MsgOrder = fi.OrderSAS },
		"of recv":  func(h *Info) { h.Rx.MsgOrder = fi.OrderSAS },
		"delivery": func(h *Info) { h.Tx.OpFlags = fi.DeliveryComplete },
		"match":    func(h *Info) { h.Tx.OpFlags = fi.MatchComplete },
		"size":     func(h *Info) { h.Ep.MaxMsgSize = 1 << 20 },
	} {
		h := datagrams(fi.Msg)
		change(h)
		if _, err := GetInfo("127.0.0.1", "", fi.Source, h); !errors.Is(err, fi.ENODATA) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDatagrams(t *testing.T) {
	// R-CMPL-06, R-CMPL-08: a send has completed when it is with the network. R-MSG-02: it has the size of a packet.
	r := newRig(t, datagrams(fi.Msg|fi.Source))
	a, b, toB, toA := r.pair()
	most := int(r.info.Ep.MaxMsgSize)
	for i, n := range []int{0, 1, 100, most} {
		msg, buf := make([]byte, n), make([]byte, most)
		for k := range msg {
			msg[k] = byte(k + i)
		}
		ok(t, b.Recv(buf, fi.AddrUnspec, i))
		ok(t, a.SendData(msg, 9, toB, i))
		if e, _ := wait(t, a.tx); e.Context != i {
			t.Fatalf("send %+v", e)
		}
		e, from := wait(t, b.rx)
		if e.Context != i || e.Len != n || e.Data != 9 || from != toA || string(buf[:n]) != string(msg) {
			t.Fatalf("receive %+v of %v", e, from)
		}
	}
	ok(t, a.Inject([]byte("nobody waits"), toB)) // R-MSG-16
	for name, err := range map[string]error{
		"too long":  a.Send(make([]byte, most+1), toB, 1),
		"together":  a.SendMsg(&Msg{Iov: [][]byte{make([]byte, most), {1}}, Addr: toB}, 0),
		"delivered": a.SendMsg(&Msg{Addr: toB}, fi.DeliveryComplete),
		"tagged":    a.TSend(nil, toB, 1, 1),
		"written":   a.Write(nil, toB, 0, 1, 1),
		"of tag":    b.TRecv(nil, fi.AddrUnspec, 1, 0, 1),
	} {
		want := fi.EOPNOTSUPP
		if name == "too long" || name == "together" {
			want = fi.EMSGSIZE
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if s := a.Stats(); s.AcksRx != 0 || s.TxPackets != s.TxData {
		t.Errorf("%d packets for %d datagrams, %d ACKs", s.TxPackets, s.TxData, s.AcksRx)
	}
}

func TestDatagramLosesWhatNobodyWaitsFor(t *testing.T) {
	// R-MSG-16, as seen through the API: the sender has success, the receiver counts.
	r := newRig(t, datagrams(fi.Msg))
	a, b, toB, _ := r.pair()
	const n = 50
	for i := range n {
		ok(t, a.Send([]byte("x"), toB, fmt.Sprint(i)))
		wait(t, a.tx)
	}
	for start := time.Now(); b.Stats().Unwanted < n; _, _ = b.rx.Read(nil) {
		if time.Since(start) > patience {
			t.Fatalf("%d of %d came", b.Stats().Unwanted, n)
		}
	}
}
