package wire

import (
	"fmt"
	"testing"
)

// rendezvousCodec tests the rendezvous extension: UE 3.4.2.
var rendezvousCodec = codec[Rendezvous]{
	parse: ParseRendezvous,
	put:   (*Rendezvous).Append,
	text:  (*Rendezvous).String,
	vectors: []vector[Rendezvous]{
		{
			name: "eager part", // the last 24 bytes of a whole one
			bytes: `
				00001000 # eager_length 4096
				00       # read_ri_generation
				00b005   # read_pid_on_fep 0x00b, read_resource_index 0x005
				0000000000000000 # read_offset
				0000000000000055 # read_memory_key`,
			want: Rendezvous{EagerLen: 4096, ReadPIDonFEP: 0x00b, ReadRI: 5, ReadMatch: 0x55},
			text: "rendezvous eager=4096 read_gen=0 read_pid=11 read_ri=5 read_off=0x0 read_key=0x55",
		},
		{
			name: "full fields", // layout
			bytes: `
				fedcba98 # eager_length
				76       # read_ri_generation
				543210   # read_pid_on_fep 0x543, read_resource_index 0x210
				0123456789abcdef # read_offset
				8899aabbccddeeff # read_memory_key`,
			want: Rendezvous{0xfedcba98, 0x76, 0x543, 0x210, 0x0123456789abcdef, 0x8899aabbccddeeff},
			text: "rendezvous eager=4275878552 read_gen=118 read_pid=1347 read_ri=528 read_off=0x123456789abcdef read_key=0x8899aabbccddeeff",
		},
	},
	most: []Rendezvous{
		{0xffffffff, 0xff, 0xfff, 0xfff, 1<<64 - 1, 1<<64 - 1},
	},
	bugs: []bug[Rendezvous]{
		{"read_pid_on_fep", Rendezvous{ReadPIDonFEP: 0x1000}},
		{"read_resource_index", Rendezvous{ReadRI: 0x1000}},
	},
}

func TestRendezvous(t *testing.T) { rendezvousCodec.test(t) }
func FuzzRendezvous(f *testing.F) { rendezvousCodec.fuzz(f) }

// atomicCodec tests the atomic extension: UE 3.4.2.
var atomicCodec = codec[Atomic]{
	parse: ParseAtomic,
	put:   (*Atomic).Append,
	text:  (*Atomic).String,
	vectors: []vector[Atomic]{
		{
			name: "SUM",
			bytes: `
				02    # atomic_opcode SUM
				07    # datatype UINT64
				02/fc # semantic_control CPU_COHERENT
				00/ff # reserved`,
			want: Atomic{Op: AtomicSum, Type: Uint64, Control: AtomicCPUCoherent},
			text: "atomic SUM UINT64 control=0x2",
		},
		{
			name: "vendor", // layout: codes outside the tables are returned
			bytes: `
				fe    # atomic_opcode
				e0    # datatype
				03/fc # semantic_control CACHEABLE, CPU_COHERENT
				00/ff # reserved`,
			want: Atomic{Op: 0xfe, Type: 0xe0, Control: AtomicCacheable | AtomicCPUCoherent},
			text: "atomic atomic 254 datatype 224 control=0x3",
		},
	},
	most: []Atomic{
		{0xff, 0xff, 3},
	},
	bugs: []bug[Atomic]{{"control", Atomic{Control: 4}}},
}

func TestAtomic(t *testing.T) { atomicCodec.test(t) }
func FuzzAtomic(f *testing.F) { atomicCodec.fuzz(f) }

// cswapCodec tests the compare-and-swap extension: UE 3.4.2.
var cswapCodec = codec[CSwap]{
	parse: ParseCSwap,
	put:   (*CSwap).Append,
	text:  (*CSwap).String,
	vectors: []vector[CSwap]{
		{
			name: "UINT64",
			bytes: `
				0d    # atomic_opcode CSWAP
				07    # datatype UINT64
				02/fc # semantic_control CPU_COHERENT
				00/ff # reserved
				000000000000000000000000 0000000a  # compare value 10, to the right
				000000000000000000000000 00000014  # swap value 20, to the right`,
			want: CSwap{Atomic{AtomicCSwap, Uint64, AtomicCPUCoherent}, [16]byte{15: 10}, [16]byte{15: 20}},
			text: "atomic CSWAP UINT64 control=0x2 compare=0000000000000000000000000000000a swap=00000000000000000000000000000014",
		},
		{
			name: "full fields", // xdp2-test_uet 11, except its semantic byte
			bytes: `
				11    # atomic_opcode CSWAP_GE
				09    # datatype UINT128
				01/fc # semantic_control CACHEABLE
				00/ff # reserved
				000102030405060708090a0b0c0d0e0f # compare value
				0f0e0d0c0b0a09080706050403020100 # swap value`,
			want: CSwap{
				Atomic{AtomicCSwapGE, Uint128, AtomicCacheable},
				[16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, [16]byte{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
			},
			text: "atomic CSWAP_GE UINT128 control=0x1 compare=000102030405060708090a0b0c0d0e0f swap=0f0e0d0c0b0a09080706050403020100",
		},
	},
	bugs: []bug[CSwap]{{"control", CSwap{Atomic: Atomic{Control: 0x80}}}},
}

func TestCSwap(t *testing.T) { cswapCodec.test(t) }
func FuzzCSwap(f *testing.F) { cswapCodec.fuzz(f) }

// These operations carry a compare value.
func TestAtomicOpCompares(t *testing.T) {
	for op := range AtomicOp(255) {
		want := op >= 0x0d && op <= 0x13
		if op.Compares() != want {
			t.Errorf("%v compares: %t", op, !want)
		}
	}
}

// Sizes are in bytes. LONG_DOUBLE is that of the platforms where it has 16.
func TestAtomicTypeSize(t *testing.T) {
	for typ, want := range map[AtomicType]int{
		Int8: 1, Uint8: 1, Int16: 2, Uint16: 2, Int32: 4, Uint32: 4, Int64: 8, Uint64: 8, Int128: 16, Uint128: 16, Float: 4, Double: 8,
		FloatComplex: 8, DoubleComplex: 16, LongDouble: 16, LongDoubleComplex: 32, BF16: 2, FP16: 2, 0x12: 0, 0xe0: 0, 0xff: 0,
	} {
		if typ.Size() != want {
			t.Errorf("%v has %d bytes, want %d", typ, typ.Size(), want)
		}
	}
}

// Each opcode has the right extension.
func TestOpcodeExtensions(t *testing.T) {
	for op := range Opcode(64) {
		atomic := op == 0x03 || op == 0x04 || op == 0x0d || op == 0x0e
		rendezvous := op == 0x06 || op == 0x0a
		if op.HasAtomic() != atomic || op.HasRendezvous() != rendezvous {
			t.Errorf("%v: atomic %t, rendezvous %t", op, op.HasAtomic(), op.HasRendezvous())
		}
	}
}

// The extension is behind the 44 bytes of the standard header, and the operands are behind
// the extension.
func TestExtensionsBehindHeader(t *testing.T) {
	base := ReqStd{Flags: SESREL | SESEOM | SESSOM, JobID: 0x012345, PIDonFEP: 10, RI: 15, Initiator: 16}
	for _, c := range []struct {
		name, bytes string
		req         func(*ReqStd)
		ext         string
		data        string
	}{
		{
			"V12", `
			04 0b 01 06 00 01 23 45 00 0a 00 0f 00 00 00 00
			00 00 00 40 00 00 00 10 00 00 00 00 00 00 00 42
			00 00 00 00 00 00 00 00 00 00 00 08 02 07 02 00
			00 00 00 00 00 00 00 05`,
			func(r *ReqStd) { r.Opcode, r.MsgID, r.BufOff, r.Match, r.ReqLen = OpFetchAtomic, 0x0106, 0x40, 0x42, 8 },
			"atomic SUM UINT64 control=0x2", "0000000000000005",
		},
		{
			"V13", `
			04 0b 01 07 00 01 23 45 00 0a 00 0f 00 00 00 00
			00 00 00 40 00 00 00 10 00 00 00 00 00 00 00 42
			00 00 00 00 00 00 00 00 00 00 00 20 0d 07 02 00
			00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0a
			00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 14`,
			func(r *ReqStd) {
				r.Opcode, r.MsgID, r.BufOff, r.Match, r.ReqLen = OpFetchAtomic, 0x0107, 0x40, 0x42, 32
			},
			"atomic CSWAP UINT64 control=0x2 compare=0000000000000000000000000000000a swap=00000000000000000000000000000014", "",
		},
		{
			"V17", `
			0a 09 01 09 00 01 23 45 00 0a 00 0f 00 00 00 00
			00 00 00 00 00 00 00 10 00 00 00 00 ca fe 00 01
			00 00 00 00 00 00 00 00 00 01 86 a0 00 00 10 00
			00 00 b0 05 00 00 00 00 00 00 00 00 00 00 00 00
			00 00 00 55`,
			func(r *ReqStd) {
				r.Opcode, r.MsgID, r.Match, r.ReqLen = OpRendezvousTSend, 0x0109, 0xcafe0001, 100000
				r.Flags &^= SESEOM
			},
			"rendezvous eager=4096 read_gen=0 read_pid=11 read_ri=5 read_off=0x0 read_key=0x55", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := unhex(t, c.bytes)
			want := base
			c.req(&want)
			r, n, err := ParseReqStd(b)
			if err != nil || r != want {
				t.Fatalf("%v, %v\nwant %v", &r, err, &want)
			}
			var ext, data string
			switch {
			case r.Opcode.HasRendezvous():
				h, m, err := ParseRendezvous(b[n:])
				if err != nil {
					t.Fatal(err)
				}
				ext, data = h.String(), fmt.Sprintf("%x", b[n+m:])
			case AtomicOp(b[n]).Compares():
				h, m, err := ParseCSwap(b[n:])
				if err != nil {
					t.Fatal(err)
				}
				ext, data = h.String(), fmt.Sprintf("%x", b[n+m:])
			default:
				h, m, err := ParseAtomic(b[n:])
				if err != nil {
					t.Fatal(err)
				}
				ext, data = h.String(), fmt.Sprintf("%x", b[n+m:])
			}
			if ext != c.ext || data != c.data {
				t.Errorf("%s, data %q\nwant %s, %q", ext, data, c.ext, c.data)
			}
		})
	}
}
