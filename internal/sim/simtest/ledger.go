package simtest

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// The ledger records what each side sent, what arrived and what was acknowledged. It learns
// that from the datagrams alone and never asks a FEP.

// A bitset is a set of small numbers, mostly of PSN − Start_PSN.
type bitset []uint64

func (b bitset) has(i uint32) bool { return int(i/64) < len(b) && b[i/64]>>(i%64)&1 != 0 }

func (b *bitset) set(i uint32) {
	for int(i/64) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// add adds n bytes at off of a message to a set of its parts of 1024 bytes. It returns how many
// of them are new, and whether the first one is.
func (b *bitset) add(off, n uint32) (bytes int, first bool) {
	for at := off; ; at = (at>>10 + 1) << 10 {
		if !b.has(at >> 10) {
			b.set(at >> 10)
			bytes += int(min(n-(at-off), 1024-at&1023))
			first = first || at == off
		}
		if (at>>10+1)<<10 >= off+n {
			return bytes, first
		}
	}
}

// full reports whether 0 to n−1 are all in the set, if 0 to below−1 are known to be.
func (b bitset) full(below, n uint32) bool {
	for below < n {
		if below%64 == 0 && n-below >= 64 {
			if int(below/64) >= len(b) || b[below/64] != ^uint64(0) {
				return false
			}
			below += 64
			continue
		}
		if !b.has(below) {
			return false
		}
		below++
	}
	return true
}

// A dir is one direction of one PDC: a PSN space.
type dir struct {
	host    *Host // the source
	life    int
	peer    *Host // the destination
	id      uint16
	remote  uint16 // the destination's PDCID as the source uses it, 0: not yet
	acker   uint16 // the destination's PDCID as its ACKs name it
	start   uint32
	forward bool
	rod     bool
	sent    []sentPSN // by PSN − start
	closed  bool      // CLOSE was sent: nothing new may follow
	// renumbered means that it replaced was, whose Start_PSN the target refused. It may send
	// new PSNs before it has sent all of was again.
	renumbered bool
	was        *dir
	twin       *dir // that of a former life of the source, which the destination takes for the same one
	replaced   bool // it was replaced so: the target executed nothing of it
	// holder is the life of the destination that has the PDC, by its first ACK or return data; 0: none came.
	holder int

	cackRx   uint32        // PSNs covered by the highest CACK that came back
	mpr      uint32        // the largest window that was offered
	answered bitset        // PSNs whose answer came back
	below    uint32        // all PSNs below it are answered
	newAt    time.Duration // when the newest of the answered ones was sent

	// lagged counts messages in a row that asked for no ACK, and lag is the last of them.
	// newest asked for none, too; it counts if no packet follows it in this turn.
	lagged  int
	lag     uint32
	newest  *sentPSN
	newestR reading
	ragged  bool // when newest left, a packet had no answer although a later one had

	rx []*rxLife
}

// rxLife is what one life of the destination received and acknowledged.
type rxLife struct {
	life int
	got  bitset
	void bitset // PSNs under which a void packet came first
	cut  bitset // PSNs of which only the header came
	cack uint32 // PSNs covered by the highest CACK it sent
}

// sentPSN is the packet with a PSN.
type sentPSN struct {
	form   uint8 // next_hdr of a write or a read
	op     *Op
	msg    uint16
	off, n uint32
	ctl    uint8 // control type + 1
	sentAt time.Duration
	lastAt time.Duration
	resent int
	hole   bool // not sent yet, although later ones are
	err    bool // a MSG_ERROR
	about  *Op  // it asks for that rendezvous send
}

func (d *dir) at(life int) *rxLife {
	for _, r := range d.rx {
		if r.life == life {
			return r
		}
	}
	r := &rxLife{life: life}
	d.rx = append(d.rx, r)
	return r
}

func (d *dir) String() string {
	return fmt.Sprintf("PDC %d of %s (start %d)", d.id, d.host.Name(), d.start)
}

type dirKey struct {
	host int
	id   uint16
}

type msgKey struct {
	d  *dir
	id uint16
}

// A record is what the ledger keeps of a sent datagram.
type record struct {
	reading
	dir  *dir
	idx  uint32 // PSN − start
	op   *Op
	from *Host
	life int // of from
	at   time.Duration
}

type ledger struct {
	w          *World
	records    []record // by Packet.ID − first
	first      uint64   // the ID of records[0]
	dirs       map[dirKey][]*dir
	opened     []*dir
	msgs       map[msgKey]*Op
	eye        *eye   // nil if packets are in clear
	withNewest []*dir // dirs with a newest
	// loans are the rendezvous sends by host and key, reads those that a read is of.
	loans map[loanKey]*Op
	reads map[msgKey]lentRead
	// By packet of RUDI, in which life: of its initiator it was sent, of its target it came, of its
	// initiator its answer came.
	rudis, asked, told map[rudiKey]int
}

// A lentRead is a read of a rendezvous send, from its byte at on.
type lentRead struct {
	op *Op
	at int
}

// A loanKey names the memory that a host has lent to a peer.
type loanKey struct {
	host *Host
	life int
	key  uint64
}

func (l *ledger) record(id uint64) *record {
	if id < l.first || id-l.first >= uint64(len(l.records)) {
		return nil
	}
	return &l.records[id-l.first]
}

// tap follows every datagram.
func (l *ledger) tap(now time.Duration, what sim.What, why sim.Why, p *sim.Packet) {
	w := l.w
	switch what {
	case sim.Sent:
		if l.first == 0 {
			l.first = p.ID
		}
		if w.spec.Long && len(l.records) == 2*recordsKept {
			l.first += recordsKept
			l.records = append(l.records[:0], l.records[recordsKept:]...)
		}
		l.records = append(l.records, record{at: now, from: w.byNode[p.From]})
		r := &l.records[len(l.records)-1]
		if r.from != nil {
			r.life = r.from.Life()
		}
		trailer := 4
		if w.spec.NoCRC {
			trailer = 0
		}
		if l.eye != nil && p.From != w.forger {
			r.reading = read(l.eye.open(w, p), 0)
		} else {
			r.reading = read(p.Data, trailer)
		}
		w.trace(traceEntry{at: now, what: what, rec: p.ID, from: p.From, dst: p.Dst})
		if w.packets++; w.packets > w.spec.MaxPackets {
			w.Failf("packet storm: more than %d datagrams were sent", w.spec.MaxPackets)
		}
		if h := w.gramNode[p.From]; h != nil {
			w.gramLeaves(h, r, p)
		} else if w.liedGram != nil && p.From == w.forger {
			w.gramSent[p.ID] = w.liedGram
		}
		if r.from != nil {
			w.sentBy[r.from.Index]++
			if w.spec.Tells {
				w.overheard(r, p)
			}
			if !w.spec.Forged {
				l.sent(now, r, p)
			}
		}
		r.payload = nil
	case sim.Lost:
		w.trace(traceEntry{at: now, what: what, why: why, marks: p.Marks, rec: p.ID, dst: p.Dst})
	case sim.Taken:
		w.trace(traceEntry{at: now, what: what, marks: p.Marks, rec: p.ID, dst: p.Dst})
		if h := w.gramAt[p.Dst]; h != nil {
			w.gramTaken(h, p)
			return
		}
		to := w.byAddr[p.Dst]
		if from := w.byNode[p.From]; from != nil && w.spec.Encapsulation == wire.Standard {
			if to.evs == nil {
				to.evs = map[*Host]map[uint16]bool{}
			}
			if to.evs[from] == nil {
				to.evs[from] = map[uint16]bool{}
			}
			to.evs[from][p.Src.Port()] = true
		}
		if p.Marks&sim.Trimmed != 0 {
			to.trimmed++
			w.cut++
			if p.Marks.Damaged() {
				to.wild++
			} else if r := l.record(p.ID); r != nil && r.dir != nil && r.dir.peer == to {
				r.dir.at(to.Life()).cut.set(r.idx)
			}
			return // only its header came
		}
		if p.Marks.Damaged() {
			to.damaged++
			return
		}
		if r := l.record(p.ID); r != nil && r.from != nil && !w.spec.Forged {
			l.taken(now, r, to, p)
		}
	}
}

// sent checks a packet that a FEP sends.
func (l *ledger) sent(now time.Duration, r *record, p *sim.Packet) {
	w, h := l.w, r.from
	if r.class == classBad || r.class == classOther || r.class == classUUD {
		w.Failf("%s sends a packet of no use: % x", h.Name(), p.Data)
	}
	to := w.byAddr[p.Dst]
	if w.spec.Encapsulation == wire.Standard {
		l.standard(r, to, p)
	}
	at := p.Dst
	if to != nil && (r.class == classData || r.class == classCP) && r.syn {
		at = to.Addr() // decision 47: a packet that opens a PDC names the main port, wherever it goes
	}
	if to != nil && len(p.Data) > 0 && wire.Type(p.Data[0]>>3) == wire.TypeRUDIReq {
		at = to.Addr() // decision 66: so does a request of RUDI
	}
	if !w.spec.NoCRC && l.eye == nil && !crcOK(p.Src, at, p.Data) {
		w.Failf("%s sends a wrong CRC: %s", h.Name(), &r.reading)
	}
	if p.TOS&3 == 0 {
		w.Failf("%s sends a packet that is not ECN capable: %s", h.Name(), &r.reading)
	}
	if want := w.dscp(r); p.TOS>>2 != want {
		w.Failf("%s sends with code point %d, not %d: %s", h.Name(), p.TOS>>2, want, &r.reading)
	}
	if to == nil {
		return
	}
	switch {
	case r.consumes():
		l.request(now, r, to)
	case r.class == classCP:
		l.ctl(r, to)
	case r.class == classAck:
		l.ack(r, to)
	case r.class == classNack && (r.code == 1 || r.code == 2):
		l.nackTrimmed(r, to)
	case r.class == classRUDI:
		l.rudi(r, to)
	}
}

// A rudiKey names a request of RUDI.
type rudiKey struct {
	from, to *Host
	id       uint32
}

// rudi checks a packet of RUDI: a request is a write or a read without header data (S-RUDI-02), and one
// that is sent again says so; an answer is to a request that came in this life (S-RUDI-01).
func (l *ledger) rudi(r *record, to *Host) {
	w, h := l.w, r.from
	if r.typ == 5 {
		if life := l.asked[rudiKey{to, h, r.psn}]; life != h.Life() && !w.spec.Hostile {
			w.Failf("%s answers what nobody asked: %s", h.Name(), &r.reading)
		}
		return
	}
	key := rudiKey{h, to, r.psn}
	if r.opcode != opWrite && r.opcode != opRead || r.hasHeader {
		w.Failf("%s sends by RUDI what may not happen twice: %s", h.Name(), &r.reading)
	}
	if again := l.rudis[key] == h.Life(); again != r.retx {
		w.Failf("%s sends a request again: %v, and says otherwise: %s", h.Name(), again, &r.reading)
	}
	l.rudis[key] = h.Life()
}

// rudiTaken notes a packet of RUDI that arrived.
func (l *ledger) rudiTaken(now time.Duration, r *record, to *Host) {
	key, seen := rudiKey{r.from, to, r.psn}, l.asked
	if r.typ == 5 {
		key, seen = rudiKey{to, r.from, r.psn}, l.told
		l.w.did.RUDI++
	}
	if seen[key] != to.Life() {
		l.w.progress = now
	}
	seen[key] = to.Life()
}

// standard checks a packet of Standard encapsulation: it goes to 4793, and an ACK or NACK
// repeats an entropy value that its peer has sent, or has none.
func (l *ledger) standard(r *record, to *Host, p *sim.Packet) {
	w, h, ev := l.w, r.from, p.Src.Port()
	if p.Dst.Port() != wire.Port {
		w.Failf("%s sends to port %d: %s", h.Name(), p.Dst.Port(), &r.reading)
	}
	if answer := r.class == classAck || r.class == classNack || r.class == classRUDI && r.typ == 5; answer && ev != wire.Port && !h.evs[to][ev] && !w.spec.Hostile {
		w.Failf("%s answers by the entropy value %d, by which nothing came: %s", h.Name(), ev, &r.reading)
	}
}

// dscp is the code point that a packet must have.
func (w *World) dscp(r *record) uint8 {
	cfg := &r.from.Config
	data := r.class == classData || r.class == classRUDI || r.class == classCP && r.next == ctlProbe // a PROBE queues with data
	switch {
	case !cfg.Trimming || data && w.spec.Secure != transport.SecureNone:
		return cfg.DSCP
	case !data:
		return cfg.Classes.Control
	case r.retx:
		return cfg.Classes.TrimmableRTX
	}
	return cfg.Classes.Trimmable
}

// nackTrimmed checks that NACK 01 or 02 names a packet that arrived trimmed, whether or not the
// whole packet arrived later.
func (l *ledger) nackTrimmed(r *record, to *Host) {
	w, h := l.w, r.from
	if h.wild > 0 || w.spec.Hostile {
		return // the damaged header may have named any packet
	}
	for _, d := range l.dirs[dirKey{to.Index, r.dpdcid}] {
		if i := r.psn - d.start; d.peer == h && i < uint32(len(d.sent)) && d.at(h.Life()).cut.has(i) {
			return
		}
	}
	w.Failf("%s refuses PSN %d as trimmed, which nobody trimmed: %s", h.Name(), r.psn, &r.reading)
}

// request checks a packet with a PSN of its own.
func (l *ledger) request(now time.Duration, r *record, to *Host) {
	w, h := l.w, r.from
	d := l.dirOf(r, to)
	i := r.psn - d.start
	r.dir, r.idx = d, i
	// UE 3.5.20.1: CLEAR covers only PSNs whose answers are in.
	if r.class == classData {
		l.clear(r, d)
	}
	next := uint32(len(d.sent))
	var s *sentPSN
	if i < next && d.sent[i].hole {
		s = &d.sent[i]
		*s = sentPSN{sentAt: now, lastAt: now}
		next = i // it is sent for the first time
	} else if i < next {
		s = &d.sent[i]
		s.resent++
		s.lastAt = now
		if !r.retx {
			w.Failf("%s resends PSN %d without RETX: %s", h.Name(), r.psn, &r.reading)
		}
	} else {
		// A refused PDC sends its packets again under another PDCID, not always in order.
		for reborn := h.refused == h.Life() || d.renumbered; reborn && i > uint32(len(d.sent)) && i < uint32(len(d.sent))+4096; {
			d.sent = append(d.sent, sentPSN{hole: true})
		}
		next = uint32(len(d.sent))
		if i != next {
			w.Failf("%s leaves a gap in its PSNs: %d after %d: %s", h.Name(), r.psn, d.start+next-1, &r.reading)
		}
		if r.retx && h.refused != h.Life() && !d.renumbered {
			w.Failf("%s sets RETX on a new PSN: %s", h.Name(), &r.reading)
		}
		if d.closed {
			w.Failf("%s sends a new PSN after its CLOSE: %s", h.Name(), &r.reading)
		}
		// UE 3.5.12: the peer's window counts from its CACK.
		if i >= d.cackRx+d.mpr {
			w.Failf("%s exceeds the window: PSN %d is %d beyond CACK, %d were offered", h.Name(), r.psn, i-d.cackRx+1, d.mpr)
		}
		d.sent = append(d.sent, sentPSN{sentAt: now, lastAt: now})
		s = &d.sent[i]
	}
	l.asks(r, d)
	if r.class == classCP {
		// A NOOP may replace a packet that the target refused and whose message has failed.
		if i < next && r.next == ctlNoop && s.op != nil {
			s.op.gaveUp = true
		} else if i < next && s.ctl != r.next+1 {
			w.Failf("%s resends PSN %d as another control packet: %s", h.Name(), r.psn, &r.reading)
		}
		s.ctl, s.op = r.next+1, nil
		if r.next == ctlClose {
			if !d.forward {
				w.Failf("%s closes a PDC that it did not open: %s", h.Name(), &r.reading)
			}
			if !d.answered.full(d.below, i) {
				w.Failf("%s sends CLOSE while PSNs are unanswered: %s", h.Name(), &r.reading)
			}
			d.closed = true
		}
		return
	}
	if r.returns() {
		l.returns(r, s, to) // in the return direction, as dirOf has found
		return
	}
	if !r.ses {
		w.Failf("%s sends a request without standard header: %s", h.Name(), &r.reading)
	}
	l.form(r, s)
	if op := l.loans[loanKey{to, to.Life(), r.tag}]; r.opcode == opRead && op != nil && w.Hosts[op.Peer] == h {
		l.reads[msgKey{d, r.msgID}] = lentRead{op, int(r.bufOff)}
	}
	if r.opcode == opRead || r.accesses() || r.opcode == opRTR {
		return
	}
	op := l.opOf(r, d, s)
	r.op, s.msg = op, r.msgID
	if i < next {
		other := r.opcode == opMsgError || r.opcode == opVoid
		if s.ctl != 0 || !other && (s.op != op || s.off != r.off || s.n != uint32(r.n)) {
			w.Failf("%s resends PSN %d as another packet: %s", h.Name(), r.psn, &r.reading)
		}
	}
	if op == nil || r.opcode == opVoid {
		return
	}
	s.op, s.off, s.n = op, r.off, uint32(r.n)
	if !r.ar && !r.syn && !r.retx && i == uint32(len(d.sent))-1 && op.txPieces == 0 { // and not under another PSN before
		d.newest, d.newestR, d.ragged = s, r.reading, d.below < i && d.sent[d.below].lastAt < d.newAt
		l.withNewest = append(l.withNewest, d)
	}
	if r.opcode == opEnd {
		return
	}
	if r.opcode == opMsgError {
		op.gaveUp = op.gaveUp || i < next && !s.err
		s.err = true
		return
	}
	if r.lent {
		l.announced(r, op)
		return
	}
	l.content(r, op)
}

// form checks which header a request has. The small one is of a write or a read without header data that is one
// packet. A request that goes again has the header that it had, and what goes in its place the standard one.
func (l *ledger) form(r *record, s *sentPSN) {
	w, h := l.w, r.from
	small := r.next == nextSmall
	if small {
		w.small++
		if r.opcode != opWrite && r.opcode != opRead || r.hasHeader || !r.som || !r.eom || r.opcode == opWrite && r.n != int(r.reqLen) || r.opcode == opRead && r.n != 0 {
			w.Failf("%s sends with the small header what it cannot say: %s", h.Name(), &r.reading)
		}
	}
	switch r.opcode {
	case opWrite, opRead:
		if s.form != 0 && s.form != r.next {
			w.Failf("%s sends PSN %d again with another header: %s", h.Name(), r.psn, &r.reading)
		}
		s.form = r.next
	}
}

// returns checks what is returned of the memory of a rendezvous send: it is the message, and has not ended.
func (l *ledger) returns(r *record, s *sentPSN, to *Host) {
	for i := len(l.dirs[dirKey{to.Index, r.dpdcid}]) - 1; i >= 0; i-- {
		d := l.dirs[dirKey{to.Index, r.dpdcid}][i]
		if !d.forward || d.peer != r.from {
			continue
		}
		read := l.reads[msgKey{d, r.msgID}]
		op := read.op
		if op == nil || r.rc > 1 || op.Host != r.from || op.Life != r.from.Life() {
			return
		}
		if op.Ended && !op.OK() {
			l.w.Failf("%s lends bytes of %v, which has ended: %s", r.from.Name(), op, &r.reading)
		}
		r.off += uint32(read.at)
		err := checkPattern(r.payload, op.ID, int(r.off))
		if err != nil {
			l.w.Failf("%s lends wrong bytes for %v: %v: %s", r.from.Name(), op, err, &r.reading)
		}
		r.op, s.op, s.msg, s.off, s.n = op, op, r.msgID, r.off, uint32(r.n)
		if op.txPieces++; op.txPieces == 1 {
			l.w.did.Read++
		}
		n, _ := op.tx.add(r.off, uint32(r.n))
		op.txBytes += n
		return
	}
}

// announced checks a rendezvous send.
func (l *ledger) announced(r *record, op *Op) {
	w, h := l.w, r.from
	want := uint8(opSend)
	if op.tagged() {
		want = opTSend
	}
	least, other := h.FEP.Config().RendezvousMin, l.loans[loanKey{h, h.Life(), r.key}]
	if op.Ended || least <= 0 || op.Len < least || op.Inject || op.early() || // it must not go by rendezvous
		r.opcode != want || op.tagged() && r.tag != op.tag || int(r.reqLen) != op.Len || !r.som || !r.eom || r.n != 0 ||
		r.initiator != op.name().Initiator || r.hasHeader != op.HasData || op.HasData && op.data != r.header || r.dc != (op.Level >= transport.LevelDelivery) ||
		r.rod != op.Ordered || other != nil && other != op {
		w.Failf("%s: wrong announcement of %v: %s", h.Name(), op, &r.reading)
	}
	if !op.lent {
		w.did.Lent++
		l.fenced(r, op)
	}
	l.loans[loanKey{h, h.Life(), r.key}] = op
	op.lent, op.key = true, r.key
}

// content checks a packet against the message it is part of.
func (l *ledger) content(r *record, op *Op) {
	w, h := l.w, r.from
	again := op.released && op.tx.has(r.off/1024) // from a copy: the PDC is others', too
	if op.Ended && !op.early() && !op.Inject && !again {
		w.Failf("%s sends a packet of %v, which has ended: %s", h.Name(), op, &r.reading)
	}
	if op.Ended && !again && op.Event.Cause != 0 && !op.Event.Unknown && !op.WrongRI {
		w.Failf("%s sends a packet of %v, which failed for certain: %s", h.Name(), op, &r.reading)
	}
	if err := checkPattern(r.payload, op.ID, int(r.off)); err != nil {
		w.Failf("%s sends wrong bytes for %v: %v: %s", h.Name(), op, err, &r.reading)
	}
	want := uint8(opSend)
	if op.tagged() {
		want = opTSend
	}
	last := int(r.off)+r.n == op.Len
	switch {
	case r.opcode != want:
		w.Failf("%s: wrong opcode for %v: %s", h.Name(), op, &r.reading)
	case int(r.reqLen) != op.Len:
		w.Failf("%s: request_length %d for %v: %s", h.Name(), r.reqLen, op, &r.reading)
	case r.som != (r.off == 0) || r.eom != last:
		w.Failf("%s: wrong SOM or EOM for %v: %s", h.Name(), op, &r.reading)
	case !last && (r.n&(r.n-1) != 0 || r.n < 1024 || r.n > h.FEP.Config().PayloadMTU):
		w.Failf("%s: a packet in the middle of %v has %d bytes, not one payload MTU: %s", h.Name(), op, r.n, &r.reading)
	case op.tagged() && r.tag != op.tag:
		w.Failf("%s: tag %#x for %v: %s", h.Name(), r.tag, op, &r.reading)
	case r.initiator != op.name().Initiator:
		w.Failf("%s: initiator %d for %v: %s", h.Name(), r.initiator, op, &r.reading)
	case r.hasHeader != (op.HasData && r.som) || r.hasHeader && r.header != op.data:
		w.Failf("%s: wrong header data for %v: %s", h.Name(), op, &r.reading)
	case r.dc != (op.Level >= transport.LevelDelivery):
		// R-CMPL-11: DC exactly when the level is delivery, or stronger.
		w.Failf("%s: wrong DC for %v: %s", h.Name(), op, &r.reading)
	case r.deferrable && op.Level != transport.LevelMatch && (h.FEP.Config().DeferrableMin <= 0 || op.Len < h.FEP.Config().DeferrableMin):
		w.Failf("%s: %v must not be deferrable: %s", h.Name(), op, &r.reading)
	case r.rod != (op.Ordered && r.ours == 0):
		w.Failf("%s: wrong mode for %v: %s", h.Name(), op, &r.reading)
	}
	if op.txPieces == 0 {
		l.fenced(r, op)
	}
	if key := (msgKey{r.dir, r.msgID}); r.ours != 0 && op.restarted != key {
		// The target has deferred it, and asked for all of it.
		op.restarted = key
		op.tx, op.txBytes, op.txPieces, op.answered, op.ansBytes, op.by = nil, 0, 0, nil, 0, nil
	}
	if r.deferrable {
		op.token = r.own
	}
	if op.by != r.dir {
		l.moved(r, op)
		op.by = r.dir
	}
	if n, first := op.tx.add(r.off, uint32(r.n)); n > 0 || first {
		op.txPieces++
		op.txBytes += n
	}
}

// moved checks that a message goes by another PDC only if no life of the target that had the
// former one got all of it (docs/faults.md rule 3): that life may have executed it.
func (l *ledger) moved(r *record, op *Op) {
	if op.by == nil || op.refused || op.voided || r.dir.renumbered || op.by.renumbered || op.by.replaced || r.from.refused == r.from.Life() {
		return // or the target refused the message, or the PDC with all its packets, which may be what came
	}
	for _, d := range op.lives {
		if op.by.gave(op, d) && (op.by.holder == d.life || op.by.holder == 0) {
			l.w.Failf("%s sends %v again on another PDC, although %s had all of it in life %d: %s", r.from.Name(), op, op.by.peer.Name(), d.life, &r.reading)
		}
	}
}

// gave reports whether all of a message came to a life of the destination on this PDC, and was not deferred.
// Parts that came on another one count for nothing: whoever did not have that one refused them.
func (d *dir) gave(op *Op, to *delivery) bool {
	rx, n := d.at(to.life), 0
	var parts bitset
	for i := range d.sent {
		s := &d.sent[i]
		if s.op != op || s.err || !rx.got.has(uint32(i)) || rx.void.has(uint32(i)) || slices.Contains(to.deferred, msgKey{d, s.msg}) {
			continue
		}
		k, first := parts.add(s.off, s.n)
		if n += k; n == op.Len && (n > 0 || first) {
			return true
		}
	}
	return false
}

// fenced checks that a send with a fence, and what was posted after it, leaves only when what
// was posted before it has ended (R-ORD-07).
func (l *ledger) fenced(r *record, op *Op) {
	h := r.from
	for i := 0; i < len(h.fences); i++ {
		f := h.fences[i]
		if f.Peer != op.Peer || f.From != op.From || f.postSeq > op.postSeq {
			continue
		}
		if l.w.mayFail(op) {
			return // an earlier send may have just failed, and its event not be read yet
		}
		for _, o := range h.sends {
			if o.had {
				continue
			}
			if o.Peer == f.Peer && o.From == f.From && o.postSeq < f.postSeq && !o.Failed() && !o.refused && (o.ansBytes < o.Len || len(o.answered) == 0) {
				l.w.Failf("%s sends %v before %v has ended, by the fence of %v: %s", h.Name(), op, o, f, &r.reading)
			}
		}
		h.fences = append(h.fences[:i], h.fences[i+1:]...)
		i--
	}
}

// dirOf returns the PSN space of a request. It opens one for the first request in it.
func (l *ledger) dirOf(r *record, to *Host) *dir {
	w, h := l.w, r.from
	k := dirKey{h.Index, r.spdcid}
	var d *dir
	if ds := l.dirs[k]; len(ds) > 0 {
		d = ds[len(ds)-1]
		if d.life != h.Life() || d.peer != to || int32(r.psn-d.start) < 0 || r.psn-d.start > uint32(len(d.sent))+1<<15 {
			d = nil
		}
	}
	if r.spdcid == 0 {
		w.Failf("%s uses PDCID 0: %s", h.Name(), &r.reading)
	}
	if r.syn {
		if d == nil || !d.forward || d.start != r.start {
			// S-SYN-03: the target asked for another Start_PSN and accepted nothing of this
			// one.
			again := false
			if ds := l.dirs[k]; len(ds) > 0 && w.spec.Secure != transport.SecureNone {
				last := ds[len(ds)-1]
				again = last.life == h.Life() && last.peer == to && last.forward && last.cackRx == 0 && !last.closed
			}
			d = l.open(k, h, to, r.start, r.rod, again)
			d.forward, d.renumbered = true, again
			if again {
				d.was = l.dirs[k][len(l.dirs[k])-2]
				d.was.replaced = true
			}
		}
		return d
	}
	back := r.class == classData && r.next >= 5 || r.class == classCP && r.next == ctlCloseReq
	if d != nil && d.forward == !back && (d.remote == 0 || d.remote == r.dpdcid) {
		d.remote = r.dpdcid
		return d
	}
	// UE 3.5.8: the return direction starts at the same Start_PSN.
	for i := len(l.dirs[dirKey{to.Index, r.dpdcid}]) - 1; i >= 0; i-- {
		if f := l.dirs[dirKey{to.Index, r.dpdcid}][i]; f.forward && f.peer == h && r.psn == f.start {
			d = l.open(k, h, to, f.start, f.rod, false)
			d.remote = r.dpdcid
			switch {
			case f.holder == 0:
				f.holder = h.Life() // what it returns tells its PDCID as well as an ACK does
			case f.holder != h.Life() && f.acker == k.id && w.spec.Secure == transport.SecureNone:
				w.twins = true // a former life answered by that PDCID, and returned nothing (T22)
			}
			return d
		}
	}
	w.Failf("%s sends on a PDC that nobody opened: %s", h.Name(), &r.reading)
	return nil
}

// open adds a PSN space. again means that the target refused the Start_PSN of the one before.
func (l *ledger) open(k dirKey, h, to *Host, start uint32, rod, again bool) *dir {
	w := l.w
	if ds := l.dirs[k]; len(ds) > 0 && !again {
		// S-PSN-03: the next Start_PSN of a PDCID is at least 2¹⁶ away from the last PSN used
		// with it.
		last := ds[len(ds)-1]
		if last.life == h.Life() && last.forward {
			gap := int32(start - last.start - uint32(len(last.sent)))
			if gap < 1<<16 && gap > -(1<<16) && !w.spec.StartPSNFixed {
				w.Failf("%s opens PDC %d again at Start_PSN %d, only %d from the last", h.Name(), k.id, start, gap)
			}
		}
	}
	d := &dir{host: h, life: h.Life(), peer: to, id: k.id, start: start, rod: rod, mpr: 128}
	if ds := l.dirs[k]; w.spec.SameRandom && w.spec.Secure == transport.SecureNone && len(ds) > 0 {
		// A target whose former life drew the same PDCID for the same PDC of the peer returns from the
		// same PSN on. In clear the peer cannot tell the two lives apart (T22): it acknowledges what it
		// had from either.
		if last := ds[len(ds)-1]; last.life != h.Life() && last.peer == to && !last.forward && last.start == start {
			d.twin, w.twins = last, true
			d.rx = append(d.rx, last.at(to.Life()))
		}
	}
	l.dirs[k] = append(l.dirs[k], d)
	l.opened = append(l.opened, d)
	return d
}

// opOf returns the message that a request is part of.
func (l *ledger) opOf(r *record, d *dir, s *sentPSN) *Op {
	w, h := l.w, r.from
	key := msgKey{d, r.msgID}
	switch {
	case r.opcode == opMsgError || r.opcode == opEnd:
		return l.msgs[key]
	case r.opcode == opVoid:
		w.void++
		if s.op != nil {
			s.op.voided = true
		}
		if r.rod { // those behind it come back as well
			for i := r.idx + 1; i < uint32(len(d.sent)) && i <= r.idx+uint32(r.header); i++ {
				if o := d.sent[i].op; o != nil {
					o.voided = true
				}
			}
		}
		return s.op
	case r.opcode == opNoOp:
		s.about = l.loans[loanKey{h, h.Life(), r.tag}]
		return nil
	case r.opcode == opRead, r.accesses():
		return nil
	case r.lent && l.loans[loanKey{h, h.Life(), r.key}] != nil:
		op := l.loans[loanKey{h, h.Life(), r.key}]
		l.msgs[key] = op
		return op
	case len(r.payload) >= 8:
		id, off := readPattern(r.payload)
		op := w.op(id)
		if op == nil || !op.send() || off != int(r.off) {
			w.Failf("%s sends bytes of no message (%d at %d): %s", h.Name(), id, off, &r.reading)
		}
		if op.Host != h || op.Life != h.Life() || w.Hosts[op.Peer] != d.peer {
			w.Failf("%s sends bytes of %v to %s: %s", h.Name(), op, d.peer.Name(), &r.reading)
		}
		l.msgs[key] = op
		return op
	case !r.som:
		op := l.msgs[key]
		if op == nil {
			op = l.before(d, r.msgID)
		}
		if op == nil {
			w.Failf("%s sends the rest of a message that never began: %s", h.Name(), &r.reading)
		}
		return op
	case s.op != nil:
		return s.op // a resend
	}
	// fits reports whether a message that is too short to carry its number may be that one.
	fits := func(o *Op) bool {
		if to := o.aim(); r.pid != to.PIDonFEP || r.ri != to.RI {
			return false
		}
		if r.lent && (o.Inject || o.early() || o.txPieces > 0 && !o.lent) {
			return false
		}
		return (o.Open() || o.OK() && o.early()) && o.Kind == transport.OpSend && o.Life == h.Life() && !o.HasData && o.Len == int(r.reqLen) && w.Hosts[o.Peer] == d.peer &&
			o.name().Initiator == r.initiator && o.Ordered == r.rod && r.dc == (o.Level >= transport.LevelDelivery) && checkPattern(r.payload, o.ID, 0) == nil
	}
	op := l.before(d, r.msgID)
	switch {
	case op != nil:
	case r.opcode == opTSend:
		op = w.op(tagID(r.tag))
	case r.hasHeader:
		op = w.op(uint32(r.header))
	case r.ours != 0:
		for _, o := range h.sends {
			if o.token == r.own && w.Hosts[o.Peer] == d.peer && !o.Lost {
				op = o
			}
		}
	default:
		// It is too short to carry its number. If a target refused the PDC that it was sent on
		// before (NACK 15), it has the same message id on the next. Else choose the oldest that
		// looks like it, if possible one that was not sent yet, else one that was not answered.
		if o := l.refused(d, r.msgID); o != nil && len(o.answered) == 0 && fits(o) {
			op = o
		}
		for pass := 0; pass < 3 && op == nil; pass++ {
			for _, o := range h.sends {
				if fits(o) && (pass == 2 || o.txPieces == 0 && !o.lent || pass == 1 && len(o.answered) == 0) {
					op = o
					break
				}
			}
		}
	}
	if op == nil || op.Host != h || op.Life != h.Life() || w.Hosts[op.Peer] != d.peer {
		w.Failf("%s sends a message that nobody posted: %s", h.Name(), &r.reading)
	}
	l.msgs[key] = op
	return op
}

// before returns the message with that id on the PSN spaces that d replaced, nil if there is
// none.
func (l *ledger) before(d *dir, id uint16) *Op {
	for d.renumbered {
		d = d.was
		if op := l.msgs[msgKey{d, id}]; op != nil {
			return op
		}
	}
	return nil
}

// refused returns the message with that id on the latest PSN space to the same peer, before d, that
// had one, nil if there is none or no target has refused a PDC of the host.
func (l *ledger) refused(d *dir, id uint16) *Op {
	if d.host.refused != d.life {
		return nil
	}
	for _, q := range slices.Backward(l.opened) {
		if q != d && q.host == d.host && q.life == d.life && q.peer == d.peer && q.rod == d.rod {
			if op := l.msgs[msgKey{q, id}]; op != nil {
				return op
			}
		}
	}
	return nil
}

// clear checks a CLEAR_PSN.
func (l *ledger) clear(r *record, d *dir) {
	n := r.clear + 1 - d.start // PSNs covered
	if int32(n) < 0 {
		return
	}
	if n > uint32(len(d.sent)) || !d.answered.full(d.below, n) {
		l.w.Failf("%s clears PSN %d without having its answer: %s", r.from.Name(), r.clear, &r.reading)
	}
}

// ctl checks a control packet without PSN.
func (l *ledger) ctl(r *record, to *Host) {
	if r.next == ctlProbe || r.next == ctlAckReq {
		for _, d := range l.dirs[dirKey{r.from.Index, r.spdcid}] {
			l.asks(r, d)
		}
	}
	if r.next != ctlClear {
		return
	}
	if ds := l.dirs[dirKey{r.from.Index, r.spdcid}]; len(ds) > 0 && ds[len(ds)-1].peer == to {
		l.clear(r, ds[len(ds)-1])
	}
}

// nothingSent reports whether an acknowledgement answers a PROBE of a target that has returned nothing yet, such as
// one that searches for the size that the path carries. Both directions of a PDC begin at the same PSN.
func (l *ledger) nothingSent(r *record, to *Host) bool {
	return r.probe && slices.ContainsFunc(l.dirs[dirKey{r.from.Index, r.spdcid}], func(d *dir) bool { return d.peer == to && d.start == r.cack+1 })
}

// ack checks an acknowledgement against what its sender received.
func (l *ledger) ack(r *record, to *Host) {
	w, h := l.w, r.from
	var d *dir
	ds := l.dirs[dirKey{to.Index, r.dpdcid}]
	for i := len(ds) - 1; i >= 0 && d == nil; i-- {
		if n := r.cack + 1 - ds[i].start; ds[i].peer == h && n <= uint32(len(ds[i].sent)) {
			d = ds[i]
		}
	}
	if d == nil && l.nothingSent(r, to) {
		return
	}
	if d == nil {
		w.Failf("%s acknowledges what was never sent: %s", h.Name(), &r.reading)
	}
	r.dir = d
	d.acker = r.spdcid
	if i := r.ackPSN - d.start; r.hasRsp && r.rc > 1 && !r.probe && i < uint32(len(d.sent)) && d.sent[i].op != nil {
		d.sent[i].op.refused = true // all of it may go again (S-GEN-55)
	}
	if i := r.ackPSN - d.start; r.deferred && !r.probe && i < uint32(len(d.sent)) && d.sent[i].op != nil && (d.sent[i].op.Len > 0 || d.sent[i].op.Level == transport.LevelMatch) {
		if h.deferred = true; !d.sent[i].op.lent {
			if len(d.sent[i].op.deferrals) == 0 {
				w.did.Deferred++
			}
			d.sent[i].op.putOff(msgKey{d, d.sent[i].msg}, h.Life())
		}
	}
	if i := r.ackPSN - d.start; r.had && !r.probe && i < uint32(len(d.sent)) && d.sent[i].about != nil {
		d.sent[i].about.had = true
	}
	if d.holder == 0 {
		d.holder = h.Life()
	}
	n := r.cack + 1 - d.start
	rx := d.at(h.Life())
	// UE 3.5.8: the CACK of a closing ACK is one below the PSN of the CLOSE. It covers what a
	// former life answered.
	closing := !r.probe && d.closed && r.ackPSN-d.start == n && int(n) < len(d.sent) && d.sent[n].ctl == ctlClose+1 && rx.got.has(n)
	if !closing && !rx.got.full(min(n, rx.cack), n) {
		w.Failf("%s: CACK %d covers a PSN that never arrived: %s", h.Name(), r.cack, &r.reading)
	}
	// The ACK of a control packet, which has no SACK, is made when that packet comes, and may leave behind
	// a later one.
	if n < rx.cack && r.hasSACK {
		w.Failf("%s: CACK goes back from %d: %s", h.Name(), d.start+rx.cack-1, &r.reading)
	}
	rx.cack = max(n, rx.cack)
	// A PSN that CACK covers may have been answered in another way. Beyond CACK an ACK names
	// only what arrived.
	if i := r.ackPSN - d.start; !r.probe && int32(r.ackPSN-r.cack) > 0 && !rx.got.has(i) {
		w.Failf("%s acknowledges PSN %d, which never arrived: %s", h.Name(), r.ackPSN, &r.reading)
	}
	for m := r.sack; r.hasSACK && m != 0; m &= m - 1 {
		psn := r.sackBase + uint32(bits.TrailingZeros64(m))
		if i := psn - d.start; int32(i) >= 0 && !rx.got.has(i) {
			w.Failf("%s: SACK names PSN %d, which never arrived: %s", h.Name(), psn, &r.reading)
		}
	}
}

// taken records a packet that a FEP received.
func (l *ledger) taken(now time.Duration, r *record, to *Host, p *sim.Packet) {
	if r.class == classNack && r.code != nackNoAnswerYet {
		l.lagRefused(r, to)
	}
	switch {
	case r.class == classRUDI:
		l.rudiTaken(now, r, to)
	case r.class == classNack && r.code == 0x11:
		if t := &to.talks[r.from.Index]; t.lag != nil && t.lag.id == r.dpdcid {
			t.lag = nil // its PDC ended
		}
	case r.class == classNack && (r.code == 0x0f || r.code == 0x15 || r.code == 0x16):
		to.refused = to.Life()
	case r.class == classData && r.dir != nil && r.dir.peer == to:
		if rx := r.dir.at(to.Life()); !rx.got.has(r.idx) {
			rx.got.set(r.idx)
			if r.returns() || r.opcode == opRead || r.accesses() || r.opcode == opRTR {
				l.w.progress = now
			}
			if r.opcode == opVoid {
				rx.void.set(r.idx)
			}
		}
		to.talks[r.from.Index].heard = true // also for the first time: it may have been refused before
		if r.op != nil && !r.lent && r.opcode != opMsgError && r.opcode != opEnd && r.opcode != opVoid && !r.dir.at(to.Life()).void.has(r.idx) {
			l.w.seq++
			if r.op.arrived(now, l.w.seq, to.Life(), r) {
				l.w.progress = now
			}
		}
	case r.consumes() && r.dir != nil && r.dir.peer == to:
		r.dir.at(to.Life()).got.set(r.idx)
	case r.class == classAck && r.dir != nil && r.dir.host == to:
		d := r.dir
		n := r.cack + 1 - d.start
		if d.life != to.Life() {
			// It was meant for a former life. To a twin it is as good as its own.
			ds := l.dirs[dirKey{to.Index, d.id}]
			if d = ds[len(ds)-1]; d.twin != r.dir || d.life != to.Life() || n > uint32(len(d.sent)) {
				return
			}
		}
		d.cackRx = max(d.cackRx, n)
		if r.hasSACK {
			if r.mpr == 0 {
				d.mpr = 1 << 30
			}
			d.mpr = max(d.mpr, 128*uint32(r.mpr))
		}
		for d.below < n {
			if d.answer(d.below, r.life) {
				l.w.progress = now
			}
			d.below++
		}
		if !r.probe && int32(r.ackPSN-d.start) >= 0 && d.answer(r.ackPSN-d.start, r.life) {
			l.w.progress = now
		}
		for d.answered.has(d.below) {
			d.below++
		}
	}
}

// answer records that a life of the peer acknowledged a PSN, and reports whether that is new.
func (d *dir) answer(i uint32, life int) bool {
	if d.answered.has(i) || int(i) >= len(d.sent) {
		return false
	}
	d.answered.set(i)
	s := &d.sent[i]
	d.newAt = max(d.newAt, s.sentAt)
	if s.op == nil {
		return true
	}
	for _, rx := range d.rx {
		if rx.void.has(i) {
			return true // nothing of the message was executed
		}
	}
	if (s.n > 0 || s.op.Len == 0) && !slices.Contains(s.op.delivery(life).deferred, msgKey{d, s.msg}) { // a MSG_ERROR carries nothing
		n, _ := s.op.answered.add(s.off, s.n)
		s.op.ansBytes += n
	}
	return true
}

// putOff records that a life of the target has deferred the message, and keeps nothing of what came.
func (o *Op) putOff(key msgKey, life int) {
	if slices.Contains(o.deferrals, key) || o.restarted == key {
		return
	}
	o.deferrals = append(o.deferrals, key)
	d := o.delivery(life)
	d.deferred = append(d.deferred, key)
	for _, d := range o.lives {
		if d.life == life || d.receive == nil { // what came to a former life was refused, or it would not come again
			d.pieces, d.bytes, d.allAt, d.allSeq = nil, 0, 0, 0
		}
	}
}

// arrived records that a part of the message reached its target and reports whether
// that is new.
func (o *Op) arrived(now time.Duration, seq uint64, life int, r *record) bool {
	d := o.delivery(life)
	if slices.Contains(d.deferred, msgKey{r.dir, r.msgID}) {
		return false // nothing of it is kept
	}
	d.had = d.had || r.dir.holder == 0 || r.dir.holder == life
	if !slices.Contains(d.dirs, r.dir) {
		d.dirs = append(d.dirs, r.dir)
	}
	n, first := d.pieces.add(r.off, uint32(r.n))
	if n == 0 && !first {
		return false
	}
	d.bytes += n
	if d.bytes == o.Len {
		d.allAt, d.allSeq = now, seq
	}
	return true
}

// A PDC is one direction of a packet delivery context, as a reader of the packets on the path
// knows it.
type PDC struct {
	From, To   int
	ID, Remote uint16
	Start      uint32
	Sent       int // PSNs used
	ROD        bool
	Forward    bool // the initiator's direction
}

// PDCs returns the directions in which a host has sent, oldest first.
func (w *World) PDCs(from int) []PDC {
	var v []PDC
	for i := range w.ledger.opened {
		d := w.ledger.opened[i]
		if d.host.Index != from || d.life != d.host.Life() {
			continue
		}
		p := PDC{From: from, To: d.peer.Index, ID: d.id, Remote: d.remote, Start: d.start, Sent: len(d.sent), ROD: d.rod, Forward: d.forward}
		if p.Remote == 0 {
			p.Remote = d.acker
		}
		v = append(v, p)
	}
	return v
}
