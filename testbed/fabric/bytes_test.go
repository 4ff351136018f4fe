package fabric

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// sum agrees with slowSum for any length.
func TestSum(t *testing.T) {
	b := noise(1, 1000)
	for n := range 200 {
		for _, from := range []int{0, 1, 300} {
			x := b[from : from+n]
			if got, want := ^fold(sum(0, x)), slowSum(x); got != want {
				t.Fatalf("%d bytes from %d: %#x, want %#x", n, from, got, want)
			}
		}
	}
	full := make([]byte, 64)
	for i := range full {
		full[i] = 0xff
	}
	if got := fold(sum(1<<64-1, full)); got != 0xffff {
		t.Errorf("all ones: %#x", got)
	}
}

// A UDP checksum of 0 is written as 0xffff, because 0 means "none".
func TestUDPSumZero(t *testing.T) {
	for name, host := range map[string][2]netip.Addr{"v4": {hostA[0], hostB[0]}, "v6": {hostA[1], hostB[1]}} {
		body := []byte{0, 0}
		ip := udpPacket(netip.AddrPortFrom(host[0], 7), netip.AddrPortFrom(host[1], 7), 0, body, false)
		udp := len(ip) - len(body) - udpLen
		copy(ip[udp+udpLen:], ip[udp+6:udp+8]) // makes the sum all ones
		putUDPSum(ip, name == "v6", udp, len(ip))
		if got := binary.BigEndian.Uint16(ip[udp+6:]); got != 0xffff {
			t.Errorf("%s: %#x", name, got)
		}
		if err := deliverable(ip); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetTOS(t *testing.T) {
	for _, k := range []pkt{{}, {v6: true}} {
		for v := range 256 {
			ip := k.bytes()
			setTOS(ip, k.v6, uint8(v))
			if err := deliverable(ip); err != nil || tos(ip, k.v6) != uint8(v) {
				t.Fatalf("TOS %#x: %#x, %v", v, tos(ip, k.v6), err)
			}
			setTOS(ip, k.v6, 0)
			if string(ip) != string(k.bytes()) {
				t.Fatalf("TOS %#x and back changes more", v)
			}
		}
	}
}

// A rule finds a packet that an earlier rule trimmed in order: lengths, checksums, marks.
func TestTrimThenMore(t *testing.T) {
	r := newRig(t, ruleA(Rule{Trim: 1}, Rule{Corrupt: 1, CorruptBits: 64}, Rule{CE: 1}, Rule{Duplicate: 1}), toB(Line{Rate: byteUS}))
	for _, v6 := range []bool{false, true} {
		r.send(pkt{payload: 500, dscp: DefaultClasses.Trimmable, ecn: 1, v6: v6}.bytes())
	}
	r.run(time.Second)
	if len(r.out) != 4 {
		t.Fatalf("%d left", len(r.out))
	}
	for _, o := range r.out {
		v6 := o.ip[0]>>4 == 6
		if err := deliverable(o.ip); err != nil || tos(o.ip, v6) != DefaultClasses.Trimmed<<2|3 {
			t.Errorf("%d bytes, TOS %#x: %v", len(o.ip), tos(o.ip, v6), err)
		}
	}
}
