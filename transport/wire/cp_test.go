package wire

import (
	"strings"
	"testing"
)

// cpCodec tests control packets: UE 3.5.10.8.
var cpCodec = codec[CP]{
	parse: ParseCP,
	put:   (*CP).Append,
	text:  (*CP).String,
	vectors: []vector[CP]{
		{
			name: "NOOP", // layout
			bytes: `
				582c/0043 # type 11 CP, ctl_type 0 NOOP, flags ISROD+AR+SYN
				0000/ffff # reserved
				01020304  # psn
				0506      # spdcid
				0708      # pdc_info 0, psn_offset 0x708
				00000000  # payload`,
			want: CP{Ctl: CtlNoop, Flags: FlagISROD | FlagAR | FlagSYN, PSN: 0x01020304, SPDCID: 0x0506, PSNOffset: 0x708},
			text: "CTRL NOOP ISROD+AR+SYN psn=0x1020304 spdcid=1286 psn_offset=1800 payload=0x0",
		},
		{
			name: "ACK_REQ", // by the layout
			bytes: `
				5888/0043 # type 11 CP, ctl_type 1 ACK_REQ, flags AR
				0000/ffff # reserved
				a1b2c3d4  # psn: the one that is asked about
				0011      # spdcid
				0022      # dpdcid
				00000105  # payload: message id`,
			want: CP{Ctl: CtlAckReq, Flags: FlagAR, PSN: 0xa1b2c3d4, SPDCID: 0x11, DPDCID: 0x22, Payload: 0x105},
			text: "CTRL ACK_REQ AR psn=0xa1b2c3d4 spdcid=17 dpdcid=34 payload=0x105",
		},
		{
			name: "CLEAR_CMD",
			bytes: `
				5900/0043 # type 11 CP, ctl_type 2 CLEAR_CMD
				0000/ffff # reserved
				00000000  # psn
				0005      # spdcid
				0009      # dpdcid
				00012345  # payload: CLEAR_PSN`,
			want: CP{Ctl: CtlClear, SPDCID: 5, DPDCID: 9, Payload: 0x12345},
			text: "CTRL CLEAR_CMD - psn=0x0 spdcid=5 dpdcid=9 payload=0x12345",
		},
		{
			name: "CLEAR_REQ", // layout
			bytes: `
				5980/0043 # type 11 CP, ctl_type 3 CLEAR_REQ
				0000/ffff # reserved
				00000000  # psn
				0009      # spdcid
				0005      # dpdcid
				00012345  # payload: PSN to clear`,
			want: CP{Ctl: CtlClearReq, SPDCID: 9, DPDCID: 5, Payload: 0x12345},
			text: "CTRL CLEAR_REQ - psn=0x0 spdcid=9 dpdcid=5 payload=0x12345",
		},
		{
			name: "CLOSE_CMD", // refprov-read-small-ackdata 7
			bytes: `
				5a08/0043 # type 11 CP, ctl_type 4 CLOSE_CMD, flags AR
				0000/ffff # reserved
				5819817f  # psn, its own
				0001      # spdcid
				0001      # dpdcid
				00000000  # payload`,
			want: CP{Ctl: CtlClose, Flags: FlagAR, PSN: 0x5819817f, SPDCID: 1, DPDCID: 1},
			text: "CTRL CLOSE_CMD AR psn=0x5819817f spdcid=1 dpdcid=1 payload=0x0",
		},
		{
			name: "CLOSE_REQ", // by the layout
			bytes: `
				5a98/0043 # type 11 CP, ctl_type 5 CLOSE_REQ, flags RETX+AR
				0000/ffff # reserved
				5819817d  # psn, in the return direction
				0002      # spdcid
				0003      # dpdcid
				00000000  # payload`,
			want: CP{Ctl: CtlCloseReq, Flags: FlagRETX | FlagAR, PSN: 0x5819817d, SPDCID: 2, DPDCID: 3},
			text: "CTRL CLOSE_REQ RETX+AR psn=0x5819817d spdcid=2 dpdcid=3 payload=0x0",
		},
		{
			name: "PROBE", // by the layout
			bytes: `
				5b00/0043 # type 11 CP, ctl_type 6 PROBE
				beef      # probe_opaque
				00000000  # psn
				0102      # spdcid
				0304      # dpdcid
				a1b2c3d4  # payload: wanted SACK base`,
			want: CP{Ctl: CtlProbe, ProbeOpaque: 0xbeef, SPDCID: 0x102, DPDCID: 0x304, Payload: 0xa1b2c3d4},
			text: "CTRL PROBE - probe_opaque=0xbeef psn=0x0 spdcid=258 dpdcid=772 payload=0xa1b2c3d4",
		},
		{
			name: "CREDIT", // layout
			bytes: `
				5b80/0043 # type 11 CP, ctl_type 7 CREDIT
				0000/ffff # reserved
				00000000  # psn
				0102      # spdcid
				0304      # dpdcid
				abcdef00  # payload: credit in the upper 24 bits`,
			want: CP{Ctl: CtlCredit, SPDCID: 0x102, DPDCID: 0x304, Payload: CPCredit{0xabcdef}.Encode()},
			text: "CTRL CREDIT - psn=0x0 spdcid=258 dpdcid=772 credit=11259375",
		},
		{
			name: "CREDIT_REQ", // xdp2-test_uet 4
			bytes: `
				5c3c/0043 # type 11 CP, ctl_type 8 CREDIT_REQ, flags ISROD+RETX+AR+SYN
				0000/ffff # reserved; the capture has a probe_opaque there
				99887766  # psn
				1234      # spdcid
				0345      # pdc_info 0, psn_offset 0x345
				65432109  # payload: ccc_id 0x65, credit_target 0x432109`,
			want: CP{
				Ctl: CtlCreditReq, Flags: FlagISROD | FlagRETX | FlagAR | FlagSYN, PSN: 0x99887766, SPDCID: 0x1234, PSNOffset: 0x345,
				Payload: CPCreditReq{0x65, 0x432109}.Encode(),
			},
			text: "CTRL CREDIT_REQ ISROD+RETX+AR+SYN psn=0x99887766 spdcid=4660 psn_offset=837 ccc_id=101 credit_target=4399369",
		},
		{
			name: "NEGOTIATION", // xdp2-uet_pds 16, with the payload that it lacks
			bytes: `
				5c94/0043 # type 11 CP, ctl_type 9 NEGOTIATION, flags RETX+SYN
				0000/ffff # reserved; the capture has a probe_opaque there
				cdef0123  # psn
				cdef      # spdcid
				8876      # pdc_info 8, psn_offset 0x876
				00000001  # payload`,
			want: CP{
				Ctl: CtlNegotiation, Flags: FlagRETX | FlagSYN, PSN: 0xcdef0123, SPDCID: 0xcdef, PDCInfo: 8, PSNOffset: 0x876, Payload: 1,
			},
			text: "CTRL NEGOTIATION RETX+SYN psn=0xcdef0123 spdcid=52719 psn_offset=2166 pdc_info=0x8 payload=0x1",
		},
	},
	most: []CP{
		{Ctl: CtlProbe, Flags: FlagRETX, ProbeOpaque: 0xffff, DPDCID: 0xffff},
		{Ctl: CtlNegotiation, Flags: cpFlags, PSN: 0xffffffff, SPDCID: 0xffff, PDCInfo: 15, PSNOffset: 0xfff, Payload: 0xffffffff},
		{Flags: FlagISROD | FlagRETX | FlagAR, DPDCID: 0xffff},
	},
	refused: []refusal{
		{"NACK", "5000 0000 00000000 0001 0001 00000000", Invalid{"control packet", "type"}},
		{"ctl_type 10", "5d00 0000 00000000 0001 0001 00000000", Invalid{"control packet", "ctl_type"}},
		{"ctl_type 15", "5f80 0000 00000000 0001 0001 00000000", Invalid{"control packet", "ctl_type"}},
		{"without payload", "5c30 9876 cdef0123 cdef fedc", Invalid{"control packet", "length"}}, // xdp2-uet_pds 15, its own 12 bytes
	},
	bugs: []bug[CP]{
		{"ctl_type", CP{Ctl: CtlNegotiation + 1}},
		{"flags", CP{Flags: 0x40}},
		{"pdc_info", CP{Flags: FlagSYN, PDCInfo: 16}},
		{"psn_offset", CP{Flags: FlagSYN, PSNOffset: 0x1000}},
	},
}

func TestCP(t *testing.T) { cpCodec.test(t) }
func FuzzCP(f *testing.F) { cpCodec.fuzz(f) }

func TestCPCreditPayloads(t *testing.T) {
	// UE 3.5.16: CREDIT has the credit in the upper 24 bits and 8 reserved ones, CREDIT_REQ the
	// ccc_id in the upper 8 and the target below.
	for _, v := range []uint32{0, 1, 0x123456, 0xffffff} {
		if e := (CPCredit{v}).Encode(); e != v<<8 || ParseCPCredit(e|0xa5).Credit != v {
			t.Errorf("credit %#x is %#x, read as %v", v, e, ParseCPCredit(e|0xa5))
		}
		for _, id := range []uint8{0, 1, 0xff} {
			c := CPCreditReq{id, v}
			if e := c.Encode(); e != uint32(id)<<24|v || ParseCPCreditReq(e) != c {
				t.Errorf("%v is %#x, read as %v", c, e, ParseCPCreditReq(e))
			}
		}
	}
	// Reserved bits that are set are shown.
	if s := (CP{Ctl: CtlCredit, Payload: 0x101}).String(); !strings.Contains(s, "payload=0x101") {
		t.Error(s)
	}
	for _, f := range []func(){func() { CPCredit{1 << 24}.Encode() }, func() { CPCreditReq{0, 1 << 24}.Encode() }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a value of 25 bits was encoded")
				}
			}()
			f()
		}()
	}
}
