package wire

import "testing"

// rudiCodec tests RUDI requests and responses: UE 3.5.10.9.
var rudiCodec = codec[RUDIHdr]{
	parse: ParseRUDI,
	put:   (*RUDIHdr).Append,
	text:  (*RUDIHdr).String,
	vectors: []vector[RUDIHdr]{
		{
			name: "request", // by the layout
			bytes: `
				2190/004f # type 4 RUDI_REQ, next_hdr 3 REQ_STD, flags RETX
				0000/ffff # reserved
				99887766  # pkt_id`,
			want: RUDIHdr{Type: TypeRUDIReq, Next: NextReqStd, Flags: RUDIFlagRETX, PktID: 0x99887766},
			text: "RUDI_REQ RETX nh=REQ_STD pkt_id=0x99887766",
		},
		{
			name: "response", // xdp2-uet_pds 19
			bytes: `
				2a20/004f # type 5 RUDI_RESP, next_hdr 4 RSP, flags M
				0000/ffff # reserved
				99887766  # pkt_id`,
			want: RUDIHdr{Type: TypeRUDIRsp, Next: NextRsp, Flags: RUDIFlagM, PktID: 0x99887766},
			text: "RUDI_RESP M nh=RSP pkt_id=0x99887766",
		},
	},
	most: []RUDIHdr{
		{Type: TypeRUDIRsp, Next: 15, Flags: rudiFlags, PktID: 0xffffffff},
	},
	refused: []refusal{
		{"UUD", "3180 0000 00000000", Invalid{"RUDI", "type"}},
		{"ROD", "1980 0000 00000000", Invalid{"RUDI", "type"}},
	},
	bugs: []bug[RUDIHdr]{
		{"type", RUDIHdr{Type: TypeUUDReq}},
		{"next_hdr", RUDIHdr{Type: TypeRUDIReq, Next: 16}},
		{"flags", RUDIHdr{Type: TypeRUDIReq, Flags: FlagAR}},
	},
}

func TestRUDI(t *testing.T) { rudiCodec.test(t) }
func FuzzRUDI(f *testing.F) { rudiCodec.fuzz(f) }
