package wire

import "strconv"

// Mode is a delivery mode (UE 3.5.7).
type Mode uint8

// The delivery modes.
const (
	RUD  Mode = iota + 1 // reliable, unordered
	ROD                  // reliable, ordered
	RUDI                 // reliable, unordered, idempotent operations
	UUD                  // unreliable, unordered
)

func (m Mode) String() string { return name(modeNames[:], int(m), "mode") }

var modeNames = [...]string{RUD: "RUD", ROD: "ROD", RUDI: "RUDI", UUD: "UUD"}

// Type is the PDS header type, 5 bits (UE 3.5.10).
type Type uint8

// The PDS header types.
const (
	TypeTSS      Type = 1
	TypeRUDReq   Type = 2
	TypeRODReq   Type = 3
	TypeRUDIReq  Type = 4
	TypeRUDIRsp  Type = 5
	TypeUUDReq   Type = 6
	TypeAck      Type = 7
	TypeAckCC    Type = 8
	TypeAckCCX   Type = 9
	TypeNack     Type = 10
	TypeCP       Type = 11
	TypeNackCCX  Type = 12
	TypeRUDCCReq Type = 13
	TypeRODCCReq Type = 14
)

var typeNames = [...]string{
	TypeTSS: "TSS", TypeRUDReq: "RUD_REQ", TypeRODReq: "ROD_REQ", TypeRUDIReq: "RUDI_REQ", TypeRUDIRsp: "RUDI_RESP",
	TypeUUDReq: "UUD_REQ", TypeAck: "ACK", TypeAckCC: "ACK_CC", TypeAckCCX: "ACK_CCX", TypeNack: "NACK", TypeCP: "CTRL",
	TypeNackCCX: "NACK_CCX", TypeRUDCCReq: "RUD_CC_REQ", TypeRODCCReq: "ROD_CC_REQ",
}

func (t Type) String() string { return name(typeNames[:], int(t), "type") }

// NextHdr names the SES header behind a PDS header, 4 bits.
type NextHdr uint8

// The next headers.
const (
	NextNone         NextHdr = 0 // nothing follows
	NextReqSmall     NextHdr = 1 // small request
	NextReqMedium    NextHdr = 2 // medium request
	NextReqStd       NextHdr = 3 // standard request
	NextRsp          NextHdr = 4 // response without data
	NextRspData      NextHdr = 5 // response with data
	NextRspDataSmall NextHdr = 6 // optimized response with data
)

var nextNames = [...]string{"NONE", "REQ_SMALL", "REQ_MEDIUM", "REQ_STD", "RSP", "RSP_DATA", "RSP_DATA_SMALL"}

func (n NextHdr) String() string { return name(nextNames[:], int(n), "next_hdr") }

// Carries reports whether a packet of type t may carry the SES header n. NACKs and control
// packets carry none.
func (t Type) Carries(n NextHdr) bool {
	switch t {
	case TypeRUDReq, TypeRODReq, TypeRUDCCReq, TypeRODCCReq:
		// Read data travels in requests of the return direction.
		return n >= NextReqSmall && n <= NextReqStd || n == NextRspData || n == NextRspDataSmall
	case TypeRUDIReq:
		return n >= NextReqSmall && n <= NextReqStd
	case TypeRUDIRsp:
		return n >= NextRsp && n <= NextRspDataSmall
	case TypeUUDReq:
		return n == NextReqMedium || n == NextReqStd
	case TypeAck, TypeAckCC, TypeAckCCX:
		return n == NextNone || n >= NextRsp && n <= NextRspDataSmall
	case TypeNack, TypeNackCCX, TypeCP:
		return n == NextNone
	}
	return false
}

// Flags are the seven flag bits of a PDS prologue. The meaning of a bit depends on the
// type. Bits that a type reserves are never set in a parsed header.
type Flags uint8

// Flag bits of requests and control packets.
const (
	FlagISROD Flags = 0x20 // CP: belongs to a ROD PDC
	FlagRETX  Flags = 0x10 // a retransmission
	FlagAR    Flags = 0x08 // acknowledge at once
	FlagSYN   Flags = 0x04 // the sender does not know that the PDC is established

	reqFlags = FlagRETX | FlagAR | FlagSYN
	cpFlags  = FlagISROD | FlagRETX | FlagAR | FlagSYN
)

// Flag bits of the ACK family. Bits 2 and 1 are the Req field.
const (
	AckFlagEPSN Flags = 0x40 // Expected_PSN follows (type ACK only)
	AckFlagM    Flags = 0x20 // the acknowledged packet was CE-marked
	AckFlagRETX Flags = 0x10 // the acknowledged packet was a retransmission
	AckFlagP    Flags = 0x08 // the ACK answers a PROBE
	ackReqMask  Flags = 0x06

	ackFlags = AckFlagM | AckFlagRETX | AckFlagP // and AckFlagEPSN for type ACK
)

// Flag bits of the NACK family and of RUDI. In RUDI, M has a meaning in responses only, but
// other implementations set it in requests, too.
const (
	NackFlagM    Flags = 0x20
	NackFlagRETX Flags = 0x10
	NackFlagNT   Flags = 0x08 // NACK of a RUDI request
	RUDIFlagM    Flags = 0x20
	RUDIFlagRETX Flags = 0x10

	nackFlags = NackFlagM | NackFlagRETX | NackFlagNT
	rudiFlags = RUDIFlagM | RUDIFlagRETX
)

// AckReq is what an ACK asks of the sender of the packet, 2 bits.
type AckReq uint8

// The requests that an ACK may make.
const (
	ReqNone  AckReq = 0 // nothing
	ReqClear AckReq = 1 // clear the packet that the ACK names
	ReqClose AckReq = 2 // close the PDC
)

// CtlType is the kind of a control packet, 4 bits (UE 3.5.16).
type CtlType uint8

// The control packets.
const (
	CtlNoop        CtlType = 0 // nothing, but consumes a PSN
	CtlAckReq      CtlType = 1 // asks what became of PSN
	CtlClear       CtlType = 2 // Payload is CLEAR_PSN
	CtlClearReq    CtlType = 3 // asks for CLEAR up to Payload
	CtlClose       CtlType = 4 // ends the PDC
	CtlCloseReq    CtlType = 5 // asks the initiator to end the PDC
	CtlProbe       CtlType = 6 // asks for an ACK_CC from PSN Payload on
	CtlCredit      CtlType = 7 // Payload is credit
	CtlCreditReq   CtlType = 8 // asks for credit
	CtlNegotiation CtlType = 9 // optional features
)

var ctlNames = [...]string{"NOOP", "ACK_REQ", "CLEAR_CMD", "CLEAR_REQ", "CLOSE_CMD", "CLOSE_REQ", "PROBE", "CREDIT", "CREDIT_REQ", "NEGOTIATION"}

func (c CtlType) String() string { return name(ctlNames[:], int(c), "ctl_type") }

// NackCode says why a packet was refused, 8 bits (UE 3.5.12.7).
type NackCode uint8

// The NACK codes.
const (
	NackTrimmed         NackCode = 0x01 // a switch trimmed the packet before the last hop
	NackTrimmedLastHop  NackCode = 0x02 // the packet was trimmed at the last hop
	NackTrimmedAck      NackCode = 0x03 // an ACK with data was trimmed; removed in UE 1.0.3
	NackNoPDCAvail      NackCode = 0x04 // no PDC is free
	NackNoCCCAvail      NackCode = 0x05 // no congestion control context is free
	NackNoBitmap        NackCode = 0x06 // no memory to track PSNs
	NackNoPktBuffer     NackCode = 0x07 // no buffer
	NackNoGtdDelAvail   NackCode = 0x08 // no room to store a guaranteed response
	NackNoSESMsgAvail   NackCode = 0x09 // no room for the message
	NackNoResource      NackCode = 0x0A // short of something else
	NackPSNOORWindow    NackCode = 0x0B // the PSN is outside the window
	NackRODOOO          NackCode = 0x0D // out of order on ROD; Payload is the PSN expected
	NackInvDPDCID       NackCode = 0x0E // there is no such PDC
	NackPDCHdrMismatch  NackCode = 0x0F // PDCID or next header do not fit the PDC
	NackClosing         NackCode = 0x10 // the PDC is closing
	NackClosingInErr    NackCode = 0x11 // the peer ends the PDC in error
	NackPktNotRcvd      NackCode = 0x12 // answer to ACK_REQ: the packet never came
	NackGtdRespUnavail  NackCode = 0x13 // the stored response was lost
	NackAckWithData     NackCode = 0x14 // answer to ACK_REQ: the data were not kept
	NackInvalidSyn      NackCode = 0x15 // the SYN does not fit the PDC
	NackPDCModeMismatch NackCode = 0x16 // RUD packet on a ROD PDC, or the reverse
	NackNewStartPSN     NackCode = 0x17 // secured: Payload is the Start_PSN to use
	NackRcvdSESProcg    NackCode = 0x18 // received, the response is not ready
	NackUnexpEvent      NackCode = 0x19 // not expected, or not supported
	NackRcvrInferLoss   NackCode = 0x1A // the receiver takes the packet for lost
	NackExpNormal       NackCode = 0xFD // experimental, normal
	NackExpError        NackCode = 0xFE // experimental, error
	NackExpFatal        NackCode = 0xFF // experimental, fatal
)

var nackNames = map[NackCode]string{
	0x01: "TRIMMED", 0x02: "TRIMMED_LASTHOP", 0x03: "TRIMMED_ACK", 0x04: "NO_PDC_AVAIL", 0x05: "NO_CCC_AVAIL",
	0x06: "NO_BITMAP", 0x07: "NO_PKT_BUFFER", 0x08: "NO_GTD_DEL_AVAIL", 0x09: "NO_SES_MSG_AVAIL", 0x0A: "NO_RESOURCE",
	0x0B: "PSN_OOR_WINDOW", 0x0D: "ROD_OOO", 0x0E: "INV_DPDCID", 0x0F: "PDC_HDR_MISMATCH", 0x10: "CLOSING",
	0x11: "CLOSING_IN_ERR", 0x12: "PKT_NOT_RCVD", 0x13: "GTD_RESP_UNAVAIL", 0x14: "ACK_WITH_DATA", 0x15: "INVALID_SYN",
	0x16: "PDC_MODE_MISMATCH", 0x17: "NEW_START_PSN", 0x18: "RCVD_SES_PROCG", 0x19: "UNEXP_EVENT", 0x1A: "RCVR_INFER_LOSS",
	0xFD: "EXP_NORMAL", 0xFE: "EXP_ERROR", 0xFF: "EXP_FATAL",
}

func (c NackCode) String() string {
	if s, ok := nackNames[c]; ok {
		return s
	}
	return "nack 0x" + strconv.FormatUint(uint64(c), 16)
}

// NackClass says what a NACK means for the PDC.
type NackClass uint8

// The classes. Reserved codes have NackReserved and are ignored.
const (
	NackReserved NackClass = iota
	NackNormal             // shortage or order: the packet is sent again
	NackError              // an error that the PDC can repair
	NackFatal              // ends the PDC
)

// Class returns the class of the code.
func (c NackCode) Class() NackClass {
	switch c {
	case NackTrimmed, NackTrimmedLastHop, NackTrimmedAck, NackNoPDCAvail, NackNoCCCAvail, NackNoBitmap, NackNoPktBuffer,
		NackNoGtdDelAvail, NackNoSESMsgAvail, NackNoResource, NackPSNOORWindow, NackRODOOO, NackNewStartPSN,
		NackRcvdSESProcg, NackRcvrInferLoss, NackExpNormal:
		return NackNormal
	case NackPktNotRcvd, NackAckWithData, NackExpError:
		return NackError
	case NackInvDPDCID, NackPDCHdrMismatch, NackClosing, NackClosingInErr, NackGtdRespUnavail, NackInvalidSyn,
		NackPDCModeMismatch, NackUnexpEvent, NackExpFatal:
		return NackFatal
	}
	return NackReserved
}

// name is names[i], or kind and the number if there is no name.
func name(names []string, i int, kind string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return kind + " " + strconv.Itoa(i)
}
