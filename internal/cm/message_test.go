package cm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func someParams() Params {
	return Params{
		Version: Version, Addr: netip.MustParseAddrPort("10.1.2.3:4793"), Ports: []uint16{4793, 4794}, JobID: 0x010203, PIDonFEP: 0x405, RI: 0x60f,
		Initiator: 0x0708090a, PayloadMTU: 4096, Modes: 1<<wire.RUD | 1<<wire.ROD, Profile: 0x0b0c0d0e, NoCRC: true, Security: SecTLS,
	}
}

func messages() map[string]message {
	return map[string]message{
		"connect": {kind: kindConnect, version: Version, params: someParams(), private: []byte("hi")},
		"accept v6": {kind: kindAccept, version: Version, params: Params{
			Version: Version, Addr: netip.MustParseAddrPort("[2001:db8::1]:9"), PayloadMTU: 8192, Modes: 1 << wire.UUD, Encapsulation: wire.Standard, Security: SecPSK,
		}},
		"reject":   {kind: kindReject, version: Version, private: bytes.Repeat([]byte{7}, MaxPrivate)},
		"mismatch": {kind: kindMismatch, version: Version, differ: MismatchError{"version", "1", "2"}},
		"rekey":    {kind: kindRekey, version: Version, gen: 0xfffffffe},
		"rekeyed":  {kind: kindRekeyed, version: Version, gen: 1},
		"close":    {kind: kindClose, version: Version},
		"probe":    {kind: kindProbe, version: Version},
	}
}

func TestMessageVector(t *testing.T) {
	want := strings.Join(strings.Fields(`
		00000055 01 00 0001                  length, connect, reserved, version
		0002 0006 0a010203 12b9              10.1.2.3:4793
		0003 0004 12b9 12ba                  ports
		0004 0004 00010203                   JobID
		0005 0002 0405                       PIDonFEP
		0006 0002 060f                       RI
		0007 0004 0708090a                   initiator
		0008 0002 1000                       payload MTU
		0009 0001 06                         RUD ROD
		000a 0004 0b0c0d0e                   profile
		000c 0001 01                         tls
		000b 0001 01                         no CRC
		0001 0002 6869                       private
	`), " ")
	var bytesOf []byte
	for _, w := range strings.Fields(want) {
		if b, err := hex.DecodeString(w); err == nil {
			bytesOf = append(bytesOf, b...)
		}
	}
	m := messages()["connect"]
	if got := m.append(nil); !bytes.Equal(got, bytesOf) {
		t.Errorf("got  %x\nwant %x", got, bytesOf)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for name, m := range messages() {
		t.Run(name, func(t *testing.T) {
			b := m.append(bytes.Repeat([]byte{0xa5}, 3))[3:]
			if n, err := messageLen(b); n != len(b) || err != nil {
				t.Fatalf("length %d, %v, want %d", n, err, len(b))
			}
			got, err := parse(b, Version)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, m) {
				t.Errorf("got  %+v\nwant %+v", got, m)
			}
			for i := range b {
				if n, err := messageLen(b[:i]); err != nil || n != 0 && n <= i {
					t.Errorf("prefix of %d: length %d, %v", i, n, err)
				}
				if _, err := parse(b[:i], Version); err == nil {
					t.Errorf("prefix of %d parses", i)
				}
			}
		})
	}
}

// edit returns a connect message whose bytes f changed, with the length corrected.
func edit(f func(b []byte) []byte) []byte {
	m := messages()["connect"]
	b := f(m.append(nil))
	binary.BigEndian.PutUint32(b, uint32(len(b)-msgKind))
	return b
}

// shorter removes the last byte of a field.
func shorter(b []byte, typ uint16) []byte {
	for i := msgLen; i < len(b); i += 4 + int(binary.BigEndian.Uint16(b[i+2:])) {
		if n := int(binary.BigEndian.Uint16(b[i+2:])); binary.BigEndian.Uint16(b[i:]) == typ {
			binary.BigEndian.PutUint16(b[i+2:], uint16(n-1))
			return append(b[:i+3+n], b[i+4+n:]...)
		}
	}
	return b
}

// field replaces the value of a field of b by another of the same length.
func field(b []byte, typ uint16, v ...byte) []byte {
	for i := msgLen; i < len(b); i += 4 + int(binary.BigEndian.Uint16(b[i+2:])) {
		if binary.BigEndian.Uint16(b[i:]) == typ {
			copy(b[i+4:], v)
		}
	}
	return b
}

func TestMessageRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"kind", "kind 99", edit(func(b []byte) []byte { b[msgKind] = 99; return b })},
		{"kind 0", "kind 0", edit(func(b []byte) []byte { b[msgKind] = 0; return b })},
		{"left over", "3 bytes left over", edit(func(b []byte) []byte { return append(b, 1, 2, 3) })},
		{"field longer than the message", "field 99 of 5 bytes in 2", edit(func(b []byte) []byte { return append(b, 0, 99, 0, 5, 1, 2) })},
		{"field twice", "field 5 twice", edit(func(b []byte) []byte { return appendTLV(b, tlvPIDonFEP, 0, 1) })},
		{"field of the wrong size", "field 1 of 257 bytes", edit(func(b []byte) []byte { return appendTLV(b[:len(b)-6], tlvPrivate, make([]byte, 257)...) })},
		{"missing", "fields 0x4 missing", edit(func(b []byte) []byte { return append(b[:msgLen], b[msgLen+10:]...) })},
		{"port 0", "address", edit(func(b []byte) []byte { return field(b, tlvAddr, 10, 0, 0, 1, 0, 0) })},
		{"other main port", "main port 5", edit(func(b []byte) []byte { return field(b, tlvPorts, 0, 5) })},
		{"half a port", "field 3 of 3 bytes", edit(func(b []byte) []byte { return shorter(b, tlvPorts) })},
		{"another port 0", "port 1 of 2 is 0", edit(func(b []byte) []byte { return field(b, tlvPorts, 0x12, 0xb9, 0, 0) })},
		{"JobID", "JobID 0x1000000", edit(func(b []byte) []byte { return field(b, tlvJobID, 1, 0, 0, 0) })},
		{"PIDonFEP", "PIDonFEP 0x1000", edit(func(b []byte) []byte { return field(b, tlvPIDonFEP, 0x10, 0) })},
		{"RI", "RI 0x1000", edit(func(b []byte) []byte { return field(b, tlvRI, 0x10, 0) })},
		{"payload MTU", "payload MTU 4097", edit(func(b []byte) []byte { return field(b, tlvPayloadMTU, 0x10, 1) })},
		{"no mode", "modes 0x0", edit(func(b []byte) []byte { return field(b, tlvModes, 0) })},
		{"mode 0", "modes 0x1", edit(func(b []byte) []byte { return field(b, tlvModes, 1) })},
		{"security", "security(3)", edit(func(b []byte) []byte { return field(b, tlvSecurity, 3) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.b, Version)
			var wrong *wrongMessage
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestMessageLengthIsBounded(t *testing.T) {
	// T2: a message has at most 64 KiB, here less.
	for n, ok := range map[uint32]bool{0: false, 3: false, 4: true, maxMessage - 4: true, maxMessage - 3: false, 1 << 31: false, 1<<32 - 1: false} {
		if _, err := messageLen(be32(n)); (err == nil) != ok {
			t.Errorf("length %d: %v", n, err)
		}
	}
	// The longest message that we send fits.
	m := messages()["connect"]
	m.private = make([]byte, MaxPrivate)
	m.params.Ports = make([]uint16, MaxPorts)
	for i := range m.params.Ports {
		m.params.Ports[i] = 4793
	}
	if n := len(m.append(nil)); n > maxMessage {
		t.Errorf("%d bytes", n)
	}
}

func TestMessageSkipsUnknownFieldsButCriticalOnes(t *testing.T) {
	want := messages()["connect"]
	got, err := parse(edit(func(b []byte) []byte { return appendTLV(appendTLV(b, 0x7fff, 1, 2), tlvEnd) }), Version)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("unknown fields: %+v, %v", got, err)
	}
	// A field of another kind of message is unknown, too.
	if got, err = parse(edit(func(b []byte) []byte { return appendTLV(b, tlvGen, 1) }), Version); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("field of another message: %+v, %v", got, err)
	}
	var critical *unknownCritical
	_, err = parse(edit(func(b []byte) []byte { return appendTLV(b, tlvCritical|0x33, 1) }), Version)
	if !errors.As(err, &critical) || critical.typ != tlvCritical|0x33 {
		t.Errorf("unknown critical field: %v", err)
	}
	// A known field may have the critical bit.
	if _, err = parse(edit(func(b []byte) []byte { b[msgLen] |= 0x80; return b }), Version); err != nil {
		t.Errorf("known critical field: %v", err)
	}
}

func TestMessageOfAnotherVersionIsNotRead(t *testing.T) {
	m, err := parse(edit(func(b []byte) []byte { b[msgVersion+1] = 9; return append(b, 1, 2, 3) }), Version)
	if err != nil || m.version != 9 || m.params.JobID != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	// A mismatch of any version is read.
	mm := messages()["mismatch"]
	mm.version = 9
	if got, err := parse(mm.append(nil), Version); err != nil || !reflect.DeepEqual(got, mm) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := messageLen(b)
		if err != nil || n > len(b) {
			return
		}
		m, err := parse(b, Version)
		if err != nil || m.kind != kindMismatch && m.version != Version {
			return
		}
		c := m.append(nil)
		again, err := parse(c, Version)
		if err != nil {
			t.Fatalf("%+v parses to %v", m, err)
		}
		if d := again.append(nil); !bytes.Equal(c, d) {
			t.Fatalf("%x, then %x", c, d)
		}
	})
}
