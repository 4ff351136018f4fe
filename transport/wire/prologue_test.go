package wire

import "testing"

// prologueCodec tests the 16 bits in front of every PDS header: UE 3.5.10.2.
var prologueCodec = codec[Prologue]{
	parse: func(b []byte) (Prologue, int, error) {
		p, err := ParsePrologue(b)
		if err != nil {
			return p, 0, err
		}
		return p, PrologueLen, nil
	},
	put:  func(p *Prologue, b []byte) []byte { return p.Append(b) },
	text: func(p *Prologue) string { return p.String() },
	vectors: []vector[Prologue]{
		{
			name:  "request",
			bytes: "1998 # type 00011 ROD_REQ, next_hdr 0011 REQ_STD, flags 0011000 RETX+AR",
			want:  Prologue{Type: TypeRODReq, Next: NextReqStd, Flags: FlagRETX | FlagAR},
			text:  "ROD_REQ nh=REQ_STD flags=0x18",
		},
		{
			name:  "control",
			bytes: "5a08 # type 01011 CP, ctl_type 0100 CLOSE_CMD, flags 0001000 AR",
			want:  Prologue{Type: TypeCP, Ctl: CtlClose, Flags: FlagAR},
			text:  "CTRL CLOSE_CMD flags=0x8",
		},
		{
			name:  "all ones", // any type, and reserved flags, are returned
			bytes: "ffff # type 31, next_hdr 15, flags 0x7f",
			want:  Prologue{Type: 31, Next: 15, Flags: 0x7f},
			text:  "type 31 nh=next_hdr 15 flags=0x7f",
		},
	},
	most: []Prologue{
		{Type: 31, Next: 15, Flags: 0x7f},
		{Type: TypeCP, Ctl: 15, Flags: 0x7f},
	},
	bugs: []bug[Prologue]{
		{"type", Prologue{Type: 32}},
		{"next_hdr", Prologue{Type: TypeAck, Next: 16}},
		{"ctl_type", Prologue{Type: TypeCP, Ctl: 16}},
		{"flags", Prologue{Type: TypeAck, Flags: 0x80}},
	},
}

func TestPrologue(t *testing.T) { prologueCodec.test(t) }
func FuzzPrologue(f *testing.F) { prologueCodec.fuzz(f) }

// The first 16 bits of packets of each kind have these values.
func TestPrologueHandyValues(t *testing.T) {
	for _, c := range []struct {
		v    uint16
		want Prologue
	}{
		{0x1180, Prologue{Type: TypeRUDReq, Next: NextReqStd}},
		{0x118c, Prologue{Type: TypeRUDReq, Next: NextReqStd, Flags: FlagSYN | FlagAR}},
		{0x1998, Prologue{Type: TypeRODReq, Next: NextReqStd, Flags: FlagRETX | FlagAR}},
		{0x1288, Prologue{Type: TypeRUDReq, Next: NextRspData, Flags: FlagAR}},
		{0x3a00, Prologue{Type: TypeAck, Next: NextRsp}},
		{0x3a02, Prologue{Type: TypeAck, Next: NextRsp, Flags: Flags(ReqClear) << 1}},
		{0x3800, Prologue{Type: TypeAck}},
		{0x3840, Prologue{Type: TypeAck, Flags: AckFlagEPSN}},
		{0x4220, Prologue{Type: TypeAckCC, Next: NextRsp, Flags: AckFlagM}},
		{0x5000, Prologue{Type: TypeNack}},
		{0x5008, Prologue{Type: TypeNack, Flags: NackFlagNT}},
		{0x5a08, Prologue{Type: TypeCP, Ctl: CtlClose, Flags: FlagAR}},
		{0x5a88, Prologue{Type: TypeCP, Ctl: CtlCloseReq, Flags: FlagAR}},
		{0x5888, Prologue{Type: TypeCP, Ctl: CtlAckReq, Flags: FlagAR}},
		{0x5900, Prologue{Type: TypeCP, Ctl: CtlClear}},
		{0x5b00, Prologue{Type: TypeCP, Ctl: CtlProbe}},
		{0x2180, Prologue{Type: TypeRUDIReq, Next: NextReqStd}},
		{0x2a00, Prologue{Type: TypeRUDIRsp, Next: NextRsp}},
		{0x3180, Prologue{Type: TypeUUDReq, Next: NextReqStd}},
	} {
		if p, err := ParsePrologue([]byte{byte(c.v >> 8), byte(c.v)}); err != nil || p != c.want {
			t.Errorf("%#04x: %v, %v, want %v", c.v, p, err, c.want)
		}
	}
}
