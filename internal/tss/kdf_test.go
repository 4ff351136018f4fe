package tss

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"
)

// S-KEY-03: the four published derivations come out.
func TestKDFKnown(t *testing.T) {
	var m cmac
	m.init(newBlock(unhex(t, kdfMaster)))
	for _, c := range kdfAnswers {
		ctx := unhex(t, c.context)
		src, rekey, ssi := addrA, uint32(0), uint32(0)
		if len(ctx) == 10 {
			rekey, ssi = binary.BigEndian.Uint32(ctx[2:]), binary.BigEndian.Uint32(ctx[6:])
		} else { // 4 zero bytes in front, and an address
			rekey, src = binary.BigEndian.Uint32(ctx[6:]), netip.AddrFrom16([16]byte(ctx[10:]))
		}
		var k kdf
		k.derive(&m, c.label, 0x1dc0, rekey, ssi, src)
		if got := hex.EncodeToString(k.key()); got != c.key {
			t.Errorf("%s: key %s, want %s", c.name, got, c.key)
		}
		if got := hex.EncodeToString(k.mask()); got != c.mask {
			t.Errorf("%s: mask %s, want %s", c.name, got, c.mask)
		}
		in := unhex(t, c.input)
		in[0] = 3 // the buffer has the last of three inputs
		if got := k.in[:len(in)]; hex.EncodeToString(got) != hex.EncodeToString(in) {
			t.Errorf("%s: CMAC of %x, want %x", c.name, got, in)
		}
		if k.wipe(); k.out != [len(k.out)]byte{} {
			t.Error("keys stay in the buffer")
		}
	}
}

// S-KEY-02: a client is given what the server derives for it.
func TestKDFClientKey(t *testing.T) {
	master := Key(unhex(t, kdfMaster))
	for _, c := range kdfAnswers[2:] {
		src, ssi := netip.MustParseAddr("2001:cb0::fc0:0:0:abc%eth0"), uint32(1)
		if c.name == "server-ipv4" {
			src, ssi = netip.MustParseAddr("::ffff:192.168.42.9"), 192<<24|168<<16|42<<8|1
		}
		k, mask := ClientKey(master, 0x1dc0, ssi, src)
		if hex.EncodeToString(k[:]) != c.key || hex.EncodeToString(mask[:]) != c.mask {
			t.Errorf("%s: %x %x", c.name, k[:], mask)
		}
	}
}
