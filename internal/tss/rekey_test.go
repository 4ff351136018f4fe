package tss

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// rekeyAnswers are packets of 192.0.2.1 to 192.0.2.2 with the plain text rekeyText, sealed under
// packetKeys[0] in cluster mode by another implementation of CMAC and GCM.
var rekeyAnswers = []struct {
	name          string
	ssi           uint32
	epoch         uint16
	tsc, mask     uint64
	shift         uint8
	outer, sealed string
}{
	{"last of the first 256", 0, 0x0, 0xff, 0xff00, 8,
		"c0000201c0000202f25a12b900340000",
		"0800000100000000000000fff98b38edf7835cc9be33841a1232179dcfeb22bd2d11f51dd668e0656842f4c5"},
	{"first of the next", 0, 0x0, 0x100, 0xff00, 8,
		"c0000201c0000202f25a12b900340000",
		"080000010000000000000100d0a69685ab7722ed900db4df778ec04430bc26bdb6502f44d7be160de8597604"},
	{"last of the second", 0, 0x0, 0x1ff, 0xff00, 8,
		"c0000201c0000202f25a12b900340000",
		"0800000100000000000001ff39ce5ef21ddd4b2df8742cdc05eb96a2bc662b38c6a6c0a02bd146f384fc5a66"},
	{"last value", 0, 0x0, 0xff00, 0xff00, 8,
		"c0000201c0000202f25a12b900340000",
		"08000001000000000000ff00f554a6c23b1c7ce20f1b18e6fca125107b009835993359d5455578e72ed0f6da"},
	{"value wraps", 0, 0x0, 0x10000, 0xff00, 8,
		"c0000201c0000202f25a12b900340000",
		"0800000100000000000100002e04aa1d9953dd3c21bf4fac7b323a7fcf675333d5959f8291a8621958dcb260"},
	{"with SSI and epoch", 7, 0x1dc0, 0x2ab, 0xff00, 8,
		"c0000201c0000202f25a12b900380000",
		"0c000001000000071dc00000000002abd3adc9d92db1280f670ac6e800222b366586c6a6f8d461585a8967ad1f70123b"},
	{"another mask", 7, 0x1dc0, 0x123456789abc, 0xffffffff0000, 16,
		"c0000201c0000202f25a12b900380000",
		"0c000001000000071dc0123456789abc161ba76717246e58fc5d50e3bbe6adc13f6bc9f7a24adb131a9828603cc7dab3"},
	{"off", 0, 0x0, 0x1ff, 0x0, 0,
		"c0000201c0000202f25a12b900340000",
		"0800000100000000000001ffc980c8a6e47209cbb0161c96f45f4d558af711038656b80340e449a02f5eb44a"},
}

const rekeyText = "sixteen octets!!"

func TestRekeyAnswers(t *testing.T) {
	// S-KEY-05: (TSC AND mask) >> shift goes into the derivation. It changes key and IV mask
	// from one packet to the next, and nothing on the wire says so.
	for _, c := range rekeyAnswers {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{SDI: 1, Mode: Cluster, Local: addrA, UseSSI: c.ssi != 0, SSI: c.ssi, RekeyMask: c.mask, RekeyShift: c.shift}
			a := domain(t, cfg)
			install(t, a, 0, Key(unhex(t, packetKeys[0])))
			use(t, a, 0, 0, c.epoch, c.tsc)
			pkt, ok := a.Begin(nil)
			if !ok {
				t.Fatal("no packet")
			}
			pkt = append(append(pkt, rekeyText...), make([]byte, wire.ICVLen)...)
			a.Seal(pkt, unhex(t, c.outer))
			if got := fmt.Sprintf("%x", pkt); got != c.sealed {
				t.Errorf("sealed to %s, want %s", got, c.sealed)
			}
			cfg.Local, cfg.SSI = addrB, 2*c.ssi
			b := domain(t, cfg)
			install(t, b, 0, Key(unhex(t, packetKeys[0])))
			want(t, b, 0, unhex(t, c.sealed), unhex(t, c.outer), addrA, Good, rekeyText)
			if (c.tsc&c.mask)>>c.shift == 0 {
				return
			}
			cfg.RekeyMask, cfg.RekeyShift = 0, 0
			b = domain(t, cfg)
			install(t, b, 0, Key(unhex(t, packetKeys[0])))
			want(t, b, 0, unhex(t, c.sealed), unhex(t, c.outer), addrA, DropAuth, "")
		})
	}
}

// S-KEY-05: one sender of a capture, whose counter begins at 0xfe, goes on over the change of the
// key after 256 packets, and one receiver follows it.
func TestVectorRekeyWithoutASign(t *testing.T) {
	const file = "refprov-tss-cluster-v4.pcap"
	fs := frames(t, filepath.Join(vectors(t), file))
	var sender, receiver *Domain
	values := map[uint64]int{} // packets by TSC >> 8
	for i, f := range fs {
		h, n, err := wire.ParseTSS(f.pkt)
		if err != nil || f.src != fs[0].src {
			continue
		}
		if sender == nil {
			key := Key(unhex(t, packetKeys[h.AN]))
			sender, receiver = vectorDomain(t, file, &h, key, f.src, h.SSI), vectorDomain(t, file, &h, key, f.dst, 0)
			use(t, sender, 0, h.AN, h.Epoch, h.TSC)
		}
		plain, _, why := receiver.Open(0, bytes.Clone(f.pkt), f.outer, f.src)
		if why != Good {
			t.Fatalf("packet %d: %v", i+1, why)
		}
		out, ok := sender.Begin(nil)
		if !ok || len(out) != n {
			t.Fatalf("packet %d: nothing to send", i+1)
		}
		out = append(append(out, plain...), make([]byte, wire.ICVLen)...)
		sender.Seal(out, f.outer)
		if !bytes.Equal(out, f.pkt) {
			t.Errorf("packet %d: sealed to\n%x, was\n%x", i+1, out, f.pkt)
		}
		values[h.TSC>>8]++
	}
	if values[0] == 0 || values[1] == 0 || sender.Stats().Derived != 2 || receiver.Stats().Derived != 2 {
		t.Errorf("packets by value: %v; %d and %d derivations", values, sender.Stats().Derived, receiver.Stats().Derived)
	}
}
