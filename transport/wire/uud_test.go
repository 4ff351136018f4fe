package wire

import "testing"

// uudCodec tests the UUD request: UE 3.5.10.12.
var uudCodec = codec[UUDHdr]{
	parse: ParseUUD,
	put:   (*UUDHdr).Append,
	text:  (*UUDHdr).String,
	vectors: []vector[UUDHdr]{{
		name: "request", // by the layout; xdp2-test_uet 20 sets all flags
		bytes: `
			3180/007f # type 6 UUD_REQ, next_hdr 3 REQ_STD, no flags
			0000/ffff # reserved`,
		want: UUDHdr{Next: NextReqStd},
		text: "UUD_REQ nh=REQ_STD",
	}},
	most: []UUDHdr{
		{Next: 15},
	},
	refused: []refusal{{"RUDI", "2180 0000", Invalid{"UUD", "type"}}},
	bugs:    []bug[UUDHdr]{{"next_hdr", UUDHdr{Next: 16}}},
}

func TestUUD(t *testing.T) { uudCodec.test(t) }
func FuzzUUD(f *testing.F) { uudCodec.fuzz(f) }
