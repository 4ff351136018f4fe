package simtest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Lies. With Spec.Liar the last host lies about one-sided operations. It has an honest endpoint, but the network
// rewrites what it says to others: keys, addresses, lengths, offsets and codes of its requests and of its answers. It also makes
// up packets: requests of PDCs that are open, new or gone, by RUDI too, and read data that nobody asked for. Others access its
// memory, and it accesses theirs: each host has prey, three regions between guards. The liar may change the first of them, and
// nothing else of anybody. The operations of others among each other end as if there were no liar.
//
// In half of the scenarios there are messages, too: deferrable ones, and rendezvous sends, among the others, and from and to the
// liar. The liar knows every key under which others lend, and every token by which they put off. It announces what is not
// there, asks for what others have put off, reads what others have lent, and ends what others send.

const (
	preyKey  = 300 // for all; preyKey+1 can be read only, and preyKey+2 is of another job
	preySize = 4096
	prey     = "prey" // the context of these regions
	preyed   = 0x6d   // the bytes of what nobody may change
)

// A dealing is an operation of which the liar is one end. Only its end is checked, and its memory.
type dealing struct {
	host       *Host
	life       int
	ended      int
	whole, buf []byte
}

// A theft is what the liar has learned of the messages of others, which it should not know.
type theft struct {
	keys   []uint64 // under which they lend
	tokens []uint32 // of what may be put off
}

// overheard has the liar learn from a packet, and checks that none brings it what another host has lent to a third one.
func (w *World) overheard(r *record, p *sim.Packet) {
	liar := w.Hosts[len(w.Hosts)-1]
	if r.from == liar {
		return
	}
	switch {
	case r.lent:
		w.stolen.keys = append(w.stolen.keys, r.key)
		w.lentAmong++
	case r.deferrable && r.own != 0:
		w.stolen.tokens = append(w.stolen.tokens, r.own)
	case r.opcode == opRTR && r.class == classData:
		w.putOff++
	}
	to := w.byAddr[p.Dst]
	if to != liar && to != nil || r.opcode != 0 || len(r.payload) < 16 {
		return
	}
	// What is returned is no request. Eight bytes of it tell the message that they are of, whatever it is said to be.
	if id, off := readPattern(r.payload); off >= 0 && r.class != classOther {
		if o := w.op(id); o != nil && o.send() && o.Host == r.from && w.Hosts[o.Peer] != liar && off <= o.Len && checkPattern(r.payload[:16], id, off) == nil {
			w.Failf("%s gives the liar bytes of %v: %s", r.from.Name(), o, &r.reading)
		}
	}
}

// amongLiars checks a receive of a message from an honest host, though there is a liar. It can be told by its tag.
func (w *World) amongLiars(o *Op) {
	h, e := o.Host, &o.Event
	from, liar := w.byAddr[h.FEP.PeerAddr(e.Peer)], w.Hosts[len(w.Hosts)-1]
	if from == nil || from == liar || h == liar {
		return
	}
	s := w.op(tagID(e.Tag))
	if s == nil || !s.send() || s.Host != from || w.Hosts[s.Peer] != h || e.Len != min(s.Len, o.Len) || int(e.OverLen) != s.Len-e.Len || e.HasData != s.HasData || s.HasData && e.Data != s.data {
		w.Failf("%s: %v receives from %s what it did not send: %d bytes, tag %#x, %v", h.Name(), o, from.Name(), e.Len, e.Tag, s)
	}
	if err := checkPattern(o.buf[:e.Len], s.ID, 0); err != nil {
		w.Failf("%s: beside a liar %v has other bytes than %v: %v", h.Name(), o, s, err)
	}
	for _, life := range s.cameIn {
		if life == h.Life() && h.Life() == 1 {
			w.Failf("%s: beside a liar %v comes twice", h.Name(), s)
		}
	}
	s.cameIn = append(s.cameIn, h.Life())
	w.cameAmong++
}

// arrivedAmongLiars checks that what succeeded among honest hosts that never died has come.
func (w *World) arrivedAmongLiars(o *Op) {
	if o.send() && o.OK() && !o.early() && !o.WrongRI && !o.Host.everDied() && !w.targetEnded(o) && len(o.cameIn) == 0 {
		w.Failf("%s: beside a liar %v succeeds and never comes", o.Host.Name(), o)
	}
}

// feed registers the prey of a new life.
func (h *Host) feed(f *transport.FEP) {
	if !h.w.spec.Liar {
		return
	}
	if h.prey == nil {
		h.prey = make([]byte, 7*preySize)
		set(h.prey, preyed)
	}
	all := transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic
	for i, cfg := range [...]transport.RegionConfig{{Access: all}, {Access: transport.RemoteRead}, {Access: all, JobID: 77}} {
		cfg.Buf, cfg.Context = h.prey[(2*i+1)*preySize:][:preySize], prey
		for _, bits := range [...]uint64{0, wire.MKeyIdempotent, wire.MKeyOptimized, wire.MKeyOptimized | wire.MKeyIdempotent} {
			cfg.Key = uint64(preyKey+i) | bits
			h.register(f, cfg)
		}
	}
}

// auditLies checks what the liar has done to the others.
func (w *World) auditLies() {
	for _, h := range w.Hosts[:len(w.Hosts)-1] {
		for i, b := range h.prey {
			if b != preyed && i/preySize != 1 {
				w.Failf("%s: byte %d of what nobody may change was changed", h.Name(), i)
			}
		}
	}
	for _, o := range w.ops {
		w.arrivedAmongLiars(o)
	}
	for _, l := range w.dealings {
		switch {
		case l.ended == 0 && l.host.Up() && l.host.Life() == l.life:
			w.Failf("%s: the liar keeps an operation open", l.host.Name())
		case !guardsIntact(l.whole) || l.ended != 0 && untouched(l.buf, spent) >= 0:
			w.Failf("%s: what an operation with the liar may not touch was written", l.host.Name())
		}
	}
}

// dealt notes the end of an operation with the liar.
func (h *Host) dealt(l *dealing, e *transport.Event) {
	if e.Cause == transport.Rejected {
		h.w.refusals++
	}
	if l.ended++; l.ended > 1 || l.host != h || l.life != h.Life() {
		h.w.Failf("%s: event %d for an operation with the liar", h.Name(), l.ended)
	}
	h.w.progress = h.w.Net.Now()
	set(l.buf, spent)
}

var (
	edgeAddrs = [...]uint64{0, 1, 8, 16, preySize - 8, preySize - 1, preySize, preySize + 1, boardSize, 1 << 31, 1<<32 - 8, 1 << 32, 1 << 63, 1<<64 - 4096, 1<<64 - 8, 1<<64 - 1}
	edgeLens  = [...]uint32{0, 1, 7, 8, 16, 17, 1023, 1024, 1025, 2048, preySize, preySize + 1, 1<<14 - 1, 1 << 14, 1 << 16, 1 << 31, 1<<32 - 8, 1<<32 - 1}
	edgeKeys  = [...]uint64{preyKey, preyKey + 1, preyKey + 2, MemoryKey, CountersKey, boardKey, 0, 999, 1<<48 - 1}
	accesses  = [...]wire.Opcode{wire.OpWrite, wire.OpRead, wire.OpAtomic, wire.OpFetchAtomic}
)

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// lie does what the liar does in one step of a scenario.
func (w *World) lie(n int) {
	rng := rand.New(rand.NewPCG(w.spec.Seed^0x6c6965, uint64(n)))
	liar := w.Hosts[len(w.Hosts)-1]
	other := w.Hosts[rng.IntN(len(w.Hosts)-1)]
	switch rng.IntN(3) {
	case 0:
		w.lieBy(liar, other, rng)
	case 1:
		w.lieBy(other, liar, rng)
	default:
		for range 1 + rng.IntN(8) {
			w.forgeLie(liar, other, rng)
		}
	}
}

// lieBy posts an operation of which one end is the liar.
func (w *World) lieBy(from, to *Host, rng *rand.Rand) {
	if !from.Up() || from.Node.IsPaused() {
		return
	}
	l := &dealing{host: from, life: from.Life()}
	l.whole, l.buf = newBuffer(8 * rng.IntN(1<<rng.IntN(11)))
	op := transport.Op{Peer: from.Peer(to.Index), PIDonFEP: to.Config.PIDonFEP, RI: to.Config.RI, Key: preyKey, RemoteAddr: uint64(8 * rng.IntN(preySize/8)), Context: l,
		Ordered: rng.IntN(3) == 0, Idempotent: rng.IntN(3) == 0, Optimized: rng.IntN(3) == 0, Buf: l.buf}
	kinds := 4
	if w.spec.Tells {
		kinds = 8
	}
	switch rng.IntN(kinds) {
	case 4, 5, 6, 7:
		op.Kind, op.Key, op.RemoteAddr, op.Tag = transport.OpTSend, 0, 0, rng.Uint64()
		op.Idempotent, op.Optimized = false, false
	case 0:
		op.Kind, op.HasData = transport.OpWrite, rng.IntN(4) == 0
	case 1:
		op.Kind = transport.OpRead
		if n := len(w.stolen.keys); n > 0 && rng.IntN(2) == 0 { // what is lent to another
			op.Key, op.RemoteAddr = w.stolen.keys[n-1-rng.IntN(min(n, 8))], uint64(rng.IntN(1<<rng.IntN(8)))
			op.Idempotent, op.Optimized = false, false
		}
	default:
		l.whole, l.buf = newBuffer(8)
		op.Kind, op.Buf = transport.OpFetch, make([]byte, 8)
		op.AMO = &transport.AMO{Op: wire.AtomicSum, Type: wire.Uint64, Result: l.buf}
		op.Idempotent, op.Optimized = false, false
	}
	if op.Idempotent {
		op.Key |= wire.MKeyIdempotent
	}
	if op.Optimized {
		op.Key |= wire.MKeyOptimized
	}
	if from.PostAside(&op) == nil {
		w.dealings = append(w.dealings, l)
	}
}

// forgeLie sends a packet that the liar makes up, by its own name or that of somebody who is not there.
func (w *World) forgeLie(liar, other *Host, rng *rand.Rand) {
	src := liar.Addr()
	if rng.IntN(3) == 0 {
		src = netip.AddrPortFrom(w.nobody(), src.Port())
	}
	r := wire.ReqStd{Opcode: pick(rng, accesses[:]), Flags: wire.SESREL, MsgID: uint16(rng.IntN(8)), JobID: uint32(1 + rng.IntN(8)/7), PIDonFEP: other.Config.PIDonFEP, RI: other.Config.RI,
		Initiator: 16, Match: pick(rng, edgeKeys[:]) | uint64(rng.IntN(4))<<62, BufOff: pick(rng, edgeAddrs[:]), ReqLen: pick(rng, edgeLens[:])}
	data := make([]byte, rng.IntN(1<<rng.IntN(11)))
	if w.spec.Tells && rng.IntN(2) == 0 {
		w.forgeTale(&r, &data, rng)
	} else {
		w.forgePart(&r, len(data), rng)
	}
	d := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: r.MsgID, ReadMsgID: uint16(rng.IntN(64)), JobID: 1, PayloadLen: uint16(len(data)), ModLen: r.ReqLen, MsgOff: pick(rng, edgeLens[:])}
	psn, id := wire.PSN(rng.Uint32()), uint16(rng.Uint32())
	next, body := wire.NextReqStd, r.Append(nil)
	if rng.IntN(3) == 0 {
		next, body = wire.NextRspData, d.Append(nil)
	} else {
		w.harmless(next, body)
	}
	var b []byte
	switch rng.IntN(6) {
	case 0:
		b = (&wire.Req{Type: wire.TypeRUDReq, Next: next, Flags: wire.FlagSYN | wire.FlagAR, PSN: psn, SPDCID: id | 1, ClearOff: -1}).Append(nil)
	case 1:
		b = (&wire.Req{Type: wire.TypeRODReq, Next: next, Flags: wire.FlagSYN | wire.FlagAR, PSN: psn, SPDCID: id | 1, ClearOff: -1}).Append(nil)
	case 2: // of a PDC that is not there, or is another one's
		b = (&wire.Req{Type: wire.TypeRUDReq, Next: next, Flags: wire.FlagAR, PSN: psn, SPDCID: id, DPDCID: uint16(1 + rng.IntN(32)), ClearOff: -1}).Append(nil)
	case 3:
		if next == wire.NextRspData {
			next, body = wire.NextReqStd, r.Append(nil)
			w.harmless(next, body)
		}
		b = wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: next, PktID: uint32(psn)}.Append(nil)
	case 4:
		b, body = wire.RUDIHdr{Type: wire.TypeRUDIRsp, Next: wire.NextRspData, PktID: uint32(rng.IntN(64))}.Append(nil), d.Append(nil)
	default:
		a := wire.Ack{Type: wire.TypeAck, Next: wire.NextRspData, CACK: psn, SPDCID: id, DPDCID: uint16(1 + rng.IntN(32))}
		b, body = a.Append(nil), d.Append(nil)
	}
	w.Forge(other.Index, src, append(append(b, body...), data...), !w.spec.NoCRC)
}

// forgePart draws which part of a message a packet with n bytes is.
func (w *World) forgePart(r *wire.ReqStd, n int, rng *rand.Rand) {
	switch rng.IntN(4) {
	case 0:
		r.MsgOff, r.PayloadLen = pick(rng, edgeLens[:]), uint16(n)
	case 1:
		r.Flags |= wire.SESSOM
	default:
		r.Flags |= wire.SESSOM | wire.SESEOM
	}
}

// forgeTale makes a request one of those by which messages go that are not sent at once.
func (w *World) forgeTale(r *wire.ReqStd, data *[]byte, rng *rand.Rand) {
	key, token := rng.Uint64(), rng.Uint32()
	if n := len(w.stolen.keys); n > 0 {
		key = w.stolen.keys[n-1-rng.IntN(min(n, 32))]
	}
	if n := len(w.stolen.tokens); n > 0 {
		token = w.stolen.tokens[n-1-rng.IntN(min(n, 32))]
	}
	mine := rng.Uint32() & (1<<rng.IntN(33) - 1)
	w.forgePart(r, len(*data), rng)
	switch rng.IntN(6) {
	case 0, 1: // an announcement
		r.Opcode, r.Match = pick(rng, []wire.Opcode{wire.OpRendezvousSend, wire.OpRendezvousTSend}), rng.Uint64()
		x := wire.Rendezvous{EagerLen: pick(rng, edgeLens[:]), ReadGen: uint8(rng.IntN(3)), ReadRI: uint16(rng.IntN(0x1000)), ReadPIDonFEP: uint16(rng.IntN(0x1000)),
			ReadOff: pick(rng, edgeAddrs[:]), ReadMatch: pick(rng, []uint64{key, preyKey, MemoryKey})}
		if rng.IntN(2) == 0 {
			x.EagerLen = uint32(len(*data))
		}
		if r.Flags&wire.SESSOM != 0 {
			*data = append(x.Append(nil), *data...)
		}
	case 2: // what the target may put off
		r.Opcode, r.Match, r.BufOff = pick(rng, []wire.Opcode{wire.OpDeferrableSend, wire.OpDeferrableTSend}), rng.Uint64(), uint64(token)<<32|uint64(mine)
	case 3: // ready to restart
		r.Opcode, r.Flags, r.BufOff, r.ReqLen, *data = wire.OpDeferrableRTR, wire.SESSOM|wire.SESEOM|wire.SESREL, uint64(token)<<32|uint64(mine), 0, nil
		if rng.IntN(2) == 0 {
			r.BufOff = uint64(mine)<<32 | uint64(token)
		}
	case 4: // a read of what is lent to another
		r.Opcode, r.Flags, r.Match, r.BufOff, *data = wire.OpRead, wire.SESSOM|wire.SESEOM|wire.SESREL, key, uint64(rng.IntN(1<<rng.IntN(18))), nil
		r.ReqLen = uint32(1 + rng.IntN(8192))
	default:
		r.Opcode, r.Flags, r.ReqLen, *data = wire.OpMsgError, wire.SESEOM|wire.SESIE|wire.SESREL, 0, nil
	}
}

// nobody is an address that no host has.
func (w *World) nobody() netip.Addr {
	a := w.Hosts[len(w.Hosts)-1].Addr().Addr()
	for range 100 {
		a = a.Next()
	}
	return a
}

// rewrites is the Filter of a line from the liar: it rewrites a share of the packets.
func (w *World) rewrites(share float64, seed uint64) func(time.Duration, *sim.Packet) sim.Verdict {
	rng := rand.New(rand.NewPCG(w.spec.Seed^0x72657772, seed))
	trailer := wire.CRCLen
	if w.spec.NoCRC {
		trailer = 0
	}
	return func(_ time.Duration, p *sim.Packet) sim.Verdict {
		if rng.Float64() >= share || len(p.Data) <= trailer {
			return sim.Verdict{}
		}
		b := p.Data[:len(p.Data)-trailer]
		next, at := sesAt(b)
		if at == 0 || len(b)-at < wire.RspLen {
			return sim.Verdict{}
		}
		h := b[at:]
		for range 1 + rng.IntN(3) {
			w.rewrite(next, h, rng)
		}
		w.harmless(next, h)
		if trailer != 0 {
			binary.BigEndian.PutUint32(p.Data[len(b):], crcOf(p.Src, p.Dst, b))
		}
		return sim.Verdict{}
	}
}

// sesAt is where the SES header of a packet begins, and its kind; 0 if it has none.
func sesAt(b []byte) (wire.NextHdr, int) {
	p, err := wire.ParsePrologue(b)
	if err != nil {
		return 0, 0
	}
	n := 0
	switch p.Type {
	case wire.TypeRUDReq, wire.TypeRODReq:
		_, n, err = wire.ParseReq(b)
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		n = wire.RUDILen
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		_, n, err = wire.ParseAck(b)
	}
	if err != nil || p.Next == wire.NextNone {
		return 0, 0
	}
	return p.Next, n
}

// rewrite changes a field of a SES header.
func (w *World) rewrite(next wire.NextHdr, h []byte, rng *rand.Rand) {
	be := binary.BigEndian
	switch std := next == wire.NextReqStd && len(h) >= wire.ReqStdLen; {
	case rng.IntN(4) == 0 || !std && next == wire.NextReqStd:
		h[rng.IntN(min(len(h), wire.ReqStdLen))] ^= 1 << rng.IntN(8)
	case std:
		switch rng.IntN(7) {
		case 0:
			be.PutUint64(h[24:], pick(rng, edgeKeys[:])|uint64(rng.IntN(4))<<62)
		case 1:
			be.PutUint64(h[12:], pick(rng, edgeAddrs[:]))
		case 2:
			be.PutUint32(h[40:], pick(rng, edgeLens[:]))
		case 3:
			be.PutUint32(h[36:], pick(rng, edgeLens[:])) // message_offset, if it is not the first packet
		case 4:
			h[0] = h[0]&0xc0 | byte(pick(rng, accesses[:]))
		case 5:
			be.PutUint16(h[2:], uint16(rng.IntN(16)))
		default:
			be.PutUint32(h[4:], uint32(rng.IntN(9))) // job
		}
	case next == wire.NextRspData && len(h) >= wire.RspDataLen:
		switch rng.IntN(4) {
		case 0:
			be.PutUint32(h[16:], pick(rng, edgeLens[:])) // message_offset
		case 1:
			be.PutUint16(h[10:], uint16(pick(rng, edgeLens[:])&0x3fff)) // payload_length
		case 2:
			be.PutUint16(h[8:], uint16(rng.IntN(64))) // read_request_message_id
		default:
			h[1] = byte(rng.IntN(64))
		}
	default:
		h[1] = h[1]&0xc0 | byte(rng.IntN(64)) // return code, or flags of an optimized request
	}
}

// harmless makes what would be the liar's right harm prey only: it cannot know that some of the bytes of others are
// those that they check.
func (w *World) harmless(next wire.NextHdr, h []byte) {
	be := binary.BigEndian
	op := wire.Opcode(h[0] & 0x3f)
	keyAt, addr := 24, uint64(0)
	switch {
	case next == wire.NextReqSmall && len(h) >= wire.ReqSmallLen:
		if ri := be.Uint16(h[10:]) & 0xfff; op != wire.OpRead && (ri == CountersKey || ri == boardKey) {
			be.PutUint16(h[10:], preyKey)
		}
		return
	case next == wire.NextReqStd && len(h) >= wire.ReqStdLen:
		addr = be.Uint64(h[12:])
	case next == wire.NextReqMedium && len(h) >= wire.ReqMediumLen:
	default:
		return
	}
	key := be.Uint64(h[keyAt:])
	switch rkey := key &^ (wire.MKeyIdempotent | wire.MKeyOptimized); {
	case (op == wire.OpTSendAtomic || op == wire.OpTSendFetchAtomic) && key == tallyTag:
		be.PutUint64(h[keyAt:], tallyTag+1)
	case rkey != CountersKey && rkey != boardKey || op == wire.OpRead || addr >= boardSize:
	case rkey == boardKey && (op == wire.OpAtomic || op == wire.OpFetchAtomic):
	default:
		be.PutUint64(h[keyAt:], preyKey)
	}
}

// tell has all messages of a scenario go tagged, so that each can be told, and many of them be deferrable, or lent.
func (sc *Scenario) tell() {
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x74616c6573))
	for i := range sc.Steps {
		switch o := &sc.Steps[i].Op; o.Kind {
		case transport.OpSend:
			o.Kind = transport.OpTSend
		case transport.OpRecv:
			o.Kind = transport.OpTRecv
		}
	}
	for i := range sc.Spec.Hosts {
		c := &sc.Spec.Hosts[i].Config
		c.DeferrableMin = []int{-1, 1, 100, 2000}[rng.IntN(4)]
		c.RendezvousMin = []int{0, 1, 1000, 2000}[rng.IntN(4)]
		sc.Spec.Hosts[i].Tallies = 0 // nobody would receive what the liar sends to where they are
	}
}

// Lie adds a host that lies to a scenario, and takes away what the checks need a full ledger for: messages, in half of the
// scenarios, and what changes packets in other ways.
func (sc *Scenario) Lie() {
	for _, kind := range []string{"converse", "secure", "hole", "corrupt", "truncate", "pad", "trim", "samerandom", "shut", "abandon"} {
		sc.Without(kind)
	}
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x6c696573))
	sc.Spec.Tells = sc.Spec.Seed%2 == 0
	sc.Steps = slices.DeleteFunc(sc.Steps, func(s Step) bool {
		return s.Kind == "post" && (sc.Spec.Tells && s.Op.Tally || !s.Op.read() && (!sc.Spec.Tells || s.Op.Slate))
	})
	if sc.Spec.Tells {
		sc.tell()
	}
	n := len(sc.Spec.Hosts)
	sc.Spec.Hosts = append(sc.Spec.Hosts, HostSpec{Paths: 1, Backlog: true, Budget: 64})
	if sc.Spec.Tells {
		sc.Spec.Hosts[n].Config.RendezvousMin, sc.Spec.Hosts[n].Config.DeferrableMin = 100, []int{-1, 100}[rng.IntN(2)]
	}
	sc.Spec.Liar, sc.Spec.Hostile, sc.Spec.Forged, sc.Spec.Light = true, true, true, true
	for i := range sc.Spec.Hosts {
		h := &sc.Spec.Hosts[i]
		h.Memory, h.Counters, h.Board = 1<<20, true, true
		h.Config.KnownPeersOnly = false
	}
	for i := range sc.Lines {
		sc.Lines[i] = append(sc.Lines[i], sc.Lines[i][(i+1)%n])
	}
	sc.Lines = append(sc.Lines, slices.Clone(sc.Lines[0]))
	sc.Lying = []float64{0.02, 0.1, 0.3, 0.7}[rng.IntN(4)]
	g := &generator{rng: rng, sc: sc}
	for range 40 + rng.IntN(200) {
		g.add(Step{At: time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64()), Host: n, Kind: "lie"})
	}
	slices.SortStableFunc(sc.Steps, func(a, b Step) int { return int(a.At - b.At) })
	sc.lieToGrams()
}
