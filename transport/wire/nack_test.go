package wire

import "testing"

// nackCodec tests NACK and NACK_CCX: UE 3.5.10.10, 3.5.10.11.
var nackCodec = codec[Nack]{
	parse: ParseNack,
	put:   (*Nack).Append,
	text:  (*Nack).String,
	vectors: []vector[Nack]{
		{
			name: "NEW_START_PSN", // refprov-tss-cluster-1rtt 4
			bytes: `
				5000/0047 # type 10 NACK, next_hdr 0 NONE
				17        # nack_code NEW_START_PSN
				00        # vendor_code
				3806b784  # nack_psn
				0000      # spdcid: no PDC to name
				0001      # dpdcid
				0cbcc5a1  # payload: the Start_PSN to use`,
			want: Nack{Type: TypeNack, Code: NackNewStartPSN, PSN: 0x3806b784, DPDCID: 1, Payload: 0x0cbcc5a1},
			text: "NACK - nh=NONE code=NEW_START_PSN vendor=0x0 psn=0x3806b784 spdcid=0 dpdcid=1 payload=0xcbcc5a1",
		},
		{
			name: "RUDI", // xdp2-uet_pds 13: its next header is wrong, and is returned
			bytes: `
				5238/0047 # type 10 NACK, next_hdr 4 RSP, flags M+RETX+NT
				16        # nack_code PDC_MODE_MISMATCH
				87        # vendor_code
				99887766  # pkt_id
				3456      # spdcid
				789a      # dpdcid
				56789abc  # payload`,
			want: Nack{
				Type: TypeNack, Next: NextRsp, Flags: NackFlagM | NackFlagRETX | NackFlagNT, Code: NackPDCModeMismatch, Vendor: 0x87,
				PSN: 0x99887766, SPDCID: 0x3456, DPDCID: 0x789a, Payload: 0x56789abc,
			},
			text: "NACK M+RETX+NT nh=RSP code=PDC_MODE_MISMATCH vendor=0x87 pkt_id=0x99887766 spdcid=13398 dpdcid=30874 payload=0x56789abc",
		},
		{
			name: "NACK_CCX", // layout
			bytes: `
				6030/0047 # type 12 NACK_CCX, next_hdr 0 NONE, flags M+RETX
				0d        # nack_code ROD_OOO
				21        # vendor_code
				98765432  # nack_psn
				3456      # spdcid
				789a      # dpdcid
				98765430  # payload: Expected_PSN
				c123456789abcdef # nccx_type 12, 60 bits of state
				fedcba9876543210 # 64 bits of state`,
			want: Nack{
				Type: TypeNackCCX, Flags: NackFlagM | NackFlagRETX, Code: NackRODOOO, Vendor: 0x21, PSN: 0x98765432, SPDCID: 0x3456, DPDCID: 0x789a,
				Payload: 0x98765430, CCXType: 12, CCX0: 0x123456789abcdef, CCX1: 0xfedcba9876543210,
			},
			text: "NACK_CCX M+RETX nh=NONE code=ROD_OOO vendor=0x21 psn=0x98765432 spdcid=13398 dpdcid=30874 payload=0x98765430 " +
				"nccx_type=12 state=0x123456789abcdef,0xfedcba9876543210",
			min: NackLen, // other implementations send 24 and 28 bytes
		},
	},
	most: []Nack{
		{
			Type: TypeNackCCX, Next: 15, Flags: nackFlags, Code: 0xff, Vendor: 0xff, PSN: 0xffffffff, SPDCID: 0xffff, DPDCID: 0xffff, Payload: 0xffffffff,
			CCXType: 15, CCX0: 1<<60 - 1, CCX1: 1<<64 - 1,
		},
	},
	refused: []refusal{
		{"ACK", "3800 0100 00000000 0000 0000 00000000", Invalid{"NACK", "type"}},
		{"CP", "5800 0000 00000000 0000 0000 00000000", Invalid{"NACK", "type"}},
	},
	bugs: []bug[Nack]{
		{"type", Nack{Type: TypeCP}},
		{"next_hdr", Nack{Type: TypeNack, Next: 16}},
		{"flags", Nack{Type: TypeNack, Flags: FlagSYN}},
		{"nccx_type", Nack{Type: TypeNackCCX, CCXType: 16}},
		{"state", Nack{Type: TypeNackCCX, CCX0: 1 << 60}},
	},
}

func TestNack(t *testing.T) { nackCodec.test(t) }
func FuzzNack(f *testing.F) { nackCodec.fuzz(f) }

// Of a NACK_CCX with another length, the fields of a NACK are read.
func TestNackCCXShort(t *testing.T) {
	// xdp2-test_uet 19, 24 bytes.
	b, _ := unhex(t, "6030 fe dc fedcba98 1234 8875 dcba9876 cdd0d1d2d3d4d5d6")
	want := Nack{
		Type: TypeNackCCX, Flags: NackFlagM | NackFlagRETX, Code: NackExpError, Vendor: 0xdc, PSN: 0xfedcba98, SPDCID: 0x1234, DPDCID: 0x8875,
		Payload: 0xdcba9876,
	}
	for n := range len(b) + 1 {
		h, read, err := ParseNack(b[:n])
		if n < NackLen {
			if err == nil {
				t.Errorf("%d bytes parse", n)
			}
		} else if err != nil || h != want || read != NackLen {
			t.Errorf("%d bytes: %v, %d, %v", n, h, read, err)
		}
	}
}
