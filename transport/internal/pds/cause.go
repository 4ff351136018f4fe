package pds

import "github.com/uetkit/uetkit/transport/wire"

// A Cause is why a packet is sent; Table.Cause is that of the newest one. It is for people:
// nothing depends on it.
type Cause uint8

// The causes. From causeNack on, the lower 7 bits are the code of the NACK that refused the
// packet. No two codes share them.
const (
	CauseNone      Cause = iota
	CauseNew             // sent for the first time
	CauseRTO             // the retransmission timeout passed
	CauseSACK            // missing although later transmissions arrived
	CauseReorder         // missing although a later one arrived, for longer than the reordering time
	CauseProbe           // the answer to a PROBE shows it missing
	CauseTail            // data instead of a PROBE, for peers that do not support PROBE
	CauseRenumber        // sent under another Start_PSN or PDCID
	CauseClose           // the PDC is to end
	CauseClear           // CLEAR: the peer waits for CLEAR_PSN
	CauseGreet           // shows the target that this side knows its PDCID
	CauseArrived         // ACK_REQ: a packet arrived, its response did not
	CausePromised        // ACK_REQ: the RESPONSE that was promised did not come
	CauseProbeAsk        // PROBE: the outstanding packets asked for no ACK
	CauseProbeTail       // PROBE: silence after the last packet
	CauseProbeRTO        // PROBE: after RTOs, to test the path with a small packet
	CauseProbeShut       // PROBE: the window is closed and no ACK comes
	CauseProbeMore       // PROBE: for PSNs that the last one did not cover
	CauseAckAsked        // ACK: the packet has AR or SYN
	CauseAckBytes        // ACK: enough bytes came
	CauseAckRetx         // ACK: of a resend
	CauseAckCE           // ACK: of a packet with a congestion mark
	CauseAckDup          // ACK: of a duplicate
	CauseAckHole         // ACK: CACK moves on after a filled hole or a CLEAR
	CauseAckEarly        // ACK: an early ROD packet shows a gap
	CauseAckProbe        // ACK: a PROBE asked
	CauseAckLast         // ACK: this side is about to close
	CauseGtd             // ACK: of a guaranteed response
	CauseGtdAgain        // ACK: of a guaranteed response, again: no CLEAR came
	CauseBehind          // ACK: of a packet behind a guaranteed response
	CauseAnswer          // a received packet asks for it
	CauseTooLong         // the path does not carry it: a void packet goes in its place
	CauseProbeSize       // PROBE: padded, to find the size that the path carries
	CauseProbeOpen       // NO_OP: to test with a small packet whether the target is there
	CauseOpen            // NOOP: opens the PDC before the source has credit
	CauseCredit          // CREDIT: a grant
	CauseCreditReq       // CREDIT_REQ: nothing may leave that could carry the credit target
	causeNack      Cause = 0x80
)

// nacked is the cause of resending a packet that a NACK with that code refused.
func nacked(c wire.NackCode) Cause { return causeNack | Cause(c) }

var causeNames = [...]string{
	CauseNone:      "",
	CauseNew:       "new",
	CauseRTO:       "RTO",
	CauseSACK:      "SACK: later ones arrived",
	CauseReorder:   "SACK: missing for too long to be reordered",
	CauseProbe:     "probe: its answer shows it missing",
	CauseTail:      "probe: silence after the last packet",
	CauseRenumber:  "renumbered",
	CauseClose:     "the PDC is to end",
	CauseClear:     "the peer waits for CLEAR",
	CauseGreet:     "greeting: shows the PDCID that the peer just told",
	CauseArrived:   "it arrived, its response did not",
	CausePromised:  "the promised RESPONSE did not come",
	CauseProbeAsk:  "asks about what asked for no ACK",
	CauseProbeTail: "silence after the last packet",
	CauseProbeRTO:  "RTO: asks with a small packet",
	CauseProbeShut: "the window is closed and no ACK comes",
	CauseProbeMore: "asks for what the last PROBE did not cover",
	CauseAckAsked:  "because of AR or SYN",
	CauseAckBytes:  "because of the bytes since the last one",
	CauseAckRetx:   "because of a resend",
	CauseAckCE:     "because of CE",
	CauseAckDup:    "because of a duplicate",
	CauseAckHole:   "because CACK moved on",
	CauseAckEarly:  "because of a hole before it",
	CauseAckProbe:  "because of a PROBE",
	CauseAckLast:   "because this end closes",
	CauseGtd:       "because of a guaranteed response",
	CauseGtdAgain:  "because of a guaranteed response, again",
	CauseBehind:    "because a guaranteed response holds CACK back",
	CauseAnswer:    "answers what came",
	CauseTooLong:   "takes the place of a packet that is too long for the path",
	CauseProbeSize: "asks whether the path carries this size",
	CauseProbeOpen: "asks with a small packet whether the target is there",
	CauseOpen:      "opens the PDC before there is credit",
	CauseCredit:    "grants credit",
	CauseCreditReq: "nothing may be sent without credit",
}

func (c Cause) String() string {
	switch {
	case c >= causeNack|0x7d:
		return "NACK " + wire.NackCode(c).String()
	case c >= causeNack:
		return "NACK " + wire.NackCode(c&^causeNack).String()
	case int(c) < len(causeNames):
		return causeNames[c]
	}
	return "cause ?"
}
