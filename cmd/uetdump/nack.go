package main

import "github.com/uetkit/uetkit/transport/wire"

// nackMeaning describes a NACK code in a few words (UE 3.5.12.7).
func nackMeaning(c wire.NackCode) string {
	if s, ok := nackMeanings[c]; ok {
		return s
	}
	return "a reserved code"
}

var nackMeanings = map[wire.NackCode]string{
	wire.NackTrimmed:         "a switch cut the payload: the path is congested",
	wire.NackTrimmedLastHop:  "the last switch cut the payload: too many send to this target at once",
	wire.NackTrimmedAck:      "a switch cut read data in an ACK",
	wire.NackNoPDCAvail:      "the target has no PDC free",
	wire.NackNoCCCAvail:      "the target has no congestion context free",
	wire.NackNoBitmap:        "the target has no memory to track packets",
	wire.NackNoPktBuffer:     "the target has no packet buffer",
	wire.NackNoGtdDelAvail:   "the target has no room to keep another guaranteed response: it waits for CLEARs",
	wire.NackNoSESMsgAvail:   "the target has no room for another message: no receive is posted, or the unexpected ones fill its memory",
	wire.NackNoResource:      "the target is short of something",
	wire.NackPSNOORWindow:    "the PSN is outside the target's window, which may be smaller than MPR says",
	wire.NackRODOOO:          "an earlier packet of the ordered PDC is missing",
	wire.NackInvDPDCID:       "the target does not know the PDC: it was closed, or the target restarted",
	wire.NackPDCHdrMismatch:  "next header or PDCID do not fit: at the target the PDC is another one",
	wire.NackClosing:         "the target closes the PDC",
	wire.NackClosingInErr:    "the target ended the PDC in error",
	wire.NackPktNotRcvd:      "the packet asked about never arrived",
	wire.NackGtdRespUnavail:  "the target lost a guaranteed response",
	wire.NackAckWithData:     "the ACK had data that was not kept",
	wire.NackInvalidSyn:      "the PDCID is in use at the target: of a former life of this source; or the SYN is outside its window",
	wire.NackPDCModeMismatch: "RUD on a ROD PDC, the other way round, or a type the target does not know",
	wire.NackNewStartPSN:     "the target wants another Start_PSN before it opens the PDC",
	wire.NackRcvdSESProcg:    "it arrived, and its response is not ready",
	wire.NackUnexpEvent:      "the target does not expect this in its state",
	wire.NackRcvrInferLoss:   "the target takes the packet for lost",
	wire.NackExpNormal:       "experimental",
	wire.NackExpError:        "experimental, error",
	wire.NackExpFatal:        "experimental, fatal",
}
