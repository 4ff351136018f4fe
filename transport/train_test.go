package transport

import (
	"testing"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// A train leaves to one address by one path in one class, has packets of one length, of which the last may be
// shorter, and has no more of them than the kernel takes.
func TestTrainTakesWhatFits(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = []uint16{4793, 4794} })
	f, to, other := p.a, p.b.cfg.Local, p.a.cfg.Local
	const n = 100
	add := func(n int) { f.out.d.Data = f.join(&to, 0, n, classNew)[:len(f.out.d.Data)+n] }
	f.begin(&p.d)
	add(n)
	for _, c := range []struct {
		what string
		got  bool
		want bool
	}{
		{"the same way", f.fits(&to, 0, n, classNew), true},
		{"a shorter one", f.fits(&to, 0, n-1, classNew), true},
		{"a longer one", f.fits(&to, 0, n+1, classNew), false},
		{"another path", f.fits(&to, 1, n, classNew), false},
		{"another address", f.fits(&other, 0, n, classNew), false},
		{"another class", f.fits(&to, 0, n, classCtl), f.form.tos[classCtl] == f.form.tos[classNew]},
	} {
		if c.got != c.want {
			t.Errorf("%s fits: %v", c.what, c.got)
		}
	}
	for i := 1; i < f.form.most; i++ {
		if !f.fits(&to, 0, n, classNew) {
			t.Fatalf("full with %d packets of %d", i, f.form.most)
		}
		add(n)
	}
	if f.fits(&to, 0, n, classNew) {
		t.Errorf("more than %d packets", f.form.most)
	}
	f.begin(&p.d)
	add(n)
	add(n - 1)
	if f.fits(&to, 0, n-1, classNew) {
		t.Error("a packet behind the short one that ends the train")
	}
}

// An ACK with a response that cannot be read answers nothing.
func TestPlainAckWithABadResponse(t *testing.T) {
	p := newPipe(t, nil)
	send := func() {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8)})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
	}
	send()
	p.exchange()
	for p.a.NextEvent() != nil {
	}
	send()
	p.move(p.a, p.b)
	p.b.Flush(p.now)
	if !p.b.Transmit(p.now, &p.d) {
		t.Fatal("no ACK")
	}
	whole := append([]byte(nil), p.d.Data[:len(p.d.Data)-wire.CRCLen]...)
	var a wire.Ack
	at, err := a.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	receive := func(b []byte) {
		prefix := wire.CRCPrefix(p.b.cfg.Local.Addr(), p.a.cfg.Local.Addr(), p.b.cfg.Local.Port(), p.a.cfg.Local.Port(), uint16(8+len(b)+wire.CRCLen))
		b = wire.AppendCRC(b, 0, prefix)
		p.a.Receive(p.now, &dgram.Datagram{Data: b, Seg: len(b), Remote: p.b.cfg.Local})
	}
	for bit := range 32 {
		b := append([]byte(nil), whole...)
		b[at+bit/8] ^= 1 << (bit % 8)
		var r wire.Rsp
		if _, err := r.Parse(b[at:]); err == nil {
			continue
		}
		bad++
		receive(b)
		if p.a.Sends() != 1 {
			t.Fatalf("bit %d: a response that cannot be read ended the send", bit)
		}
	}
	if bad == 0 {
		t.Error("every response can be read: the test does not test")
	}
	if receive(whole); p.a.Sends() != 0 {
		t.Error("the ACK itself did not")
	}
}
