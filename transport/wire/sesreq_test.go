package wire

import "testing"

// reqStdCodec tests the standard request: UE 3.4.2.
var reqStdCodec = codec[ReqStd]{
	parse: ParseReqStd,
	put:   (*ReqStd).Append,
	text:  (*ReqStd).String,
	vectors: []vector[ReqStd]{
		{
			name: "first packet",
			bytes: `
				01/c0    # opcode WRITE
				2d       # version 0, DC+REL+HD+SOM
				0102     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				0000000000001000 # buffer_offset
				00000010 # initiator
				8000000000000042 # memory_key
				1122334455667788 # header_data
				000009c4 # request_length`,
			want: ReqStd{
				Opcode: OpWrite, Flags: SESDC | SESREL | SESHD | SESSOM, MsgID: 0x0102, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 0x1000,
				Initiator: 16, Match: 0x8000000000000042, HeaderData: 0x1122334455667788, ReqLen: 2500,
			},
			text: "WRITE DC+REL+HD+SOM msg_id=0x102 gen=0 job=74565 pid=10 ri=15 buf_off=0x1000 initiator=16 match/key=0x8000000000000042 " +
				"hdr_data=0x1122334455667788 req_len=2500",
		},
		{
			name: "middle packet",
			bytes: `
				01/c0    # opcode WRITE
				28/04    # version 0, DC+REL; HD means nothing without SOM
				0102     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				0000000000001000 # buffer_offset
				00000010 # initiator
				8000000000000042 # memory_key
				0000/ffff # reserved
				0400/c000 # payload_length 1024
				00000400 # message_offset 1024
				000009c4 # request_length`,
			want: ReqStd{
				Opcode: OpWrite, Flags: SESDC | SESREL, MsgID: 0x0102, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 0x1000, Initiator: 16,
				Match: 0x8000000000000042, PayloadLen: 1024, MsgOff: 1024, ReqLen: 2500,
			},
			text: "WRITE DC+REL msg_id=0x102 gen=0 job=74565 pid=10 ri=15 buf_off=0x1000 initiator=16 match/key=0x8000000000000042 " +
				"payload_len=1024 msg_off=1024 req_len=2500",
		},
		{
			name: "last packet",
			bytes: `
				01/c0    # opcode WRITE
				2a/04    # version 0, DC+REL+EOM; HD means nothing without SOM
				0102     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				0000000000001000 # buffer_offset
				00000010 # initiator
				8000000000000042 # memory_key
				0000/ffff # reserved
				01c4/c000 # payload_length 452
				00000800 # message_offset 2048
				000009c4 # request_length`,
			want: ReqStd{
				Opcode: OpWrite, Flags: SESDC | SESREL | SESEOM, MsgID: 0x0102, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 0x1000, Initiator: 16,
				Match: 0x8000000000000042, PayloadLen: 452, MsgOff: 2048, ReqLen: 2500,
			},
			text: "WRITE DC+REL+EOM msg_id=0x102 gen=0 job=74565 pid=10 ri=15 buf_off=0x1000 initiator=16 match/key=0x8000000000000042 " +
				"payload_len=452 msg_off=2048 req_len=2500",
		},
		{
			name: "full fields", // layout
			bytes: `
				3f/c0    # opcode 0x3f, extended: handed on
				3f       # version 0, all flags
				fedc     # message_id
				ba       # ri_generation
				987654   # job_id
				0321/f000 # pid_on_fep
				0fed/f000 # resource_index
				cba9876543210fed # buffer_offset
				cba98765 # initiator
				43210fedcba98765 # match_bits
				4321fedcba987654 # header_data
				3210fedc # request_length`,
			want: ReqStd{
				Opcode: 0x3f, Flags: SESDC | SESIE | SESREL | SESHD | SESEOM | SESSOM, MsgID: 0xfedc, Gen: 0xba, JobID: 0x987654, PIDonFEP: 0x321, RI: 0xfed,
				BufOff: 0xcba9876543210fed, Initiator: 0xcba98765, Match: 0x43210fedcba98765, HeaderData: 0x4321fedcba987654, ReqLen: 0x3210fedc,
			},
			text: "opcode 63 DC+IE+REL+HD+EOM+SOM msg_id=0xfedc gen=186 job=9991764 pid=801 ri=4077 buf_off=0xcba9876543210fed initiator=3416885093 " +
				"match/key=0x43210fedcba98765 hdr_data=0x4321fedcba987654 req_len=839974620",
		},
		{
			name: "deferrable",
			bytes: `
				0b/c0    # opcode DEFERRABLE_TSEND
				09       # version 0, REL+SOM
				0108     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				00000001 # initiator_restart_token
				00000000 # target_restart_token
				00000010 # initiator
				00000000cafe0001 # match_bits
				0000000000000000 # header_data
				00002328 # request_length`,
			want: ReqStd{
				Opcode: OpDeferrableTSend, Flags: SESREL | SESSOM, MsgID: 0x0108, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 1 << 32, Initiator: 16,
				Match: 0xcafe0001, ReqLen: 9000,
			},
			text: "DEFERRABLE_TSEND REL+SOM msg_id=0x108 gen=0 job=74565 pid=10 ri=15 buf_off=0x100000000 initiator=16 match/key=0xcafe0001 " +
				"hdr_data=0x0 req_len=9000",
		},
		{
			name: "ready to restart",
			bytes: `
				0c/c0    # opcode DEFERRABLE_RTR
				0b       # version 0, REL+EOM+SOM
				0201     # message_id
				00       # ri_generation
				012345   # job_id
				0000/f000 # pid_on_fep
				0000/f000 # resource_index
				0000000000000000 # buffer_offset
				00000010 # initiator
				00000001 # initiator restart token
				00000001 # target restart token
				0000000000000000 # header_data
				00000000 # request_length`,
			want: ReqStd{
				Opcode: OpDeferrableRTR, Flags: SESREL | SESEOM | SESSOM, MsgID: 0x0201, JobID: 0x012345, Initiator: 16, Match: 1<<32 | 1,
			},
			text: "DEFERRABLE_RTR REL+EOM+SOM msg_id=0x201 gen=0 job=74565 pid=0 ri=0 buf_off=0x0 initiator=16 match/key=0x100000001 " +
				"hdr_data=0x0 req_len=0",
		},
		{
			name: "restart",
			bytes: `
				0b/c0    # opcode DEFERRABLE_TSEND
				09       # version 0, REL+SOM
				0108     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				00000001 # initiator_restart_token
				00000001 # target_restart_token
				00000010 # initiator
				00000000cafe0001 # match_bits
				0000000000000000 # header_data
				00002328 # request_length`,
			want: ReqStd{
				Opcode: OpDeferrableTSend, Flags: SESREL | SESSOM, MsgID: 0x0108, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 1<<32 | 1, Initiator: 16,
				Match: 0xcafe0001, ReqLen: 9000,
			},
			text: "DEFERRABLE_TSEND REL+SOM msg_id=0x108 gen=0 job=74565 pid=10 ri=15 buf_off=0x100000001 initiator=16 match/key=0xcafe0001 " +
				"hdr_data=0x0 req_len=9000",
		},
		{
			name: "message error",
			bytes: `
				0f/c0    # opcode MSG_ERROR
				1a/04    # version 0, IE+REL+EOM; HD means nothing without SOM
				0102     # message_id
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				0000000000001000 # buffer_offset
				00000010 # initiator
				8000000000000042 # memory_key
				0000/ffff # reserved
				0000/c000 # payload_length 0
				00000400 # message_offset 1024
				000009c4 # request_length`,
			want: ReqStd{
				Opcode: OpMsgError, Flags: SESIE | SESREL | SESEOM, MsgID: 0x0102, JobID: 0x012345, PIDonFEP: 10, RI: 15, BufOff: 0x1000, Initiator: 16,
				Match: 0x8000000000000042, MsgOff: 1024, ReqLen: 2500,
			},
			text: "MSG_ERROR IE+REL+EOM msg_id=0x102 gen=0 job=74565 pid=10 ri=15 buf_off=0x1000 initiator=16 match/key=0x8000000000000042 " +
				"payload_len=0 msg_off=1024 req_len=2500",
		},
	},
	most: []ReqStd{
		{
			Opcode: 0x3f, Flags: 0x3f, Gen: 0xff, MsgID: 0xffff, PIDonFEP: 0xfff, RI: 0xfff, JobID: 0xffffff, Initiator: 0xffffffff, BufOff: 1<<64 - 1,
			Match: 1<<64 - 1, HeaderData: 1<<64 - 1, ReqLen: 0xffffffff,
		},
		{Opcode: OpSend, Flags: SESEOM, PayloadLen: 0x3fff, MsgOff: 0xffffffff},
	},
	refused: []refusal{
		{
			"version 1", // S-HDR-06
			"05 43 0001 00 000001 0000 000f 0000000000000000 00000010 0000000000000000 0000000000000000 00000000",
			Invalid{"standard request", "version"},
		},
		{
			"version 2",
			"05 83 0001 00 000001 0000 000f 0000000000000000 00000010 0000000000000000 0000000000000000 00000000",
			Invalid{"standard request", "version"},
		},
		{
			"40 bytes", // xdp2-test_uet 8
			"0625 04d2 ea 08aa52 0432 0765 1234567812345678 12345678 1234567887654321 9988776663345123",
			Invalid{"standard request", "length"},
		},
	},
	bugs: []bug[ReqStd]{
		{"opcode", ReqStd{Opcode: 0x40}},
		{"flags", ReqStd{Flags: 0x40}},
		{"job_id", ReqStd{JobID: 1 << 24}},
		{"pid_on_fep", ReqStd{PIDonFEP: 0x1000}},
		{"resource_index", ReqStd{RI: 0x1000}},
		{"payload_length", ReqStd{PayloadLen: 0x4000}},
	},
}

func TestReqStd(t *testing.T) { reqStdCodec.test(t) }
func FuzzReqStd(f *testing.F) { reqStdCodec.fuzz(f) }

// HD is sent as 0 in all packets but the first.
func TestReqStdHDWithoutSOM(t *testing.T) {
	r := ReqStd{Opcode: OpSend, Flags: SESHD | SESEOM, HeaderData: 7, PayloadLen: 1}
	if b := r.Append(nil); b[1] != byte(SESEOM) || b[stdHD+7] != 0 {
		t.Errorf("HD is sent without SOM: %x", b)
	}
}

// The tokens of deferrable sends are in place of the buffer offset and of the match bits.
func TestReqStdTokens(t *testing.T) {
	var r ReqStd
	r.SetRestartTokens(0x87654321, 0x12345678) // xdp2-uet_ses 3
	if i, g := r.RestartTokens(); r.BufOff != 0x8765432112345678 || i != 0x87654321 || g != 0x12345678 {
		t.Errorf("restart tokens %#x %#x in buffer offset %#x", i, g, r.BufOff)
	}
	r = ReqStd{}
	r.SetRTRTokens(0x87654321, 0x12345678) // xdp2-uet_ses 4
	if i, g := r.RTRTokens(); r.Match != 0x8765432112345678 || i != 0x87654321 || g != 0x12345678 {
		t.Errorf("ready-to-restart tokens %#x %#x in match bits %#x", i, g, r.Match)
	}
}

// reqMediumCodec tests the medium request: UE 3.4.2.
var reqMediumCodec = codec[ReqMedium]{
	parse: ParseReqMedium,
	put:   (*ReqMedium).Append,
	text:  (*ReqMedium).String,
	vectors: []vector[ReqMedium]{
		{
			name: "header data",
			bytes: `
				09/c0    # opcode TAGGED_SEND
				0f       # version 0, REL+HD+EOM+SOM
				012c/c000 # request_length 300
				00       # ri_generation
				012345   # job_id
				000a/f000 # pid_on_fep
				000f/f000 # resource_index
				00000000deadbeef # header_data
				00000010 # initiator
				00000000cafe0001 # match_bits`,
			want: ReqMedium{
				Opcode: OpTaggedSend, Flags: SESREL | SESHD | SESEOM | SESSOM, ReqLen: 300, JobID: 0x012345, PIDonFEP: 10, RI: 15, HeaderData: 0xdeadbeef,
				Initiator: 16, Match: 0xcafe0001,
			},
			text: "TAGGED_SEND REL+HD+EOM+SOM gen=0 job=74565 pid=10 ri=15 hdr_data=0xdeadbeef initiator=16 match/key=0xcafe0001 req_len=300",
		},
		{
			name: "buffer offset", // xdp2-uet_ses 7
			bytes: `
				01/c0    # opcode WRITE
				2b       # version 0, DC+REL+EOM+SOM
				1234/c000 # request_length
				77       # ri_generation
				abcdef   # job_id
				0678/f000 # pid_on_fep
				09ab/f000 # resource_index
				9876543298765432 # buffer_offset
				87654321 # initiator
				ccbbddeeff009988 # memory_key`,
			want: ReqMedium{
				Opcode: OpWrite, Flags: SESDC | SESREL | SESEOM | SESSOM, ReqLen: 0x1234, Gen: 0x77, JobID: 0xabcdef, PIDonFEP: 0x678, RI: 0x9ab,
				BufOff: 0x9876543298765432, Initiator: 0x87654321, Match: 0xccbbddeeff009988,
			},
			text: "WRITE DC+REL+EOM+SOM gen=119 job=11259375 pid=1656 ri=2475 buf_off=0x9876543298765432 initiator=2271560481 " +
				"match/key=0xccbbddeeff009988 req_len=4660",
		},
		{
			name: "full fields", // layout
			bytes: `
				3e/c0    # opcode 0x3e, vendor: handed on
				3f       # version 0, all flags
				3edc/c000 # request_length
				ba       # ri_generation
				987654   # job_id
				0321/f000 # pid_on_fep
				0fed/f000 # resource_index
				cba9876543210fed # header_data
				cba98765 # initiator
				43210fedcba98765 # match_bits`,
			want: ReqMedium{
				Opcode: 0x3e, Flags: SESDC | SESIE | SESREL | SESHD | SESEOM | SESSOM, ReqLen: 0x3edc, Gen: 0xba, JobID: 0x987654, PIDonFEP: 0x321,
				RI: 0xfed, HeaderData: 0xcba9876543210fed, Initiator: 0xcba98765, Match: 0x43210fedcba98765,
			},
			text: "opcode 62 DC+IE+REL+HD+EOM+SOM gen=186 job=9991764 pid=801 ri=4077 hdr_data=0xcba9876543210fed initiator=3416885093 " +
				"match/key=0x43210fedcba98765 req_len=16092",
		},
	},
	most: []ReqMedium{
		{
			Opcode: 0x3f, Flags: 0x3f, Gen: 0xff, ReqLen: 0x3fff, PIDonFEP: 0xfff, RI: 0xfff, JobID: 0xffffff, Initiator: 0xffffffff,
			HeaderData: 1<<64 - 1, Match: 1<<64 - 1,
		},
	},
	refused: []refusal{
		{"version", "05 c3 0001 00 000001 0000 000f 0000000000000000 00000010 0000000000000000", Invalid{"medium request", "version"}},
		// S-HDR-07; xdp2-test_uet 10.
		{"SOM without EOM", "01 25 04d2 ea 08aa52 0432 0765 abcdef9876543210 98765432 123456789abcdef0", Invalid{"medium request", "SOM/EOM"}},
		{"EOM without SOM", "01 26 04d2 ea 08aa52 0432 0765 abcdef9876543210 98765432 123456789abcdef0", Invalid{"medium request", "SOM/EOM"}},
	},
	bugs: []bug[ReqMedium]{
		{"opcode", ReqMedium{Opcode: 0x40}},
		{"flags", ReqMedium{Flags: 0x80}},
		{"request_length", ReqMedium{ReqLen: 0x4000}},
		{"job_id", ReqMedium{JobID: 1 << 24}},
		{"pid_on_fep", ReqMedium{PIDonFEP: 0x1000}},
		{"resource_index", ReqMedium{RI: 0x1000}},
	},
}

func TestReqMedium(t *testing.T) { reqMediumCodec.test(t) }
func FuzzReqMedium(f *testing.F) { reqMediumCodec.fuzz(f) }

// reqSmallCodec tests the small request: UE 3.4.2.
var reqSmallCodec = codec[ReqSmall]{
	parse: ParseReqSmall,
	put:   (*ReqSmall).Append,
	text:  (*ReqSmall).String,
	vectors: []vector[ReqSmall]{
		{
			name: "absolute",
			bytes: `
				01/c0    # opcode WRITE
				03/04    # version 0, EOM+SOM; HD is reserved
				0040/c000 # request_length 64
				00       # ri_generation
				000000   # job_id
				0003/f000 # pid_on_fep
				0123/f000 # resource_index
				0000000000000200 # buffer_offset`,
			want: ReqSmall{Opcode: OpWrite, Flags: SESEOM | SESSOM, ReqLen: 64, PIDonFEP: 3, RI: 0x123, BufOff: 0x200},
			text: "WRITE EOM+SOM gen=0 job=0 pid=3 ri=291 buf_off=0x200 req_len=64",
		},
		{
			name: "relative", // xdp2-uet_ses 10, IE added
			bytes: `
				02/c0    # opcode READ
				3b/04    # version 0, DC+IE+REL+EOM+SOM; HD is reserved
				1234/c000 # request_length
				77       # ri_generation
				abcdef   # job_id
				0678/f000 # pid_on_fep
				09ab/f000 # resource_index
				9876543298765432 # buffer_offset`,
			want: ReqSmall{
				Opcode: OpRead, Flags: SESDC | SESIE | SESREL | SESEOM | SESSOM, ReqLen: 0x1234, Gen: 0x77, JobID: 0xabcdef, PIDonFEP: 0x678, RI: 0x9ab,
				BufOff: 0x9876543298765432,
			},
			text: "READ DC+IE+REL+EOM+SOM gen=119 job=11259375 pid=1656 ri=2475 buf_off=0x9876543298765432 req_len=4660",
		},
	},
	most: []ReqSmall{
		{Opcode: 0x3f, Flags: 0x3f &^ SESHD, Gen: 0xff, ReqLen: 0x3fff, PIDonFEP: 0xfff, RI: 0xfff, JobID: 0xffffff, BufOff: 1<<64 - 1},
	},
	refused: []refusal{
		{"version", "01 43 0040 00 000000 0003 0123 0000000000000200", Invalid{"small request", "version"}},
		// S-HDR-07; xdp2-test_uet 9.
		{"SOM without EOM", "02 25 04d2 ea 08aa52 0432 0765 abcdef9876543210", Invalid{"small request", "SOM/EOM"}},
		{"EOM without SOM", "02 26 04d2 ea 08aa52 0432 0765 abcdef9876543210", Invalid{"small request", "SOM/EOM"}},
	},
	bugs: []bug[ReqSmall]{
		{"opcode", ReqSmall{Opcode: 0x40}},
		{"flags", ReqSmall{Flags: 0x40}},
		{"HD", ReqSmall{Flags: SESHD}},
		{"request_length", ReqSmall{ReqLen: 0x4000}},
		{"job_id", ReqSmall{JobID: 1 << 24}},
		{"pid_on_fep", ReqSmall{PIDonFEP: 0x1000}},
		{"resource_index", ReqSmall{RI: 0x1000}},
	},
}

func TestReqSmall(t *testing.T) { reqSmallCodec.test(t) }
func FuzzReqSmall(f *testing.F) { reqSmallCodec.fuzz(f) }
