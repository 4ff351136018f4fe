package wire

import (
	"fmt"
	"strings"
	"testing"
)

// checkCodes checks the names of a code table of the specification. The table has values
// and names in the order of the values; everything between them is reserved.
func checkCodes[C interface {
	~uint8
	fmt.Stringer
}](t *testing.T, bits int, table string,
) {
	t.Helper()
	names := map[int]string{}
	for f := range strings.FieldsSeq(table) {
		var v int
		value, name, _ := strings.Cut(f, ":")
		if _, err := fmt.Sscanf(value, "%x", &v); err != nil || names[v] != "" {
			t.Fatalf("%q: %v", f, err)
		}
		names[v] = name
	}
	for v := range 1 << bits {
		s := C(v).String()
		switch {
		case names[v] != "" && s != names[v]:
			t.Errorf("%#x is %s, want %s", v, s, names[v])
		case names[v] == "" && !strings.Contains(s, " "):
			t.Errorf("%#x is reserved, not %s", v, s)
		}
	}
}

func TestModeNames(t *testing.T) { // UE 3.5.7
	checkCodes[Mode](t, 8, "1:RUD 2:ROD 3:RUDI 4:UUD")
}

func TestTypeCodes(t *testing.T) { // UE 3.5.10
	checkCodes[Type](t, 5, `1:TSS 2:RUD_REQ 3:ROD_REQ 4:RUDI_REQ 5:RUDI_RESP 6:UUD_REQ 7:ACK 8:ACK_CC 9:ACK_CCX a:NACK b:CTRL c:NACK_CCX
		d:RUD_CC_REQ e:ROD_CC_REQ`)
	for want, typ := range []Type{
		1: TypeTSS, 2: TypeRUDReq, 3: TypeRODReq, 4: TypeRUDIReq, 5: TypeRUDIRsp, 6: TypeUUDReq, 7: TypeAck, 8: TypeAckCC, 9: TypeAckCCX, 10: TypeNack,
		11: TypeCP, 12: TypeNackCCX, 13: TypeRUDCCReq, 14: TypeRODCCReq,
	} {
		if int(typ) != want {
			t.Errorf("%v is %d, want %d", typ, typ, want)
		}
	}
}

func TestNextHdrCodes(t *testing.T) { // UE 3.5.10.2
	checkCodes[NextHdr](t, 4, "0:NONE 1:REQ_SMALL 2:REQ_MEDIUM 3:REQ_STD 4:RSP 5:RSP_DATA 6:RSP_DATA_SMALL")
	for want, n := range []NextHdr{NextNone, NextReqSmall, NextReqMedium, NextReqStd, NextRsp, NextRspData, NextRspDataSmall} {
		if int(n) != want {
			t.Errorf("%v is %d, want %d", n, n, want)
		}
	}
}

// Carries says which packet carries which SES header.
func TestTypeCarries(t *testing.T) {
	for typ := range Type(32) {
		want := map[Type]string{
			TypeRUDReq: "12356", TypeRODReq: "12356", TypeRUDCCReq: "12356", TypeRODCCReq: "12356", TypeRUDIReq: "123", TypeRUDIRsp: "456",
			TypeUUDReq: "23", TypeAck: "0456", TypeAckCC: "0456", TypeAckCCX: "0456", TypeNack: "0", TypeNackCCX: "0", TypeCP: "0",
		}[typ]
		for n := range NextHdr(16) {
			if got := typ.Carries(n); got != strings.Contains(want, fmt.Sprintf("%x", uint8(n))) {
				t.Errorf("%v carries %v: %t", typ, n, got)
			}
		}
	}
}

func TestCtlCodes(t *testing.T) { // UE 3.5.16
	checkCodes[CtlType](t, 4, `0:NOOP 1:ACK_REQ 2:CLEAR_CMD 3:CLEAR_REQ 4:CLOSE_CMD 5:CLOSE_REQ 6:PROBE 7:CREDIT 8:CREDIT_REQ 9:NEGOTIATION`)
	for want, c := range []CtlType{
		CtlNoop, CtlAckReq, CtlClear, CtlClearReq, CtlClose, CtlCloseReq, CtlProbe, CtlCredit, CtlCreditReq, CtlNegotiation,
	} {
		if int(c) != want {
			t.Errorf("%v is %d, want %d", c, c, want)
		}
	}
}

// UE 3.5.12.7: code, name and class of every NACK.
func TestNackCodes(t *testing.T) {
	checkCodes[NackCode](t, 8, `01:TRIMMED 02:TRIMMED_LASTHOP 03:TRIMMED_ACK 04:NO_PDC_AVAIL 05:NO_CCC_AVAIL 06:NO_BITMAP 07:NO_PKT_BUFFER
		08:NO_GTD_DEL_AVAIL 09:NO_SES_MSG_AVAIL 0a:NO_RESOURCE 0b:PSN_OOR_WINDOW 0d:ROD_OOO 0e:INV_DPDCID 0f:PDC_HDR_MISMATCH 10:CLOSING
		11:CLOSING_IN_ERR 12:PKT_NOT_RCVD 13:GTD_RESP_UNAVAIL 14:ACK_WITH_DATA 15:INVALID_SYN 16:PDC_MODE_MISMATCH 17:NEW_START_PSN
		18:RCVD_SES_PROCG 19:UNEXP_EVENT 1a:RCVR_INFER_LOSS fd:EXP_NORMAL fe:EXP_ERROR ff:EXP_FATAL`)
	const (
		classes = " NNNNNNNNNNN NFFFFEFEFFNNFN" // from code 0 on; a blank is reserved
		letters = " NEF"                        // NackReserved, Normal, Error, Fatal
	)
	for code := range 256 {
		want := byte(' ')
		switch {
		case code < len(classes):
			want = classes[code]
		case code >= 0xfd:
			want = "NEF"[code-0xfd]
		}
		if got := letters[NackCode(code).Class()]; got != want {
			t.Errorf("%v is of class %q, want %q", NackCode(code), got, want)
		}
	}
	for want, c := range map[int]NackCode{
		0x01: NackTrimmed, 0x02: NackTrimmedLastHop, 0x03: NackTrimmedAck, 0x04: NackNoPDCAvail, 0x05: NackNoCCCAvail, 0x06: NackNoBitmap,
		0x07: NackNoPktBuffer, 0x08: NackNoGtdDelAvail, 0x09: NackNoSESMsgAvail, 0x0a: NackNoResource, 0x0b: NackPSNOORWindow, 0x0d: NackRODOOO,
		0x0e: NackInvDPDCID, 0x0f: NackPDCHdrMismatch, 0x10: NackClosing, 0x11: NackClosingInErr, 0x12: NackPktNotRcvd, 0x13: NackGtdRespUnavail,
		0x14: NackAckWithData, 0x15: NackInvalidSyn, 0x16: NackPDCModeMismatch, 0x17: NackNewStartPSN, 0x18: NackRcvdSESProcg,
		0x19: NackUnexpEvent, 0x1a: NackRcvrInferLoss, 0xfd: NackExpNormal, 0xfe: NackExpError, 0xff: NackExpFatal,
	} {
		if int(c) != want {
			t.Errorf("%v is %#x, want %#x", c, uint8(c), want)
		}
	}
}

func TestOpcodes(t *testing.T) { // UE 3.4.1
	checkCodes[Opcode](t, 6, `0:NO_OP 1:WRITE 2:READ 3:ATOMIC 4:FETCHING_ATOMIC 5:SEND 6:RENDEZVOUS_SEND 7:DATAGRAM_SEND 8:DEFERRABLE_SEND
		9:TAGGED_SEND a:RENDEZVOUS_TSEND b:DEFERRABLE_TSEND c:DEFERRABLE_RTR d:TSEND_ATOMIC e:TSEND_FETCH_ATOMIC f:MSG_ERROR`)
	for want, o := range []Opcode{
		OpNoOp, OpWrite, OpRead, OpAtomic, OpFetchAtomic, OpSend, OpRendezvousSend, OpDatagramSend, OpDeferrableSend, OpTaggedSend, OpRendezvousTSend,
		OpDeferrableTSend, OpDeferrableRTR, OpTSendAtomic, OpTSendFetchAtomic, OpMsgError,
	} {
		if int(o) != want {
			t.Errorf("%v is %d, want %d", o, o, want)
		}
	}
}

func TestRspOpcodes(t *testing.T) { // UE 3.4.3
	checkCodes[RspOpcode](t, 6, "0:DEFAULT_RESPONSE 1:RESPONSE 2:RESPONSE_W_DATA 3:NO_RESPONSE")
	for want, o := range []RspOpcode{RspDefault, RspResponse, RspWithData, RspNone} {
		if int(o) != want {
			t.Errorf("%v is %d, want %d", o, o, want)
		}
	}
}

func TestReturnCodes(t *testing.T) { // UE 3.4.3
	checkCodes[RC](t, 6, `00:NULL 01:OK 02:BAD_GENERATION 03:DISABLED 04:DISABLED_GEN 05:NO_MATCH 06:UNSUPPORTED_OP 07:UNSUPPORTED_SIZE
		08:AT_INVALID 09:AT_PERM 0a:AT_ATS_ERROR 0b:AT_NO_TRANS 0c:AT_OUT_OF_RANGE 0d:HOST_POISONED 0e:HOST_UNSUCCESS_CMPL
		0f:AMO_UNSUPPORTED_OP 10:AMO_UNSUPPORTED_DT 11:AMO_UNSUPPORTED_SIZE 12:AMO_UNALIGNED 13:AMO_FP_NAN 14:AMO_FP_UNDERFLOW
		15:AMO_FP_OVERFLOW 16:AMO_FP_INEXACT 17:PERM_VIOLATION 18:OP_VIOLATION 19:BAD_INDEX 1a:BAD_PID 1b:BAD_JOB_ID 1c:BAD_MKEY 1d:BAD_ADDR
		1e:CANCELLED 1f:UNDELIVERABLE 20:UNCOR 21:UNCOR_TRNSNT 22:TOO_LONG 23:INITIATOR_ERROR 24:DROPPED`)
	for want, c := range []RC{
		RCNull, RCOK, RCBadGeneration, RCDisabled, RCDisabledGen, RCNoMatch, RCUnsupportedOp, RCUnsupportedSize, RCATInvalid, RCATPerm, RCATATSError,
		RCATNoTrans, RCATOutOfRange, RCHostPoisoned, RCHostUnsuccessCmpl, RCAMOUnsupportedOp, RCAMOUnsupportedDT, RCAMOUnsupportedSize,
		RCAMOUnaligned, RCAMOFPNaN, RCAMOFPUnderflow, RCAMOFPOverflow, RCAMOFPInexact, RCPermViolation, RCOpViolation, RCBadIndex, RCBadPID,
		RCBadJobID, RCBadMKey, RCBadAddr, RCCancelled, RCUndeliverable, RCUncor, RCUncorTrnsnt, RCTooLong, RCInitiatorError, RCDropped,
	} {
		if int(c) != want {
			t.Errorf("%v is %#x, want %#x", c, uint8(c), want)
		}
	}
}

func TestAtomicCodes(t *testing.T) { // UE 3.4.1
	checkCodes[AtomicOp](t, 8, `00:MIN 01:MAX 02:SUM 03:DIFF 04:PROD 05:LOR 06:LAND 07:BOR 08:BAND 09:LXOR 0a:BXOR 0b:READ 0c:WRITE 0d:CSWAP
		0e:CSWAP_NE 0f:CSWAP_LE 10:CSWAP_LT 11:CSWAP_GE 12:CSWAP_GT 13:MSWAP 14:INVAL`)
	for want, o := range []AtomicOp{
		AtomicMin, AtomicMax, AtomicSum, AtomicDiff, AtomicProd, AtomicLOr, AtomicLAnd, AtomicBOr, AtomicBAnd, AtomicLXor, AtomicBXor, AtomicRead,
		AtomicWrite, AtomicCSwap, AtomicCSwapNE, AtomicCSwapLE, AtomicCSwapLT, AtomicCSwapGE, AtomicCSwapGT, AtomicMSwap, AtomicInval,
	} {
		if int(o) != want {
			t.Errorf("%v is %#x, want %#x", o, uint8(o), want)
		}
	}
	checkCodes[AtomicType](t, 8, `00:INT8 01:UINT8 02:INT16 03:UINT16 04:INT32 05:UINT32 06:INT64 07:UINT64 08:INT128 09:UINT128 0a:FLOAT
		0b:DOUBLE 0c:FLOAT_COMPLEX 0d:DOUBLE_COMPLEX 0e:LONG_DOUBLE 0f:LONG_DOUBLE_COMPLEX 10:BF16 11:FP16`)
	for want, o := range []AtomicType{
		Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64, Int128, Uint128, Float, Double, FloatComplex, DoubleComplex, LongDouble,
		LongDoubleComplex, BF16, FP16,
	} {
		if int(o) != want {
			t.Errorf("%v is %#x, want %#x", o, uint8(o), want)
		}
	}
}
