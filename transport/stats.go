package transport

import (
	"strconv"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// DropReason says why a received datagram was thrown away.
type DropReason uint8

// The drop reasons. Every datagram that is not processed is counted under one.
const (
	DropShort   DropReason = iota // shorter than its headers
	DropCRC                       // CRC-32C does not match
	DropType                      // PDS type unknown or not expected here
	DropNextHdr                   // next_hdr not allowed for this PDS type
	DropHeader                    // a header field that must not be refused by answer
	DropLength                    // lengths contradict each other
	DropNoPDC                     // names no PDC, and no answer is due
	DropSource                    // the PDC belongs to another address
	DropUnsent                    // ACK, SACK or CLEAR of what was never sent
	DropStale                     // old or duplicate ACK, NACK or CP without effect
	DropUnknown                   // unknown source and KnownPeersOnly
	DropSelf                      // own address as source
	DropLimit                     // a bound of Config was hit
	DropRate                      // answer suppressed by its rate limit
	DropClear                     // in clear, at a secured FEP (T8)
	DropSecured                   // secured, at a FEP without security
	DropAuth                      // the ICV does not verify
	DropSDI                       // of another secure domain, or with a header of another form
	DropKey                       // no key for its association number, or one that expired
	DropEpoch                     // of an epoch that is over
	DropBinding                   // of another sender than the PDC's, or one that may not send here
	DropTrimmed                   // cut by a switch, and no NACK is due (Config.Trimming)
	NumDropReasons
)

var dropNames = [NumDropReasons]string{
	DropShort: "short", DropCRC: "crc", DropType: "type", DropNextHdr: "next_hdr", DropHeader: "header", DropLength: "length",
	DropNoPDC: "no_pdc", DropSource: "source", DropUnsent: "unsent", DropStale: "stale", DropUnknown: "unknown", DropSelf: "self",
	DropLimit: "limit", DropRate: "rate", DropClear: "clear", DropSecured: "secured", DropAuth: "auth", DropSDI: "sdi", DropKey: "key",
	DropEpoch: "epoch", DropBinding: "binding", DropTrimmed: "trimmed",
}

// String is the reason in a word, the same in every release: records and metrics
// use it as a key.
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
	TxPackets, RxPackets uint64 // datagrams, all kinds
	TxBytes, RxBytes     uint64 // UDP payload bytes
	TxTrains, RxTrains   uint64 // calls of the socket layer
	TxData, RxData       uint64 // request packets, first or again
	RxTrimmed            uint64 // packets that a switch cut, those under DropTrimmed too
	AcksTx, AcksRx       uint64
	Drops                [NumDropReasons]uint64
	PacketCounters
	MessageCounters
}

// Stats returns a copy of the counters.
func (f *FEP) Stats() Stats {
	s, p := f.stats, &f.pds.Stats
	s.PacketCounters, s.MessageCounters = p.Counters, f.ses.Stats
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
