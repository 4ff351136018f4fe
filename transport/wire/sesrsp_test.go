package wire

import "testing"

// rspCodec tests the response without data: UE 3.4.3.
var rspCodec = codec[Rsp]{
	parse: ParseRsp,
	put:   (*Rsp).Append,
	text:  (*Rsp).String,
	vectors: []vector[Rsp]{
		{
			name: "default OK",
			bytes: `
				00       # list 0 EXPECTED, opcode DEFAULT_RESPONSE
				01       # version 0, return_code OK
				0102     # message_id
				00       # ri_generation
				012345   # job_id
				000009c4 # modified_length 2500`,
			want: Rsp{RC: RCOK, MsgID: 0x0102, JobID: 0x012345, ModLen: 2500},
			text: "DEFAULT_RESPONSE list=0 rc=OK msg_id=0x102 gen=0 job=74565 mod_len=2500",
		},
		{
			name: "made by PDS",
			bytes: `
				00       # list 0 EXPECTED, opcode DEFAULT_RESPONSE
				00       # version 0, return_code NULL
				0102     # message_id
				00       # ri_generation
				000000   # job_id
				00000000 # modified_length`,
			want: Rsp{MsgID: 0x0102},
			text: "DEFAULT_RESPONSE list=0 rc=NULL msg_id=0x102 gen=0 job=0 mod_len=0",
		},
		{
			name: "generation",
			bytes: `
				01       # list 0 EXPECTED, opcode RESPONSE
				02       # version 0, return_code BAD_GENERATION
				0103     # message_id
				07       # ri_generation, the current one
				012345   # job_id
				00000000 # modified_length`,
			want: Rsp{Opcode: RspResponse, RC: RCBadGeneration, MsgID: 0x0103, Gen: 7, JobID: 0x012345},
			text: "RESPONSE list=0 rc=BAD_GENERATION msg_id=0x103 gen=7 job=74565 mod_len=0",
		},
		{
			name: "overflow",
			bytes: `
				41       # list 1 OVERFLOW, opcode RESPONSE
				01       # version 0, return_code OK
				0104     # message_id
				00       # ri_generation
				012345   # job_id
				00000000 # modified_length`,
			want: Rsp{List: ListOverflow, Opcode: RspResponse, RC: RCOK, MsgID: 0x0104, JobID: 0x012345},
			text: "RESPONSE list=1 rc=OK msg_id=0x104 gen=0 job=74565 mod_len=0",
		},
		{
			name: "full fields", // layout
			bytes: `
				bf       # list 2, opcode 0x3f: handed on
				3e       # version 0, return_code 0x3e
				fedc     # message_id
				ba       # ri_generation
				987654   # job_id
				3210fedc # modified_length`,
			want: Rsp{List: 2, Opcode: 0x3f, RC: 0x3e, MsgID: 0xfedc, Gen: 0xba, JobID: 0x987654, ModLen: 0x3210fedc},
			text: "response 63 list=2 rc=rc 0x3e msg_id=0xfedc gen=186 job=9991764 mod_len=839974620",
		},
	},
	most: []Rsp{
		{List: 3, Opcode: 0x3f, RC: 0x3f, Gen: 0xff, MsgID: 0xffff, JobID: 0xffffff, ModLen: 0xffffffff},
	},
	refused: []refusal{
		{"version", "00 41 0102 00 012345 000009c4", Invalid{"response", "version"}},
		{"with data", "c2 09 1234 99 654321 09abcdef", Invalid{"response", "opcode"}}, // xdp2-uet_ses 13
	},
	bugs: []bug[Rsp]{
		{"list", Rsp{List: 4}},
		{"opcode", Rsp{Opcode: 0x40}},
		{"with data", Rsp{Opcode: RspWithData}},
		{"return_code", Rsp{RC: 0x40}},
		{"job_id", Rsp{JobID: 1 << 24}},
	},
}

func TestRsp(t *testing.T) { rspCodec.test(t) }
func FuzzRsp(f *testing.F) { rspCodec.fuzz(f) }

// rspDataCodec tests the response with data: UE 3.4.3.
var rspDataCodec = codec[RspData]{
	parse: ParseRspData,
	put:   (*RspData).Append,
	text:  (*RspData).String,
	vectors: []vector[RspData]{
		{
			name: "OK",
			bytes: `
				02       # list 0 EXPECTED, opcode RESPONSE_W_DATA
				01       # version 0, return_code OK
				0105     # response_message_id
				00/ff    # reserved
				012345   # job_id
				0105     # read_request_message_id
				0008/c000 # payload_length 8
				00000008 # modified_length 8
				00000000 # message_offset 0`,
			want: RspData{Opcode: RspWithData, RC: RCOK, MsgID: 0x0105, JobID: 0x012345, ReadMsgID: 0x0105, PayloadLen: 8, ModLen: 8},
			text: "RESPONSE_W_DATA list=0 rc=OK msg_id=0x105 job=74565 read_msg_id=0x105 payload_len=8 mod_len=8 msg_off=0",
		},
		{
			name: "full fields", // layout, after xdp2-test_uet 14
			bytes: `
				42       # list 1 OVERFLOW, opcode RESPONSE_W_DATA
				24       # version 0, return_code DROPPED
				fedc     # response_message_id
				00/ff    # reserved
				987654   # job_id
				3210     # read_request_message_id
				3edc/c000 # payload_length
				ba987654 # modified_length
				89abcdef # message_offset`,
			want: RspData{
				List: ListOverflow, Opcode: RspWithData, RC: RCDropped, MsgID: 0xfedc, JobID: 0x987654, ReadMsgID: 0x3210, PayloadLen: 0x3edc,
				ModLen: 0xba987654, MsgOff: 0x89abcdef,
			},
			text: "RESPONSE_W_DATA list=1 rc=DROPPED msg_id=0xfedc job=9991764 read_msg_id=0x3210 payload_len=16092 mod_len=3130553940 msg_off=2309737967",
		},
	},
	most: []RspData{
		{
			List: 3, Opcode: RspWithData, RC: 0x3f, MsgID: 0xffff, JobID: 0xffffff, ReadMsgID: 0xffff, PayloadLen: 0x3fff, ModLen: 0xffffffff,
			MsgOff: 0xffffffff,
		},
	},
	refused: []refusal{
		{"version", "02 81 0105 00 012345 0105 0008 00000008 00000000", Invalid{"response with data", "version"}},
		{"without data", "00 01 0105 00 012345 0105 0008 00000008 00000000", Invalid{"response with data", "opcode"}},
		{"reserved opcode", "04 01 0105 00 012345 0105 0008 00000008 00000000", Invalid{"response with data", "opcode"}},
	},
	bugs: []bug[RspData]{
		{"list", RspData{List: 4, Opcode: RspWithData}},
		{"opcode", RspData{Opcode: RspDefault}},
		{"return_code", RspData{Opcode: RspWithData, RC: 0x40}},
		{"job_id", RspData{Opcode: RspWithData, JobID: 1 << 24}},
		{"payload_length", RspData{Opcode: RspWithData, PayloadLen: 0x4000}},
	},
}

func TestRspData(t *testing.T) { rspDataCodec.test(t) }
func FuzzRspData(f *testing.F) { rspDataCodec.fuzz(f) }

// rspDataSmallCodec tests the optimized response with data: UE 3.4.3.
var rspDataSmallCodec = codec[RspDataSmall]{
	parse: ParseRspDataSmall,
	put:   (*RspDataSmall).Append,
	text:  (*RspDataSmall).String,
	vectors: []vector[RspDataSmall]{
		{
			name: "OK",
			bytes: `
				02       # list 0 EXPECTED, opcode RESPONSE_W_DATA
				01       # version 0, return_code OK
				0010/c000 # payload_length 16
				00/ff    # reserved
				012345   # job_id
				00010010 # original_request_psn`,
			want: RspDataSmall{Opcode: RspWithData, RC: RCOK, PayloadLen: 16, JobID: 0x012345, ReqPSN: 0x00010010},
			text: "RESPONSE_W_DATA list=0 rc=OK payload_len=16 job=74565 req_psn=0x10010",
		},
		{
			name: "full fields", // xdp2-test_uet 15, except job_id
			bytes: `
				42       # list 1 OVERFLOW, opcode RESPONSE_W_DATA
				05       # version 0, return_code NO_MATCH
				3456/c000 # payload_length
				00/ff    # reserved
				987654   # job_id
				2346789a # original_request_psn`,
			want: RspDataSmall{List: ListOverflow, Opcode: RspWithData, RC: RCNoMatch, PayloadLen: 0x3456, JobID: 0x987654, ReqPSN: 0x2346789a},
			text: "RESPONSE_W_DATA list=1 rc=NO_MATCH payload_len=13398 job=9991764 req_psn=0x2346789a",
		},
	},
	most: []RspDataSmall{
		{List: 3, Opcode: RspWithData, RC: 0x3f, PayloadLen: 0x3fff, JobID: 0xffffff, ReqPSN: 0xffffffff},
	},
	refused: []refusal{
		{"version", "02 c1 0010 00 012345 00010010", Invalid{"small response with data", "version"}},
		{"without data", "01 01 0010 00 012345 00010010", Invalid{"small response with data", "opcode"}},
	},
	bugs: []bug[RspDataSmall]{
		{"list", RspDataSmall{List: 4, Opcode: RspWithData}},
		{"opcode", RspDataSmall{Opcode: RspNone}},
		{"return_code", RspDataSmall{Opcode: RspWithData, RC: 0x40}},
		{"job_id", RspDataSmall{Opcode: RspWithData, JobID: 1 << 24}},
		{"payload_length", RspDataSmall{Opcode: RspWithData, PayloadLen: 0x4000}},
	},
}

func TestRspDataSmall(t *testing.T) { rspDataSmallCodec.test(t) }
func FuzzRspDataSmall(f *testing.F) { rspDataSmallCodec.fuzz(f) }
