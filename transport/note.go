package transport

import (
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Note says what only the FEP knows of a packet, for a tap that shows packets.
type Note struct {
	// Why says why the packet is sent ("new", "RTO", "NACK TRIMMED", "because of AR or
	// SYN"), or what became of a received one ("duplicate", "trimmed" if a NACK answered
	// it, "dropped: crc"; empty if it was accepted).
	Why string
	// Plain is set on a secured FEP: the packet from the PDS header on, without its
	// trailer, before it was sealed or after it was opened; nil if it did not open. Whole
	// is the received packet as it came, a copy because packets are opened in place.
	Plain, Whole []byte
}

// notes are the Notes of one train.
type notes struct {
	list []Note
	buf  []byte // memory of Plain and Whole
	open []byte // contents of the packet being processed, once it is opened
}

// Notes returns a Note for each packet of the train that the latest Transmit filled or the
// latest Receive processed, in order. It returns nil without Config.Notes. The Notes are
// valid until the next call of Transmit or Receive.
func (f *FEP) Notes() []Note {
	if f.notes == nil {
		return nil
	}
	return f.notes.list
}

func (n *notes) begin() {
	clear(n.list)
	n.list, n.buf = n.list[:0], n.buf[:0]
}

// keep returns a copy of b. Earlier copies stay valid.
func (n *notes) keep(b []byte) []byte {
	if cap(n.buf)-len(n.buf) < len(b) {
		n.buf = make([]byte, 0, max(dgram.SlabLen, len(b)))
	}
	at := len(n.buf)
	n.buf = append(n.buf, b...)
	return n.buf[at:len(n.buf):len(n.buf)]
}

// sent notes why the packet that was just encoded is sent.
func (n *notes) sent(why pds.Cause) { n.list = append(n.list, Note{Why: why.String()}) }

// sealing notes the contents of the newest packet before it is sealed.
func (n *notes) sealing(plain []byte) { n.list[len(n.list)-1].Plain = n.keep(plain) }

// dropped notes that a whole train was dropped. n may be nil.
func (n *notes) dropped(d *dgram.Datagram, r DropReason) {
	if n == nil {
		return
	}
	for range max(1, d.Segments()) {
		n.list = append(n.list, Note{Why: "dropped: " + r.String()})
	}
}

// noted is packet with a Note.
func (f *FEP) noted(d *dgram.Datagram, b []byte) {
	n := f.notes
	var note Note
	if f.sec != nil {
		note.Whole = n.keep(b)
	}
	n.open = nil
	was, dup, ooo, cut := f.Stats().Drops, f.pds.Stats.RxDup, f.pds.Stats.RxOOO, f.stats.RxTrimmed
	f.packet(d, b, nil)
	if n.open != nil {
		note.Plain = n.keep(n.open)
		n.open = nil
	}
	switch is := f.Stats().Drops; {
	case is != was:
		for r := range is {
			if is[r] != was[r] {
				note.Why = "dropped: " + DropReason(r).String()
				break
			}
		}
	case f.stats.RxTrimmed != cut:
		note.Why = "trimmed"
	case f.pds.Stats.RxDup != dup:
		note.Why = "duplicate"
	case f.pds.Stats.RxOOO != ooo:
		note.Why = "out of order"
	}
	n.list = append(n.list, note)
}

// looseCause is the Cause of a packet that belongs to no PDC's queue.
func looseCause(l *pds.Loose) pds.Cause {
	if l.Pad > 0 {
		return pds.CauseProbeSize
	}
	b := l.B[:l.N]
	if c, _, err := wire.ParseCP(b); err == nil {
		switch c.Ctl {
		case wire.CtlClearReq:
			return pds.CauseGtdAgain
		case wire.CtlCredit:
			return pds.CauseCredit
		case wire.CtlCreditReq:
			return pds.CauseCreditReq
		}
		return pds.CauseClose
	}
	if n, _, err := wire.ParseNack(b); err == nil && n.Code == wire.NackClosingInErr {
		return pds.CauseClose
	}
	return pds.CauseAnswer
}
