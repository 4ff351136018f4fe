package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
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

func TestF7OrderedMessageBehindWhichAnotherArrived(t *testing.T) {
	// F7, S-VOID-06: of ordered messages the first is too long, and the target has the second early. A target that
	// knows void packets refuses it, and both go again in order. Another executes it, and the first
	// would come too late: it fails, for certain.
	for _, knows := range []bool{true, false} {
		t.Run(fmt.Sprint(knows), func(t *testing.T) {
			p := newPipe(t, func(c *Config) { c.PayloadMTU = 8192 })
			p.drop = func(from *FEP, b []byte) bool {
				n := len(b) - wire.CRCLen
				if from == p.a && n >= wire.ReqLen+wire.ReqStdLen && wire.Opcode(b[wire.ReqLen]&0x3f) == 0x2f && !knows {
					clear(b[n-12 : n-4]) // the header data of a void packet
					prefix := wire.PrefixOf(&p.a.cfg.Local, &p.b.cfg.Local)
					binary.BigEndian.PutUint32(b[n:], wire.CRC(prefix.CRC(len(b)), b[:n]))
				}
				return len(b) > 1472
			}
			send := func(n int, name string) []byte {
				b := pattern(n, byte(n))
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: b, Tag: 7, Context: name, Ordered: true})
				return b
			}
			first, then := make([]byte, 8192), make([]byte, 8192)
			p.post(p.b, Op{Kind: OpTRecv, Buf: first, Tag: 7, Context: "r1"})
			p.post(p.b, Op{Kind: OpTRecv, Buf: then, Tag: 7, Context: "r2"})
			send(10, "s0")
			p.exchange()
			p.want(p.b, "r1 ok len=10")
			p.want(p.a, "s0 ok")
			p.post(p.b, Op{Kind: OpTRecv, Buf: first, Tag: 7, Context: "r3"})
			long := send(8192, "long")
			short := send(100, "short")
			p.exchange()
			p.want(p.b)
			p.a.TooLong(p.now, p.b.cfg.Local, 8200)
			p.exchange()
			if !knows {
				p.want(p.b, "r2 ok len=100")
				p.want(p.a, "short ok", "long too big")
				return
			}
			p.want(p.b, "r2 ok len=8192", "r3 ok len=100")
			p.want(p.a, "short ok", "long ok") // the ACK names the last packet first
			if !bytes.Equal(then, long) || !bytes.Equal(first[:100], short) {
				t.Error("bytes differ")
			}
		})
	}
}
