package pds

import "github.com/uetkit/uetkit/transport/wire"

// A Cause is why a packet is sent: Table.Cause tells it of the newest one. It is for
// people; nothing depends on it.
type Cause uint8

// The causes. From causeNack on they are the code of the NACK that refused the
// packet, in its lower 7 bits: no two codes share those.
const (
	CauseNone      Cause = iota
	CauseNew             // for the first time
	CauseRTO             // the retransmission timeout passed
	CauseSACK            // missing, while later transmissions arrived
	CauseReorder         // missing, while a later one arrived, for longer than packets overtake each other
	CauseProbe           // the answer of a PROBE shows it missing
	CauseTail            // data in the place of a PROBE, for peers that know none
	CauseRenumber        // under another Start_PSN, or another PDCID
	CauseClose           // the PDC is to end
	CauseClear           // CLEAR: the peer waits for it
	CauseGreet           // to prove that this side knows the peer's PDCID
	CauseArrived         // ACK_REQ: it arrived, its response did not
	CauseProbeAsk        // PROBE: what is outstanding asked for no ACK
	CauseProbeTail       // PROBE: silence after the last packet
	CauseProbeRTO        // PROBE: a small packet, as large ones go unanswered
	CauseProbeShut       // PROBE: the window is closed, and no ACK comes
	CauseProbeMore       // PROBE: for what the one before did not cover
	CauseAckAsked        // ACK: AR or SYN
	CauseAckBytes        // ACK: enough bytes came
	CauseAckRetx         // ACK: of a resend
	CauseAckCE           // ACK: of a packet marked CE
	CauseAckDup          // ACK: again, it came again
	CauseAckHole         // ACK: a hole is filled, or a CLEAR came, and CACK moves on
	CauseAckHeld         // ACK: a packet waits for one before it
	CauseAckProbe        // ACK: a PROBE asked
	CauseAckLast         // ACK: this end is about to close
	CauseGtd             // ACK: a response that is kept until a CLEAR
	CauseGtdAgain        // ACK: the same again, no CLEAR came
	CauseBehind          // ACK: plain, of a packet behind a response that is kept
	CauseAnswer          // what came in asks for it
	causeNack      Cause = 0x80
)

// nacked is the cause of what a NACK refused.
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
	CauseAckHeld:   "because of a hole before it",
	CauseAckProbe:  "because of a PROBE",
	CauseAckLast:   "because this end closes",
	CauseGtd:       "because of a guaranteed response",
	CauseGtdAgain:  "because of a guaranteed response, again",
	CauseBehind:    "because a guaranteed response holds CACK back",
	CauseAnswer:    "answers what came",
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
