package transport

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestF7InterfaceTakesLess(t *testing.T) {
	// F7: when the system refuses to send what is too long for the interface, shorter packets
	// go at once, whether or not the PDC is open. Refused probes of longer packets change
	// nothing.
	for _, open := range []bool{false, true} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("open %v, ordered %v", open, ordered), func(t *testing.T) {
				p := newPipe(t, func(c *Config) { c.PayloadMTU = 8192 })
				takes, refused := 1<<16, 0
				run := func() {
					for range 100 {
						for p.a.Transmit(p.now, &p.d) {
							if p.d.Seg > takes {
								refused++
								p.a.TooLong(p.now, p.d.Remote, p.d.Seg)
								continue
							}
							p.d.Remote = p.a.cfg.Local
							p.b.Receive(p.now, &p.d)
						}
						p.b.Flush(p.now)
						for p.move(p.b, p.a) {
						}
						p.a.Flush(p.now)
					}
				}
				send := func(n int) {
					t.Helper()
					src, dst := pattern(n, 1), make([]byte, n)
					p.post(p.b, Op{Kind: OpTRecv, Buf: dst, Tag: 7, Context: "r"})
					p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 7, Context: "s", Ordered: ordered})
					run()
					p.want(p.b, fmt.Sprintf("r ok len=%d", n))
					p.want(p.a, "s ok")
					if !bytes.Equal(src, dst) {
						t.Error("bytes differ")
					}
				}
				if open {
					send(20_000)
				}
				takes = 1472
				send(20_000)
				if payload, full := p.a.PayloadMTU(p.toB); payload != 1024 || full != 8192 || refused == 0 {
					t.Errorf("packets carry %d bytes, the interface %d; %d were refused", payload, full, refused)
				}
				p.now += time.Millisecond
				p.a.Advance(p.now) // the search begins
				takes, refused = 3000, 0
				run()
				if payload, _ := p.a.PayloadMTU(p.toB); payload != 2048 || refused != 2 {
					t.Errorf("packets carry %d bytes after a search, %d probes were refused", payload, refused)
				}
				send(20_000)
			})
		}
	}
}

func TestF7DiagnoseNamesTheSize(t *testing.T) {
	// F7: what a send waits for comes with the size that the path carries.
	p := newPipe(t, func(c *Config) { c.PayloadMTU = 4096 })
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8000), Context: "s"})
	const says = "; the path to 198.18.0.2:4793 carries 1024 bytes of payload in a packet, the interface 4096"
	w := p.a.Diagnose(p.now)
	if s := w[0].String(); strings.Contains(s, "payload") {
		t.Error(s)
	}
	p.a.TooLong(p.now, p.b.cfg.Local, 4100)
	if p.a.TooLong(p.now, p.b.cfg.Local, 9000); len(p.a.todo.search) != 1 {
		t.Errorf("%d searches", len(p.a.todo.search))
	}
	w = p.a.Diagnose(p.now)
	if s := w[0].String(); !strings.HasSuffix(s, says) {
		t.Error(s)
	}
}
