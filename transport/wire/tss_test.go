package wire

import "testing"

// tssCodec tests the security header: UE 3.7.
var tssCodec = codec[TSS]{
	parse: ParseTSS,
	put:   (*TSS).Append,
	text:  (*TSS).String,
	vectors: []vector[TSS]{
		{
			name: "without SSI", // refprov-tss-cluster-0rtt-stale 7
			bytes: `
				08/02    # type 1, SP 0, reserved, AN 0
				000001   # SDI
				0000     # epoch
				000000001001 # TSC`,
			want: TSS{SDI: 1, TSC: 0x1001},
			text: "TSS an=0 sdi=1 epoch=0 tsc=0x1001",
		},
		{
			name: "with SSI", // refprov-tss-cluster-ssi-v4 2
			bytes: `
				0d/02    # type 1, SP 1, reserved, AN 1
				000001   # SDI
				00000001 # SSI
				0000     # epoch
				000000000000 # TSC`,
			want: TSS{SP: true, AN: 1, SDI: 1, SSI: 1},
			text: "TSS an=1 sdi=1 ssi=0x1 epoch=0 tsc=0x0",
		},
		{
			name: "full fields", // layout
			bytes: `
				09/02    # type 1, SP 0, reserved, AN 1
				abcdef   # SDI
				1dc0     # epoch
				0123456789ab # TSC`,
			want: TSS{AN: 1, SDI: 0xabcdef, Epoch: 0x1dc0, TSC: 0x0123456789ab},
			text: "TSS an=1 sdi=11259375 epoch=7616 tsc=0x123456789ab",
		},
		{
			name: "full fields with SSI", // layout
			bytes: `
				0c/02    # type 1, SP 1, reserved, AN 0
				fedcba   # SDI
				89abcdef # SSI
				fffe     # epoch
				ffffffffffff # TSC, the greatest`,
			want: TSS{SP: true, SDI: 0xfedcba, SSI: 0x89abcdef, Epoch: 0xfffe, TSC: TSCMax},
			text: "TSS an=0 sdi=16702650 ssi=0x89abcdef epoch=65534 tsc=0xffffffffffff",
		},
	},
	most: []TSS{
		{SP: true, AN: 1, Epoch: 0xffff, SDI: 0xffffff, SSI: 0xffffffff, TSC: TSCMax},
		{AN: 1, Epoch: 0xffff, SDI: 0xffffff, TSC: TSCMax},
	},
	refused: []refusal{
		{"RUD", "11000001 0000 000000000000", Invalid{"security header", "type"}},
		{"type 0", "00000001 0000 000000000000", Invalid{"security header", "type"}},
		{"SSI announced, not there", "0c000001 0000 000000000000", Invalid{"security header", "length"}},
	},
	bugs: []bug[TSS]{
		{"AN", TSS{AN: 2}},
		{"SDI", TSS{SDI: 1 << 24}},
		{"TSC", TSS{TSC: TSCMax + 1}},
	},
}

func TestTSS(t *testing.T) { tssCodec.test(t) }
func FuzzTSS(f *testing.F) { tssCodec.fuzz(f) }

func TestTSSLen(t *testing.T) {
	for _, h := range []TSS{{}, {SP: true}} {
		if n := len(h.Append(nil)); n != h.Len() {
			t.Errorf("%v: %d bytes, Len says %d", h, n, h.Len())
		}
	}
	if ICVLen != 16 {
		t.Errorf("ICV of %d bytes", ICVLen)
	}
}
