package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// maxOps bounds the operations that wait for something. Beyond it, new ones are counted and
// forgotten.
const maxOps = 1 << 16

// An opKey finds an operation by what its packets say: of a PDC the direction and the message, or
// the PSN where the header has no message; without a PDC both ends and the message, or the id of
// the packet.
type opKey struct {
	pdc      *pdc
	from     int
	src, dst netip.AddrPort
	id       uint64
}

// byPSN marks ids that are no messages.
const byPSN = 1 << 32

// An operation is a request and what answers it: of one packet or of many.
type operation struct {
	list     *follower
	key      opKey
	src, dst netip.AddrPort
	mode     wire.Mode
	pdc      *pdc
	from     int

	opcode wire.Opcode
	atomic *wire.Atomic
	commit bool // asks that bytes become durable, and carries none
	msg    uint16
	hasMsg bool
	where  uint64 // memory key or match bits
	hasKey bool
	small  bool             // the resource index is the key
	lent   *wire.Rendezvous // of a rendezvous send: the memory that its target reads
	reads  int              // that brought some of it
	read   uint64           // bytes of it that they brought
	offset uint64           // in the region
	len    uint64
	data   uint64 // header data
	has    bool   // there is some

	began, last time.Time
	som, eom    bool
	packets     int    // of the request, resends left out
	resent      int    // of the request and of what is returned
	covered     uint64 // bytes of the request that were seen
	open        int    // packets that nothing answered
	answers     int    // packets that return something
	returned    uint64
	refusals    int
	refusal     wire.NackCode
	rc          wire.RC
	over        bool
	took        time.Duration
}

// A follower joins requests with what answers them.
type follower struct {
	open    map[opKey]*operation
	order   []*operation // of those that are open, and of some that have ended
	touched []*operation // by the packet that is handled
	failed  map[opKey]bool
	asks    map[rudiKey]*operation // packets by RUDI that are not answered
	lent    map[lentKey]*operation // rendezvous sends that are open
	lost    int
	told    func(*operation) // gets each that ends
}

// A rudiKey is a packet of a request by RUDI.
type rudiKey struct {
	src, dst netip.AddrPort
	id       uint32
}

// A lentKey is memory that a rendezvous send lends to its target.
type lentKey struct {
	from, to netip.Addr
	key      uint64
}

func newFollower(told func(*operation)) *follower {
	return &follower{open: map[opKey]*operation{}, failed: map[opKey]bool{}, asks: map[rudiKey]*operation{}, lent: map[lentKey]*operation{}, told: told}
}

// packet handles a packet, which the tracker has handled before.
func (f *follower) packet(k *packet, n *note) {
	m := k.msg
	if m == nil || m.err != nil || k.tail == trailerBad || k.tail == trailerICVBad || k.tail == trailerTrimmed {
		f.settle(k.at)
		return
	}
	switch {
	case m.uud != nil:
		f.datagram(k)
	case m.rudi != nil && m.typ == wire.TypeRUDIReq:
		f.rudiRequest(k)
	case m.rudi != nil:
		f.rudiResponse(k)
	case m.nack != nil && m.nack.Flags&wire.NackFlagNT != 0:
		if o := f.asks[rudiKey{k.dst, k.src, uint32(m.nack.PSN)}]; o != nil {
			o.refused(m.nack.Code)
		}
	case n.pdc == nil:
	case m.req != nil && (m.rdata != nil || m.rsmall != nil):
		if n.copied {
			break
		}
		f.result(k, n, n.times == 1)
	case m.req != nil:
		f.request(k, n)
	case m.ack != nil:
		f.result(k, n, true)
	case m.nack != nil && n.sent != nil && n.sent.op != nil:
		n.sent.op.refused(m.nack.Code)
	}
	f.settle(k.at)
}

func (o *operation) refused(c wire.NackCode) {
	o.refusals++
	o.refusal = c
}

// begin makes the operation of a request packet and finds it again by key. It returns nil if there
// are too many.
func (f *follower) begin(k *packet, key opKey) *operation {
	if len(f.open) >= maxOps {
		f.lost++
		return nil
	}
	o := &operation{list: f, key: key, src: k.src, dst: k.dst, pdc: key.pdc, from: key.from, began: k.at}
	o.fill(k)
	f.open[key] = o
	if f.order = append(f.order, o); len(f.order) > 2*maxOps {
		f.order = slices.DeleteFunc(f.order, func(o *operation) bool { return o.over })
	}
	delete(f.failed, key)
	return o
}

// fill reads the headers of the first packet.
func (o *operation) fill(k *packet) {
	m := k.msg
	switch {
	case m.std != nil:
		h := m.std
		o.opcode, o.msg, o.hasMsg = h.Opcode, h.MsgID, true
		o.where, o.hasKey, o.offset, o.len = h.Match, true, h.BufOff, uint64(h.ReqLen)
	case m.medium != nil:
		h := m.medium
		o.opcode, o.where, o.hasKey, o.offset, o.len = h.Opcode, h.Match, true, h.BufOff, uint64(h.ReqLen)
	case m.small != nil:
		h := m.small
		o.opcode, o.where, o.small, o.offset, o.len = h.Opcode, uint64(h.RI), true, h.BufOff, uint64(h.ReqLen)
	}
	if o.atomic = m.atomic; o.atomic != nil && o.atomic.Op.Compares() && o.atomic.Type.Size() > 0 {
		o.len = uint64(o.atomic.Type.Size()) // one element, whatever the places of the extension take
	}
	switch {
	case m.uud != nil:
		o.mode = wire.UUD
	case m.rudi != nil:
		o.mode = wire.RUDI
	case m.req != nil:
		o.mode = m.req.Mode()
	}
}

// part adds a packet of the request that was not there before.
func (o *operation) part(k *packet) {
	m := k.msg
	o.packets++
	o.last = k.at
	n := uint64(k.data())
	o.covered += n
	switch {
	case m.std != nil:
		f := m.std.Flags
		if f&wire.SESSOM != 0 {
			o.som = true
			if f&wire.SESHD != 0 {
				o.data, o.has = m.std.HeaderData, true
			}
			o.commit = o.opcode == wire.OpWrite && f&(wire.SESEOM|wire.SESDC) == wire.SESEOM|wire.SESDC && n == 0 && o.len > 0
		}
		o.eom = o.eom || f&wire.SESEOM != 0
	case m.medium != nil:
		o.som, o.eom = true, true
		if m.medium.Flags&wire.SESHD != 0 {
			o.data, o.has = m.medium.HeaderData, true
		}
	default:
		o.som, o.eom = true, true
	}
	if m.lent != nil && o.lent == nil {
		o.lent = m.lent
		o.list.lent[lentKey{o.src.Addr(), o.dst.Addr(), o.lent.ReadMatch}] = o
	}
	if o.opcode.HasAtomic() {
		o.covered = o.len // the operands of a comparison are in the extension
	}
}

// request handles a packet of a request on a PDC.
func (f *follower) request(k *packet, n *note) {
	if n.copied || n.sent == nil || !k.msg.operates() {
		return
	}
	if o := n.sent.op; o != nil {
		if !o.over {
			o.resent++
		}
		return
	}
	if n.times > 1 {
		return // of one that has ended
	}
	key := opKey{pdc: n.pdc, from: n.from, id: byPSN | uint64(k.msg.req.PSN)}
	som := true
	if s := k.msg.std; s != nil {
		key.id, som = uint64(s.MsgID), s.Flags&wire.SESSOM != 0
	}
	o := f.open[key]
	if o != nil && som && o.som && k.msg.req.Flags&wire.FlagRETX == 0 {
		f.finish(o, k.at, false) // the id is used again, and the end was not captured
		o = nil
	}
	if o == nil {
		if !som && f.failed[key] {
			return // what is left of one that failed
		}
		if o = f.begin(k, key); o == nil {
			return
		}
	}
	o.part(k)
	if n.unseen {
		o.resent++
	}
	if !n.sent.answered {
		o.open++
	}
	n.sent.op = o
	f.touched = append(f.touched, o)
}

// result handles what a packet says of an operation of the other end. fresh is false for return
// data that came before.
func (f *follower) result(k *packet, n *note, fresh bool) {
	m := k.msg
	key := opKey{pdc: n.pdc, from: 1 - n.from}
	var o *operation
	if m.ack != nil && n.sent != nil {
		o = n.sent.op
	}
	if o == nil {
		id, ok := m.msgID()
		if key.id = uint64(id); m.rsmall != nil {
			key.id, ok = byPSN|uint64(m.rsmall.ReqPSN), true
			if s := n.pdc.dir[key.from].sent[m.rsmall.ReqPSN]; s != nil && s.op != nil {
				key = s.op.key
			}
		}
		if !ok {
			return
		}
		o = f.open[key]
	}
	if o == nil || o.over {
		return
	}
	f.touched = append(f.touched, o)
	switch {
	case m.rsp != nil:
		o.said(m.rsp.RC)
	case (m.rdata != nil || m.rsmall != nil) && fresh:
		o.answered(k)
	case m.rdata != nil || m.rsmall != nil:
		o.resent++
	}
}

// said notes a return code.
func (o *operation) said(c wire.RC) {
	if c != wire.RCNull && (o.rc == wire.RCNull || o.rc == wire.RCOK) {
		o.rc = c
	}
}

// answered adds a packet that returns something.
func (o *operation) answered(k *packet) {
	m := k.msg
	o.answers++
	switch {
	case m.rdata != nil:
		o.said(m.rdata.RC)
		o.returned += uint64(m.rdata.PayloadLen)
	case m.rsmall != nil:
		o.said(m.rsmall.RC)
		o.returned += uint64(m.rsmall.PayloadLen)
	}
}

// rudiRequest handles a packet of a request by RUDI.
func (f *follower) rudiRequest(k *packet) {
	ask := rudiKey{k.src, k.dst, k.msg.rudi.PktID}
	if o := f.asks[ask]; o != nil {
		o.resent++
		return
	}
	key := opKey{src: k.src, dst: k.dst, id: byPSN | uint64(ask.id)}
	som := true
	if s := k.msg.std; s != nil {
		key.id, som = uint64(s.MsgID), s.Flags&wire.SESSOM != 0
	}
	o := f.open[key]
	retx := k.msg.rudi.Flags&wire.RUDIFlagRETX != 0
	if o != nil && som && o.som && !retx {
		f.finish(o, k.at, false)
		o = nil
	}
	if o == nil {
		if !som && f.failed[key] {
			return
		}
		if o = f.begin(k, key); o == nil {
			return
		}
	}
	o.part(k)
	if retx {
		o.resent++
	}
	if len(f.asks) < maxOps {
		o.open++
		f.asks[ask] = o
	}
}

// rudiResponse handles the answer to such a packet.
func (f *follower) rudiResponse(k *packet) {
	ask := rudiKey{k.dst, k.src, k.msg.rudi.PktID}
	o := f.asks[ask]
	if o == nil {
		return
	}
	delete(f.asks, ask)
	o.open--
	if k.msg.rsp != nil {
		o.said(k.msg.rsp.RC)
	} else {
		o.answered(k)
	}
	f.touched = append(f.touched, o)
}

// again forgets the packets that were sent with PSNs that do not count any more (UE 3.5.8).
func (o *operation) again() {
	o.resent += o.packets
	o.packets, o.open, o.covered, o.som, o.eom = 0, 0, 0, false, false
}

// datagram handles a packet that nothing answers.
func (f *follower) datagram(k *packet) {
	o := &operation{list: f, src: k.src, dst: k.dst, began: k.at}
	o.fill(k)
	o.part(k)
	f.finish(o, k.at, true)
}

// accesses reports whether the operation is on a memory region, so that it has a key and an offset.
func (o *operation) accesses() bool {
	switch o.opcode {
	case wire.OpWrite, wire.OpRead, wire.OpAtomic, wire.OpFetchAtomic:
		return true
	}
	return false
}

// placed reports whether the operation has an offset, in a region or a receive.
func (o *operation) placed() bool { return o.accesses() || o.opcode.HasAtomic() }

// operates reports whether a packet is of an operation.
func (m *message) operates() bool { return m.std != nil || m.medium != nil || m.small != nil }

// returns reports whether the operation ends with what comes back, and not with the answers to its
// packets.
func (o *operation) returns() bool {
	switch {
	case o.opcode == wire.OpRead, o.opcode == wire.OpFetchAtomic, o.opcode == wire.OpTSendFetchAtomic:
		return o.len > 0
	}
	return o.commit
}

// bad reports whether the operation failed.
func (o *operation) bad() bool { return o.rc != wire.RCNull && o.rc != wire.RCOK }

// ended reports whether nothing more is to come.
func (o *operation) ended() bool {
	switch {
	case o.bad():
		return true
	case o.commit:
		return o.answers > 0
	case o.returns():
		return o.returned >= o.len
	case !o.som:
		return o.eom && o.open == 0 // it began before the capture
	}
	return (o.covered+o.read >= o.len || o.opcode == wire.OpRead) && o.open == 0
}

// settle ends the operations that the packet at a time has completed.
func (f *follower) settle(at time.Time) {
	for _, o := range f.touched {
		if !o.over && o.ended() {
			f.finish(o, at, true)
		}
	}
	f.touched = f.touched[:0]
}

// finish ends an operation. done is false if its end was not seen.
func (f *follower) finish(o *operation, at time.Time, done bool) {
	o.over = true
	if f.open[o.key] == o {
		delete(f.open, o.key)
		if o.bad() && len(f.failed) < maxOps {
			f.failed[o.key] = true
		}
	}
	if o.mode == wire.RUDI && o.open > 0 {
		for id, x := range f.asks {
			if x == o {
				delete(f.asks, id)
			}
		}
	}
	o.took = -1
	if done {
		o.took = max(0, at.Sub(o.began))
	}
	if o.lent != nil {
		if k := (lentKey{o.src.Addr(), o.dst.Addr(), o.lent.ReadMatch}); f.lent[k] == o {
			delete(f.lent, k)
		}
	}
	f.told(o)
	if o.opcode == wire.OpRead && o.returned > 0 {
		f.fetched(o, at)
	}
}

// fetched adds what a read brought to the rendezvous send whose memory it read, if it is of one.
func (f *follower) fetched(o *operation, at time.Time) {
	s := f.lent[lentKey{o.dst.Addr(), o.src.Addr(), o.where}]
	if s == nil || s.over {
		return
	}
	s.reads++
	s.read += o.returned
	s.last = at
	if s.ended() {
		f.finish(s, at, true)
	}
}

// end tells those that are open after the last packet.
func (f *follower) end() {
	for _, o := range f.order {
		if !o.over {
			f.finish(o, o.last, false)
		}
	}
}

// kind names an operation.
func (o *operation) kind() string {
	s := o.opcode.String()
	if o.commit {
		s = "COMMIT"
	}
	if a := o.atomic; a != nil {
		s += " " + a.Op.String() + " " + a.Type.String()
	}
	return s
}

// verdict says how an operation ended.
func (o *operation) verdict() string {
	switch {
	case o.bad():
		return o.rc.String()
	case o.mode == wire.UUD:
		return "not answered, as a datagram is not"
	case o.took >= 0:
		return "OK"
	case o.refusals > 0:
		return "NACK " + o.refusal.String()
	case o.returns() && o.answers > 0 && !o.commit:
		return fmt.Sprintf("%d of %d bytes came back", o.returned, o.len)
	case o.open == o.packets:
		return "no answer"
	case o.returns():
		return "nothing came back"
	case o.open > 0:
		return fmt.Sprintf("%d of %s not answered", o.open, packets(o.packets))
	}
	if o.lent != nil {
		return fmt.Sprintf("announced, %d of %d bytes read", o.read, o.len)
	}
	return fmt.Sprintf("%d of %d bytes captured", o.covered, o.len)
}

// text is the line of an operation, without its time.
func (o *operation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s > %s %v", address(o.src), address(o.dst), o.mode)
	if o.pdc != nil {
		fmt.Fprintf(&b, " pdc %d", o.pdc.n)
	}
	fmt.Fprintf(&b, ": %s", o.kind())
	if o.hasMsg {
		fmt.Fprintf(&b, " msg_id=%#x", o.msg)
	}
	switch {
	case o.small:
		fmt.Fprintf(&b, " ri=%d", o.where)
	case o.accesses():
		fmt.Fprintf(&b, " key=%#x", o.where)
	default:
		fmt.Fprintf(&b, " match=%#x", o.where)
	}
	if o.placed() {
		fmt.Fprintf(&b, " off=%#x", o.offset)
	}
	fmt.Fprintf(&b, " len=%d", o.len)
	if o.has {
		fmt.Fprintf(&b, " data=%#x", o.data)
	}
	if o.lent != nil {
		fmt.Fprintf(&b, " read_key=%#x", o.lent.ReadMatch)
		if o.lent.EagerLen > 0 {
			fmt.Fprintf(&b, " eager=%d", o.lent.EagerLen)
		}
	}
	b.WriteString(": " + o.verdict())
	if o.took >= 0 && o.mode != wire.UUD {
		fmt.Fprintf(&b, " in %v", o.took)
	}
	b.WriteString(", " + packets(o.packets))
	if o.answers > 0 {
		fmt.Fprintf(&b, ", %s back", packets(o.answers))
	}
	if o.reads > 0 {
		fmt.Fprintf(&b, ", read %s", times(o.reads))
	}
	if o.resent > 0 {
		fmt.Fprintf(&b, ", %d resent", o.resent)
	}
	if o.refusals > 0 && o.took >= 0 {
		fmt.Fprintf(&b, ", refused %s (%v)", times(o.refusals), o.refusal)
	}
	if !o.som {
		b.WriteString(", its first packet not captured")
	}
	return b.String()
}

// wantsOp reports whether the filters let an operation through.
func (p *printer) wantsOp(o *operation) bool {
	c := p.cfg
	switch {
	case p.err != nil || p.full():
		return false
	case c.PDC != nil && (o.pdc == nil || !c.PDC.is(o.pdc)), c.Msg >= 0 && (!o.hasMsg || o.msg != uint16(c.Msg)):
		return false
	case !p.since.IsZero() && o.began.Before(p.since), !p.until.IsZero() && !o.began.Before(p.until):
		return false
	case c.Host.IsValid() && o.src.Addr() != c.Host && o.dst.Addr() != c.Host:
		return false
	}
	return true
}

// operation handles an operation that has ended.
func (p *printer) operation(o *operation) {
	if !p.wantsOp(o) {
		return
	}
	p.printed++
	if o.pdc != nil {
		p.picked[o.pdc] = true
	}
	if p.cfg.Summary {
		p.sums.add(o)
		return
	}
	if p.cfg.JSON {
		p.encode(map[string]any{"op": o.json(p.first)})
		return
	}
	p.printf("%s %s %s\n", p.clock(o.began), p.rel(o.began), o.text())
}

// opsEnd prints what is left after the last packet.
func (p *printer) opsEnd() {
	p.ops.end()
	if p.cfg.Summary && p.err == nil {
		if p.cfg.JSON {
			for _, s := range p.sums.rows() {
				p.encode(map[string]any{"ops": s})
			}
		} else if len(p.sums) > 0 {
			p.err = p.sums.table(p.w)
		}
	}
	if p.printed == 0 && p.packets > 0 && !p.cfg.JSON {
		p.printf("no operation that was asked for\n")
	}
	if p.ops.lost > 0 && !p.cfg.JSON {
		p.printf("%d operations are left out: %d others wait for their end\n", p.ops.lost, maxOps)
	}
}

// A jsonOp is the line of -J for an operation.
type jsonOp struct {
	Time     string   `json:"time"`
	Rel      float64  `json:"rel"`
	Source   string   `json:"src"`
	Dest     string   `json:"dst"`
	Mode     string   `json:"mode"`
	PDC      int      `json:"pdc,omitempty"`
	From     string   `json:"from,omitempty"`
	Kind     string   `json:"kind"`
	Atomic   string   `json:"atomic,omitempty"`
	Type     string   `json:"datatype,omitempty"`
	MsgID    *uint16  `json:"msg_id,omitempty"`
	Key      string   `json:"key,omitempty"` // of 64 bits, in hex
	Match    string   `json:"match,omitempty"`
	RI       *uint64  `json:"ri,omitempty"`
	Offset   *uint64  `json:"offset,omitempty"`
	Len      uint64   `json:"len"`
	Data     string   `json:"data,omitempty"` // header data, in hex
	Packets  int      `json:"packets"`
	Answers  int      `json:"returned_packets,omitempty"`
	Returned uint64   `json:"returned,omitempty"`
	ReadKey  string   `json:"read_key,omitempty"` // of a rendezvous send, in hex
	Eager    uint32   `json:"eager,omitempty"`
	Reads    int      `json:"reads,omitempty"`
	Read     uint64   `json:"read,omitempty"` // bytes that they brought
	Resent   int      `json:"resent"`
	Refused  int      `json:"refused,omitempty"`
	Nack     string   `json:"nack,omitempty"`
	Done     bool     `json:"done"` // its end was captured
	Result   string   `json:"result"`
	Took     *float64 `json:"took,omitempty"` // seconds
	Whole    bool     `json:"whole"`          // its first packet was captured
}

func (o *operation) json(first time.Time) *jsonOp {
	j := &jsonOp{
		Time: o.began.UTC().Format(time.RFC3339Nano), Rel: o.began.Sub(first).Seconds(), Source: address(o.src), Dest: address(o.dst), Mode: o.mode.String(), Kind: o.opcode.String(),
		Len: o.len, Packets: o.packets, Answers: o.answers, Returned: o.returned, Resent: o.resent, Refused: o.refusals, Done: o.took >= 0, Result: o.verdict(), Whole: o.som,
	}
	if o.commit {
		j.Kind = "COMMIT"
	}
	if o.lent != nil {
		j.ReadKey, j.Eager, j.Reads, j.Read = fmt.Sprintf("%#x", o.lent.ReadMatch), o.lent.EagerLen, o.reads, o.read
	}
	if o.pdc != nil {
		j.PDC, j.From = o.pdc.n, [2]string{"initiator", "target"}[o.from]
	}
	if a := o.atomic; a != nil {
		j.Atomic, j.Type = a.Op.String(), a.Type.String()
	}
	if o.hasMsg {
		j.MsgID = &o.msg
	}
	switch {
	case o.small:
		j.RI = &o.where
	case o.accesses():
		j.Key = fmt.Sprintf("%#x", o.where)
	default:
		j.Match = fmt.Sprintf("%#x", o.where)
	}
	if o.placed() {
		j.Offset = &o.offset
	}
	if o.has {
		j.Data = fmt.Sprintf("%#x", o.data)
	}
	if o.refusals > 0 {
		j.Nack = o.refusal.String()
	}
	if o.took >= 0 && o.mode != wire.UUD {
		s := o.took.Seconds()
		j.Took = &s
	}
	return j
}

// An opSum adds up operations of one kind and mode.
type opSum struct {
	Kind   string  `json:"kind"`
	Mode   string  `json:"mode"`
	Count  int     `json:"count"`
	Failed int     `json:"failed"`
	Open   int     `json:"open"` // their end was not captured
	Bytes  uint64  `json:"bytes"`
	Resent int     `json:"resent"`
	Timed  int     `json:"timed"`
	Min    float64 `json:"min"` // seconds, of those that ended well
	Mean   float64 `json:"mean"`
	Max    float64 `json:"max"`

	sum time.Duration
}

// opSums are the sums by kind and mode.
type opSums map[[2]string]*opSum

func (s opSums) add(o *operation) {
	key := [2]string{o.kind(), o.mode.String()}
	x := s[key]
	if x == nil {
		x = &opSum{Kind: key[0], Mode: key[1]}
		s[key] = x
	}
	x.Count++
	x.Bytes += o.len
	x.Resent += o.resent
	switch {
	case o.bad():
		x.Failed++
	case o.took < 0:
		x.Open++
	case o.mode != wire.UUD:
		t := o.took.Seconds()
		if x.Timed++; x.Timed == 1 || t < x.Min {
			x.Min = t
		}
		x.Max = max(x.Max, t)
		x.sum += o.took
		x.Mean = x.sum.Seconds() / float64(x.Timed)
	}
}

func (s opSums) rows() []*opSum {
	var out []*opSum
	for _, x := range s {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b *opSum) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mode, b.Mode)) })
	return out
}

func (s opSums) table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "OPERATION\tMODE\tCOUNT\tFAILED\tOPEN\tBYTES\tRESENT\tMIN\tMEAN\tMAX")
	for _, x := range s.rows() {
		t := func(secs float64) string {
			if x.Timed == 0 {
				return "-"
			}
			return time.Duration(secs * 1e9).Round(time.Microsecond / 10).String()
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", x.Kind, x.Mode, x.Count, x.Failed, x.Open, x.Bytes, x.Resent, t(x.Min), t(x.Mean), t(x.Max))
	}
	return tw.Flush()
}
