package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Packets of other implementations, read, checked and written again. The folder
// of captures is named by UETKIT_VECTORS; without it there is nothing to do.

// frames are the Ethernet frames of a classic pcap file in little-endian.
func frames(t *testing.T, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 && binary.LittleEndian.Uint32(b) != 0xa1b23c4d {
		t.Fatalf("%s is no pcap file", file)
	}
	var fs [][]byte
	for b = b[24:]; len(b) >= 16; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		fs = append(fs, b[16:16+n])
		b = b[16+n:]
	}
	if len(fs) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return fs
}

// ip splits an Ethernet frame.
func ip(t *testing.T, f []byte) (src, dst netip.Addr, proto byte, payload []byte) {
	t.Helper()
	switch p := f[14:]; binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		src, _ = netip.AddrFromSlice(p[12:16])
		dst, _ = netip.AddrFromSlice(p[16:20])
		return src, dst, p[9], p[int(p[0]&15)*4 : binary.BigEndian.Uint16(p[2:])]
	case 0x86dd:
		src, _ = netip.AddrFromSlice(p[8:24])
		dst, _ = netip.AddrFromSlice(p[24:40])
		return src, dst, p[6], p[40 : 40+int(binary.BigEndian.Uint16(p[4:]))]
	}
	t.Fatal("a frame of no IP")
	return
}

// again decodes the header at the front of b, checks that encoding gives the
// same bytes, and returns what it says and what follows.
func again[H any](t *testing.T, b []byte, parse func([]byte) (H, int, error), put func(*H, []byte) []byte) (H, []byte) {
	t.Helper()
	h, n, err := parse(b)
	if err != nil {
		t.Fatalf("%v in %x", err, b)
	}
	if out := put(&h, nil); !bytes.Equal(out, b[:n]) {
		t.Fatalf("read  %x\nwrote %x\nas %+v", b[:n], out, h)
	}
	return h, b[n:]
}

// pds goes through a PDS header and the SES header behind it.
func pds(t *testing.T, b []byte) string {
	t.Helper()
	p, err := ParsePrologue(b)
	if err != nil {
		t.Fatal(err)
	}
	var s string
	switch p.Type {
	case TypeRUDReq, TypeRODReq, TypeRUDCCReq, TypeRODCCReq:
		var h Req
		h, b = again(t, b, ParseReq, func(h *Req, b []byte) []byte { return h.Append(b) })
		s = fmt.Sprintf("%v psn=%#x spdcid=%d clear_off=%d", h.Type, h.PSN, h.SPDCID, h.ClearOff)
	case TypeAck, TypeAckCC, TypeAckCCX:
		var h Ack
		h, b = again(t, b, ParseAck, func(h *Ack, b []byte) []byte { return h.Append(b) })
		s = fmt.Sprintf("%v off=%d cack=%#x req=%d", h.Type, h.AckPSNOff, h.CACK, h.Req)
	case TypeNack, TypeNackCCX:
		var h Nack
		h, b = again(t, b, ParseNack, func(h *Nack, b []byte) []byte { return h.Append(b) })
		s = fmt.Sprintf("%v code=%v psn=%#x", h.Type, h.Code, h.PSN)
	case TypeCP:
		h, _ := again(t, b, ParseCP, func(h *CP, b []byte) []byte { return h.Append(b) })
		return fmt.Sprintf("%v psn=%#x payload=%#x", h.Ctl, h.PSN, h.Payload)
	case TypeRUDIReq, TypeRUDIRsp:
		_, b = again(t, b, ParseRUDI, func(h *RUDIHdr, b []byte) []byte { return h.Append(b) })
	case TypeUUDReq:
		_, b = again(t, b, ParseUUD, func(h *UUDHdr, b []byte) []byte { return h.Append(b) })
	default:
		t.Fatalf("PDS type %v", p.Type)
	}
	switch p.Next {
	case NextReqStd:
		var h ReqStd
		h, b = again(t, b, ParseReqStd, (*ReqStd).Append)
		s += fmt.Sprintf(" | %v data=%d", h.Opcode, len(b))
	case NextReqSmall:
		again(t, b, ParseReqSmall, func(h *ReqSmall, b []byte) []byte { return h.Append(b) })
	case NextReqMedium:
		again(t, b, ParseReqMedium, func(h *ReqMedium, b []byte) []byte { return h.Append(b) })
	case NextRsp:
		var h Rsp
		h, _ = again(t, b, ParseRsp, (*Rsp).Append)
		s += fmt.Sprintf(" | RSP rc=%#x msg_id=%#x mod_len=%d", uint8(h.RC), h.MsgID, h.ModLen)
	case NextRspData:
		again(t, b, ParseRspData, func(h *RspData, b []byte) []byte { return h.Append(b) })
	case NextRspDataSmall:
		again(t, b, ParseRspDataSmall, func(h *RspDataSmall, b []byte) []byte { return h.Append(b) })
	}
	return s
}

// UE §3.5.6, §3.5.10–11, §3.4: every unsecured packet of the UEC reference
// provider has the CRC that we compute, and our codecs give its bytes back.
func TestVectorsReferenceProvider(t *testing.T) {
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "refprov-*.pcap"))
	packets := 0
	for _, file := range files {
		if strings.Contains(file, "-tss-") {
			continue // its headers are encrypted
		}
		for i, f := range frames(t, file) {
			src, dst, proto, b := ip(t, f)
			if proto != 253 {
				t.Fatalf("%s %d: IP protocol %d", file, i+1, proto)
			}
			e, n, err := ParseEntropy(b)
			if err != nil {
				t.Fatal(err)
			}
			if !VerifyCRC(b[n:], CRCPrefixNative(src, dst, e.EV)) {
				t.Errorf("%s %d: CRC", file, i+1)
			}
			b[len(b)-1] ^= 1
			if VerifyCRC(b[n:], CRCPrefixNative(src, dst, e.EV)) {
				t.Errorf("%s %d: a wrong CRC passes", file, i+1)
			}
			pds(t, b[n:len(b)-CRCLen])
			packets++
		}
	}
	if packets < 50 {
		t.Errorf("%d packets are too few to say anything", packets)
	}
}

// What the first packets of one capture mean, decoded by other means.
func TestVectorsMeaning(t *testing.T) {
	dir := os.Getenv("UETKIT_VECTORS")
	if dir == "" {
		t.Skip("UETKIT_VECTORS names no folder of captures")
	}
	want := []string{
		"RUD_REQ psn=0x30ece243 spdcid=1 clear_off=-1 | SEND data=1024",
		"RUD_REQ psn=0x30ece244 spdcid=1 clear_off=-2 | SEND data=1024",
		"RUD_REQ psn=0x30ece245 spdcid=1 clear_off=-3 | SEND data=452",
		"ACK off=0 cack=0x30ece243 req=0 | RSP rc=0x1 msg_id=0x1 mod_len=2500",
		"ACK off=0 cack=0x30ece244 req=0 | RSP rc=0x1 msg_id=0x1 mod_len=2500",
	}
	fs := frames(t, filepath.Join(dir, "refprov-send-rud-ack.pcap"))
	for i, w := range want {
		_, _, _, b := ip(t, fs[i])
		if got := pds(t, b[EntropyLen:len(b)-CRCLen]); got != w {
			t.Errorf("packet %d\n got %s\nwant %s", i+1, got, w)
		}
	}
}

// FuzzHeaders: no bytes from the wire make a decoder panic, and what it
// accepts it writes again in the same length.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte{0x10, 0xc0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(name string, n int, err error, out func() []byte) {
			if err == nil && (n > len(b) || len(out()) != n) {
				t.Errorf("%s: %d bytes read, %d written", name, n, len(out()))
			}
		}
		{
			h, n, err := ParseReq(b)
			check("Req", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseAck(b)
			check("Ack", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseNack(b)
			check("Nack", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseCP(b)
			check("CP", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseReqStd(b)
			check("ReqStd", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseReqMedium(b)
			check("ReqMedium", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseReqSmall(b)
			check("ReqSmall", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseRsp(b)
			check("Rsp", n, err, func() []byte { return h.Append(nil) })
		}
		{
			h, n, err := ParseRspData(b)
			check("RspData", n, err, func() []byte { return h.Append(nil) })
		}
		_, _, _ = ParseAddrBinary(b)
		_, _ = ParseAddrC(b)
		_, _ = ParseAddr(string(b))
	})
}
