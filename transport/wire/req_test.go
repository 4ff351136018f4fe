package wire

import (
	"bytes"
	"testing"
)

// reqCodec tests RUD and ROD requests: UE 3.5.10.3, 3.5.11.
var reqCodec = codec[Req]{
	parse: ParseReq,
	put:   (*Req).Append,
	text:  (*Req).String,
	vectors: []vector[Req]{
		{
			name: "SYN", // refprov-read-small-ackdata 1
			bytes: `
				118c/0063 # type 2 RUD_REQ, next_hdr 3 REQ_STD, flags AR+SYN
				ffff      # clear_psn_offset −1
				5819817d  # psn
				0001      # spdcid
				0000      # pdc_info 0, psn_offset 0: the first packet`,
			want: Req{Type: TypeRUDReq, Next: NextReqStd, Flags: FlagAR | FlagSYN, ClearOff: -1, PSN: 0x5819817d, SPDCID: 1},
			text: "RUD_REQ AR+SYN nh=REQ_STD clear_off=-1 psn=0x5819817d spdcid=1 psn_offset=0",
		},
		{
			name: "return direction", // refprov-read-rud 7
			bytes: `
				1288/0063 # type 2 RUD_REQ, next_hdr 5 RSP_DATA, flags AR
				ffff      # clear_psn_offset −1
				3487be92  # psn
				0001      # spdcid
				0001      # dpdcid`,
			want: Req{Type: TypeRUDReq, Next: NextRspData, Flags: FlagAR, ClearOff: -1, PSN: 0x3487be92, SPDCID: 1, DPDCID: 1},
			text: "RUD_REQ AR nh=RSP_DATA clear_off=-1 psn=0x3487be92 spdcid=1 dpdcid=1",
		},
		{
			name: "ROD", // layout
			bytes: `
				1998/0063 # type 3 ROD_REQ, next_hdr 3 REQ_STD, flags RETX+AR
				8001      # clear_psn_offset −32767
				f0e1d2c3  # psn
				4567      # spdcid
				89ab      # dpdcid`,
			want: Req{Type: TypeRODReq, Next: NextReqStd, Flags: FlagRETX | FlagAR, ClearOff: -32767, PSN: 0xf0e1d2c3, SPDCID: 0x4567, DPDCID: 0x89ab},
			text: "ROD_REQ RETX+AR nh=REQ_STD clear_off=-32767 psn=0xf0e1d2c3 spdcid=17767 dpdcid=35243",
		},
		{
			name: "RUD CC", // xdp2-uet_pds 4
			bytes: `
				6994/0063 # type 13 RUD_CC_REQ, next_hdr 3 REQ_STD, flags RETX+SYN
				1234      # clear_psn_offset 4660
				98765432  # psn
				3456      # spdcid
				8876      # pdc_info 8 (use_rsv_pdc), psn_offset 0x876
				77        # ccc_id
				887766    # credit_target`,
			want: Req{
				Type: TypeRUDCCReq, Next: NextReqStd, Flags: FlagRETX | FlagSYN, ClearOff: 0x1234, PSN: 0x98765432, SPDCID: 0x3456,
				PDCInfo: 8, PSNOffset: 0x876, CCCID: 0x77, CreditTarget: 0x887766,
			},
			text: "RUD_CC_REQ RETX+SYN nh=REQ_STD clear_off=4660 psn=0x98765432 spdcid=13398 psn_offset=2166 pdc_info=0x8 ccc_id=119 credit_target=8943462",
		},
		{
			name: "ROD CC", // xdp2-test_uet 2, except dpdcid
			bytes: `
				7198/0063 # type 14 ROD_CC_REQ, next_hdr 3 REQ_STD, flags RETX+AR
				2143      # clear_psn_offset 8515
				21436587  # psn
				1234      # spdcid
				fffe      # dpdcid
				78        # ccc_id
				123456    # credit_target`,
			want: Req{
				Type: TypeRODCCReq, Next: NextReqStd, Flags: FlagRETX | FlagAR, ClearOff: 0x2143, PSN: 0x21436587, SPDCID: 0x1234, DPDCID: 0xfffe,
				CCCID: 0x78, CreditTarget: 0x123456,
			},
			text: "ROD_CC_REQ RETX+AR nh=REQ_STD clear_off=8515 psn=0x21436587 spdcid=4660 dpdcid=65534 ccc_id=120 credit_target=1193046",
		},
	},
	most: []Req{
		{Type: TypeRODReq, Next: 15, Flags: reqFlags, SPDCID: 0xffff, PSNOffset: 0xfff, PDCInfo: 15, ClearOff: 0x7fff, PSN: 0xffffffff},
		{Type: TypeRODCCReq, Next: 15, Flags: FlagRETX | FlagAR, SPDCID: 0xffff, DPDCID: 0xffff, CCCID: 0xff, ClearOff: -0x8000, PSN: 0xffffffff, CreditTarget: 0xffffff},
	},
	refused: []refusal{
		{"ACK", "3800 0000 00000000 0000 0000", Invalid{"RUD/ROD request", "type"}},
		{"type 0", "0180 0000 00000000 0000 0000", Invalid{"RUD/ROD request", "type"}},
		{"type 15", "7980 0000 00000000 0000 0000 00000000", Invalid{"RUD/ROD request", "type"}},
		{"CC without credit", "6980 0000 00000000 0000 0000", Invalid{"RUD/ROD request", "length"}},
	},
	bugs: []bug[Req]{
		{"type", Req{Type: TypeAck}},
		{"next_hdr", Req{Type: TypeRUDReq, Next: 16}},
		{"flags", Req{Type: TypeRUDReq, Flags: FlagISROD}},
		{"pdc_info", Req{Type: TypeRUDReq, Flags: FlagSYN, PDCInfo: 16}},
		{"psn_offset", Req{Type: TypeRUDReq, Flags: FlagSYN, PSNOffset: 0x1000}},
		{"credit_target", Req{Type: TypeRODCCReq, CreditTarget: 1 << 24}},
	},
}

func TestReq(t *testing.T) { reqCodec.test(t) }
func FuzzReq(f *testing.F) { reqCodec.fuzz(f) }

// UE 3.5.10.2: mode and length depend on the type.
func TestReqModeLen(t *testing.T) {
	for _, c := range []struct {
		t    Type
		mode Mode
		n    int
	}{{TypeRUDReq, RUD, 12}, {TypeRODReq, ROD, 12}, {TypeRUDCCReq, RUD, 16}, {TypeRODCCReq, ROD, 16}} {
		r := Req{Type: c.t}
		if r.Mode() != c.mode || r.Len() != c.n || len(r.Append(nil)) != c.n {
			t.Errorf("%v: %v, %d bytes, want %v, %d", c.t, r.Mode(), r.Len(), c.mode, c.n)
		}
	}
}

func TestPlainReq(t *testing.T) {
	for _, typ := range []Type{TypeRUDReq, TypeRODReq} {
		r := Req{Type: typ, Next: NextReqStd, ClearOff: -3, PSN: 0x89abcdef, SPDCID: 0x1234, DPDCID: 0x5678}
		dirty := bytes.Repeat([]byte{0xa5}, 40)
		if got, want := AppendPlainReq(dirty[:1], typ, r.ClearOff, r.PSN, r.SPDCID, r.DPDCID), r.Append(dirty[:1:1]); !bytes.Equal(got, want) {
			t.Errorf("%v: appended\n%x, want\n%x", typ, got, want)
		}
	}
}

// A PlainReq has the fields that Parse reads, and a header is one only if it says nothing
// else: any other bit of type, next header and flags, even a reserved one, makes it none.
func TestPlainReqInPlace(t *testing.T) {
	r := Req{Type: TypeRUDReq, Next: NextReqStd, ClearOff: -3, PSN: 0x89abcdef, SPDCID: 0x1234, DPDCID: 0x5678}
	full := (&ReqStd{}).Append(r.Append(nil))
	for n := range full {
		if PlainRequest(full[:n]) != nil {
			t.Errorf("%d bytes are a request", n)
		}
	}
	for bit := range ReqLen * 8 {
		b := bytes.Clone(full)
		b[bit/8] ^= 0x80 >> (bit % 8)
		h := PlainRequest(b)
		if free := bit >= 16 || bit == 12; (h != nil) != free {
			t.Errorf("bit %d: plain is %t", bit, h != nil)
		}
		if h == nil {
			continue
		}
		w, _, err := ParseReq(b)
		if err != nil || h.AR() != (w.Flags == FlagAR) || h.ClearOff() != w.ClearOff || h.PSN() != w.PSN || h.SPDCID() != w.SPDCID || h.DPDCID() != w.DPDCID {
			t.Errorf("%x: %v, read in place %t %d %#x %d %d", b, &w, h.AR(), h.ClearOff(), h.PSN(), h.SPDCID(), h.DPDCID())
		}
	}
}
