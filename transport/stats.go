package transport

import (
	"strconv"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// A DropReason says why a received datagram was dropped.
type DropReason uint8

// The drop reasons. Each datagram that is not processed counts under one.
const (
	DropShort   DropReason = iota // shorter than its headers
	DropCRC                       // CRC-32C does not match
	DropType                      // PDS type unknown or not expected here
	DropNextHdr                   // next_hdr is not allowed for this PDS type
	DropHeader                    // a header field is wrong, and no answer may refuse it
	DropLength                    // lengths contradict each other
	DropNoPDC                     // names no PDC, and no answer is due
	DropSource                    // the PDC belongs to another address, or the source cannot be answered
	DropUnsent                    // ACK, SACK or CLEAR of a PSN that was never sent
	DropStale                     // old or duplicate ACK, NACK or CP without effect
	DropUnknown                   // the source is unknown, and KnownPeersOnly is set
	DropSelf                      // the source is the FEP's own address
	DropLimit                     // a bound of Config is reached
	DropRate                      // the rate limit of answers is reached
	DropClear                     // in clear, at a secured FEP (T8)
	DropSecured                   // secured, at a FEP without security
	DropAuth                      // the ICV does not verify
	DropSDI                       // another secure domain, or another form of security header
	DropKey                       // the key of its association number is missing or expired
	DropEpoch                     // its epoch is over
	DropBinding                   // its sender is not that of the PDC, or may not send here
	DropTrimmed                   // trimmed by a switch, and no NACK is due (Config.Trimming)
	DropReplay                    // a sealed packet without a PDC that came before, or too late to tell
	NumDropReasons
)

var dropNames = [NumDropReasons]string{
	DropShort: "short", DropCRC: "crc", DropType: "type", DropNextHdr: "next_hdr", DropHeader: "header", DropLength: "length",
	DropNoPDC: "no_pdc", DropSource: "source", DropUnsent: "unsent", DropStale: "stale", DropUnknown: "unknown", DropSelf: "self",
	DropLimit: "limit", DropRate: "rate", DropClear: "clear", DropSecured: "secured", DropAuth: "auth", DropSDI: "sdi", DropKey: "key",
	DropEpoch: "epoch", DropBinding: "binding", DropTrimmed: "trimmed", DropReplay: "replay",
}

// String is the reason in a word. It is the same in every release: records and metrics use
// it as a key.
func (r DropReason) String() string {
	if r < NumDropReasons {
		return dropNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// The counters of the sublayers.
type (
	PacketCounters  = pds.Counters // of packet delivery
	MessageCounters = ses.Stats    // of semantics
)

// Stats counts what a FEP did. All values only grow.
type Stats struct {
	FEPCounters
	PacketCounters
	MessageCounters
	CreditCounters
}

// FEPCounters are those that the FEP itself counts.
type FEPCounters struct {
	TxPackets, RxPackets uint64 // datagrams, all kinds
	TxBytes, RxBytes     uint64 // UDP payload bytes
	TxTrains, RxTrains   uint64 // trains that Transmit filled and Receive got
	TxData, RxData       uint64 // requests, resends included
	// RUDIRequests, RUDIResent and RUDIAnswers count the packets of RUDI that were sent: requests the
	// first time, requests again, and answers.
	RUDIRequests, RUDIResent, RUDIAnswers uint64
	RxTrimmed                             uint64 // trimmed packets, those under DropTrimmed included
	AcksTx, AcksRx                        uint64
	// EVsUnbound counts answers that left from port 4793, because the port of the entropy value
	// they should repeat could not be had (Standard encapsulation).
	EVsUnbound uint64
	Drops      [NumDropReasons]uint64
}

// Stats returns a copy of the counters.
func (f *FEP) Stats() Stats {
	p := &f.pds.Stats
	s := Stats{FEPCounters: f.stats, PacketCounters: p.Counters, MessageCounters: f.ses.Stats}
	if f.credit != nil {
		s.CreditCounters = f.credit.counters(f.now)
	}
	for _, d := range [...]struct {
		why DropReason
		n   uint64
	}{
		{DropNoPDC, p.DropNoPDC}, {DropSource, p.DropSource}, {DropUnsent, p.DropUnsent}, {DropStale, p.DropStale}, {DropLimit, p.DropLimit},
		{DropRate, p.DropRate}, {DropHeader, p.DropHeader}, {DropType, p.DropType}, {DropBinding, p.DropBinding},
	} {
		s.Drops[d.why] += d.n
	}
	return s
}
