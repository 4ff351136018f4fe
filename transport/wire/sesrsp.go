package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// RspOpcode is an SES response opcode, 6 bits (UE 3.4.3).
type RspOpcode uint8

// The response opcodes.
const (
	RspDefault  RspOpcode = 0 // success or nothing to report; one ACK may stand for many
	RspResponse RspOpcode = 1 // must not be lost
	RspWithData RspOpcode = 2 // with read data or an old value
	RspNone     RspOpcode = 3 // the result comes later
)

var rspNames = [...]string{"DEFAULT_RESPONSE", "RESPONSE", "RESPONSE_W_DATA", "NO_RESPONSE"}

func (o RspOpcode) String() string { return name(rspNames[:], int(o), "response") }

// List says which list of receives a message matched, 2 bits (UE 3.4.3).
type List uint8

// The lists.
const (
	ListExpected List = 0 // a receive matched, or none is needed
	ListOverflow List = 1 // no receive matched, and the message is kept
)

// RC is an SES return code, 6 bits (UE 3.4.3).
type RC uint8

// The return codes.
const (
	RCNull               RC = iota // no statement about the message
	RCOK                           // executed
	RCBadGeneration                // the RI has another generation, which is in the response
	RCDisabled                     // the RI is disabled
	RCDisabledGen                  // the RI is disabled for lack of resources
	RCNoMatch                      // no receive matches
	RCUnsupportedOp                // opcode not supported
	RCUnsupportedSize              // length not supported
	RCATInvalid                    // address translation: invalid
	RCATPerm                       // address translation: no permission
	RCATATSError                   // address translation service failed
	RCATNoTrans                    // no address translation
	RCATOutOfRange                 // address translation: out of range
	RCHostPoisoned                 // host memory is poisoned
	RCHostUnsuccessCmpl            // host access failed
	RCAMOUnsupportedOp             // atomic operation not supported
	RCAMOUnsupportedDT             // atomic datatype not supported
	RCAMOUnsupportedSize           // atomic length not supported
	RCAMOUnaligned                 // atomic address not aligned
	RCAMOFPNaN                     // floating point: NaN
	RCAMOFPUnderflow               // floating point: underflow
	RCAMOFPOverflow                // floating point: overflow
	RCAMOFPInexact                 // floating point: inexact
	RCPermViolation                // the requester has no permission
	RCOpViolation                  // the operation is not permitted here, or malformed
	RCBadIndex                     // no such RI
	RCBadPID                       // no such PIDonFEP
	RCBadJobID                     // no such JobID
	RCBadMKey                      // no such memory key
	RCBadAddr                      // outside the memory region
	RCCancelled                    // cancelled by the target
	RCUndeliverable                // could not be delivered
	RCUncor                        // uncorrectable error
	RCUncorTrnsnt                  // transient uncorrectable error: a retry may work
	RCTooLong                      // longer than its buffer
	RCInitiatorError               // the initiator declared its data bad
	RCDropped                      // dropped by the target
)

var rcNames = [...]string{"NULL", "OK", "BAD_GENERATION", "DISABLED", "DISABLED_GEN", "NO_MATCH", "UNSUPPORTED_OP", "UNSUPPORTED_SIZE",
	"AT_INVALID", "AT_PERM", "AT_ATS_ERROR", "AT_NO_TRANS", "AT_OUT_OF_RANGE", "HOST_POISONED", "HOST_UNSUCCESS_CMPL",
	"AMO_UNSUPPORTED_OP", "AMO_UNSUPPORTED_DT", "AMO_UNSUPPORTED_SIZE", "AMO_UNALIGNED", "AMO_FP_NAN", "AMO_FP_UNDERFLOW",
	"AMO_FP_OVERFLOW", "AMO_FP_INEXACT", "PERM_VIOLATION", "OP_VIOLATION", "BAD_INDEX", "BAD_PID", "BAD_JOB_ID", "BAD_MKEY",
	"BAD_ADDR", "CANCELLED", "UNDELIVERABLE", "UNCOR", "UNCOR_TRNSNT", "TOO_LONG", "INITIATOR_ERROR", "DROPPED"}

func (c RC) String() string {
	if int(c) < len(rcNames) {
		return rcNames[c]
	}
	return "rc 0x" + strconv.FormatUint(uint64(c), 16)
}

// Response without data, 12 bytes: UE 3.4.3.
const RspLen = 12 // bytes: list:2 opcode:6 ver:2 rc:6 msg_id:16 ri_gen:8 job_id:24 modified_length:32

var (
	errRspLen     = &Invalid{"response", "length"}
	errRspVersion = &Invalid{"response", "version"}
	errRspOpcode  = &Invalid{"response", "opcode"}
)

// A Rsp is the header of a response without data.
type Rsp struct {
	List   List
	Opcode RspOpcode
	RC     RC
	Gen    uint8
	MsgID  uint16
	JobID  uint32 // 24 bit
	ModLen uint32
}

// ParseRsp decodes the header at the front of b and reports the bytes read. An opcode that
// announces data is an error.
func ParseRsp(b []byte) (r Rsp, n int, err error) {
	n, err = r.Parse(b)
	return r, n, err
}

// Parse is ParseRsp into r. After an error r is unchanged.
func (r *Rsp) Parse(b []byte) (int, error) {
	if len(b) < RspLen {
		return 0, errRspLen
	}
	list, rc := b[0], b[1]
	if rc>>6 != 0 {
		return 0, errRspVersion
	}
	op := RspOpcode(list & 0x3f)
	if op == RspWithData {
		return 0, errRspOpcode
	}
	j := binary.BigEndian.Uint32(b[4:])
	r.List, r.Opcode, r.RC, r.MsgID = List(list>>6), op, RC(rc), binary.BigEndian.Uint16(b[2:])
	r.Gen, r.JobID, r.ModLen = uint8(j>>24), j&0xffffff, binary.BigEndian.Uint32(b[8:])
	return RspLen, nil
}

// Set copies o to r, field by field.
func (r *Rsp) Set(o *Rsp) {
	r.List, r.Opcode, r.RC, r.Gen, r.MsgID, r.JobID, r.ModLen = o.List, o.Opcode, o.RC, o.Gen, o.MsgID, o.JobID, o.ModLen
}

// Append appends the header to b. It panics if a field is out of range.
func (r *Rsp) Append(b []byte) []byte {
	b, tail := extend(b, RspLen)
	r.put((*[RspLen]byte)(tail))
	return b
}

// put writes the header to h.
func (r *Rsp) put(h *[RspLen]byte) {
	if r.List > 3 || uint8(r.Opcode)|uint8(r.RC) > 0x3f || r.Opcode == RspWithData || r.JobID > 0xffffff {
		panic("BUG: wire: response field out of range")
	}
	binary.BigEndian.PutUint64(h[:], uint64(r.List)<<62|uint64(r.Opcode)<<56|uint64(r.RC)<<48|uint64(r.MsgID)<<32|uint64(r.Gen)<<24|uint64(r.JobID))
	binary.BigEndian.PutUint32(h[8:], r.ModLen)
}

func (r *Rsp) String() string {
	return fmt.Sprintf("%v list=%d rc=%v msg_id=%#x gen=%d job=%d mod_len=%d", r.Opcode, r.List, r.RC, r.MsgID, r.Gen, r.JobID, r.ModLen)
}

// Response with data, 20 bytes: UE 3.4.3.
const RspDataLen = 20 // bytes

var (
	errRspDataLen     = &Invalid{"response with data", "length"}
	errRspDataVersion = &Invalid{"response with data", "version"}
	errRspDataOpcode  = &Invalid{"response with data", "opcode"}
)

// A RspData is the header of a response with data.
type RspData struct {
	List       List
	Opcode     RspOpcode // RspWithData
	RC         RC
	MsgID      uint16 // response_message_id
	JobID      uint32 // 24 bit
	ReadMsgID  uint16 // read_request_message_id
	PayloadLen uint16 // 14 bit
	ModLen     uint32
	MsgOff     uint32
}

// ParseRspData decodes the header at the front of b and reports the bytes read. An opcode
// other than RspWithData is an error.
func ParseRspData(b []byte) (RspData, int, error) {
	if len(b) < RspDataLen {
		return RspData{}, 0, errRspDataLen
	}
	if b[1]>>6 != 0 {
		return RspData{}, 0, errRspDataVersion
	}
	if RspOpcode(b[0]&0x3f) != RspWithData {
		return RspData{}, 0, errRspDataOpcode
	}
	return RspData{List: List(b[0] >> 6), Opcode: RspWithData, RC: RC(b[1] & 0x3f), MsgID: binary.BigEndian.Uint16(b[2:]),
		JobID: binary.BigEndian.Uint32(b[4:]) & 0xffffff, ReadMsgID: binary.BigEndian.Uint16(b[8:]),
		PayloadLen: binary.BigEndian.Uint16(b[10:]) & 0x3fff, ModLen: binary.BigEndian.Uint32(b[12:]),
		MsgOff: binary.BigEndian.Uint32(b[16:])}, RspDataLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r RspData) Append(b []byte) []byte {
	if r.List > 3 || r.Opcode != RspWithData || r.RC > 0x3f || r.JobID > 0xffffff || r.PayloadLen > 0x3fff {
		panic("BUG: wire: response field out of range")
	}
	b = append(b, byte(r.List)<<6|byte(r.Opcode), byte(r.RC))
	b = binary.BigEndian.AppendUint16(b, r.MsgID)
	b = binary.BigEndian.AppendUint32(b, r.JobID)
	b = binary.BigEndian.AppendUint16(b, r.ReadMsgID)
	b = binary.BigEndian.AppendUint16(b, r.PayloadLen)
	b = binary.BigEndian.AppendUint32(b, r.ModLen)
	return binary.BigEndian.AppendUint32(b, r.MsgOff)
}

func (r RspData) String() string {
	return fmt.Sprintf("%v list=%d rc=%v msg_id=%#x job=%d read_msg_id=%#x payload_len=%d mod_len=%d msg_off=%d", r.Opcode, r.List, r.RC, r.MsgID, r.JobID, r.ReadMsgID, r.PayloadLen, r.ModLen, r.MsgOff)
}

// Optimized response with data, 12 bytes: UE 3.4.3.
const RspDataSmallLen = 12 // bytes

var (
	errRspSmallLen     = &Invalid{"small response with data", "length"}
	errRspSmallVersion = &Invalid{"small response with data", "version"}
	errRspSmallOpcode  = &Invalid{"small response with data", "opcode"}
)

// A RspDataSmall is the optimized header of a response with data.
type RspDataSmall struct {
	List       List
	Opcode     RspOpcode // RspWithData
	RC         RC
	PayloadLen uint16 // 14 bit
	JobID      uint32 // 24 bit
	ReqPSN     PSN    // original_request_psn
}

// ParseRspDataSmall decodes the header at the front of b and reports the bytes read. An
// opcode other than RspWithData is an error.
func ParseRspDataSmall(b []byte) (RspDataSmall, int, error) {
	if len(b) < RspDataSmallLen {
		return RspDataSmall{}, 0, errRspSmallLen
	}
	if b[1]>>6 != 0 {
		return RspDataSmall{}, 0, errRspSmallVersion
	}
	if RspOpcode(b[0]&0x3f) != RspWithData {
		return RspDataSmall{}, 0, errRspSmallOpcode
	}
	return RspDataSmall{List: List(b[0] >> 6), Opcode: RspWithData, RC: RC(b[1] & 0x3f),
		PayloadLen: binary.BigEndian.Uint16(b[2:]) & 0x3fff, JobID: binary.BigEndian.Uint32(b[4:]) & 0xffffff,
		ReqPSN: PSN(binary.BigEndian.Uint32(b[8:]))}, RspDataSmallLen, nil
}

// Append appends the header to b. It panics if a field is out of range.
func (r RspDataSmall) Append(b []byte) []byte {
	if r.List > 3 || r.Opcode != RspWithData || r.RC > 0x3f || r.JobID > 0xffffff || r.PayloadLen > 0x3fff {
		panic("BUG: wire: response field out of range")
	}
	b = append(b, byte(r.List)<<6|byte(r.Opcode), byte(r.RC))
	b = binary.BigEndian.AppendUint16(b, r.PayloadLen)
	b = binary.BigEndian.AppendUint32(b, r.JobID)
	return binary.BigEndian.AppendUint32(b, uint32(r.ReqPSN))
}

func (r RspDataSmall) String() string {
	return fmt.Sprintf("%v list=%d rc=%v payload_len=%d job=%d req_psn=%#x", r.Opcode, r.List, r.RC, r.PayloadLen, r.JobID, uint32(r.ReqPSN))
}
