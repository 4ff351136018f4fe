package transport

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/rudi"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A WaitFor is what an operation waits for.
type WaitFor uint8

// What sends wait for:
const (
	WaitNothing    WaitFor = iota // nothing: packets are sent or in flight, and none is late
	WaitAck                       // an ACK: packets or ACKs are lost, or the peer is gone
	WaitOpen                      // the target's answer to the first packets of the PDC
	WaitClose                     // the end of the PDC, which closes; the message uses the next PDC
	WaitPDC                       // a PDC: there are too many, or all free PDCIDs are in quarantine
	WaitRoom                      // the end of other operations: as many are posted as there may be
	WaitNotReady                  // a receive at the target, or room to keep the message there
	WaitShort                     // something else that the target is short of
	WaitCongestion                // the congestion window
	WaitPeerWindow                // the PSN window of the peer (MP_RANGE)
	WaitOwnWindow                 // a missing packet, ahead of which this side sends no further
	WaitKey                       // a key to seal with
	WaitBehind                    // another message, which goes first
	WaitFence                     // the sends before a fence
	WaitOrder                     // an earlier packet: the message arrived before it
	WaitAnswer                    // the response: the message arrived

	// What receives wait for:

	WaitMessage    // a message: none is unmatched
	WaitMatch      // a message that matches: none of the unmatched ones does
	WaitRest       // the rest of the message
	WaitEarlier    // an earlier packet: later ones came
	WaitCQ         // room in the completion queue for the message's entry
	WaitConnection // a connection
	WaitLost       // a message of a source that was given up, and was not heard since

	WaitCredit // a send: credit of the target (RCCC)
	NumWaitFor
)

var waitNames = [NumWaitFor]string{
	"nothing", "ack", "open", "close", "pdc", "room", "not_ready", "short", "congestion", "peer_window", "own_window", "key", "behind",
	"fence", "order", "answer", "message", "match", "rest", "earlier", "cq", "connection", "lost", "credit",
}

// String is what is waited for in a word. It is the same in every release.
func (w WaitFor) String() string {
	if w < NumWaitFor {
		return waitNames[w]
	}
	return "wait ?"
}

// A Waiting describes an operation that has not ended, and what it waits for. Fields that
// do not concern the cause are zero. Durations count back from the call of Diagnose, or
// ahead of it where the comment says "until".
type Waiting struct {
	Endpoint EndpointID
	Context  any
	Kind     OpKind
	// Mode is the delivery mode by which the operation goes, or by which the message of a
	// receive comes (UE 3.5.7). It is 0 for a receive that has no message yet.
	Mode wire.Mode
	// Peer and Remote are the target of a send, or of a receive the source of its message
	// or the source that it asks for; NoPeer means any.
	Peer   PeerID
	Remote netip.AddrPort
	Tag    uint64
	// Age is the time since the operation was posted. The age of a receive counts from the
	// last look at the clock before its post.
	Age time.Duration
	// Done is the number of bytes acknowledged or received. Total is the length of the
	// message, or of the buffer if a receive has no message yet.
	Done, Total uint64
	Cause       WaitFor
	// For is how long the cause has lasted, 0 if that is not known.
	For time.Duration
	// Heard is the time since the peer was last heard on the operation's PDC, or if that
	// never was or there is none, on any PDC to the peer; negative means on none.
	Heard time.Duration
	// Timeouts counts the retransmission timeouts since the last progress. Next is the time
	// until something is sent again, GiveUp the time until the peer is given up; 0 means
	// not known.
	Timeouts     int
	Next, GiveUp time.Duration
	// ICMP means that an ICMP message said that nobody is there.
	ICMP bool
	// Nack and RC are the answers of the target. A NACK that ends a PDC when it is repeated
	// came once.
	Nack wire.NackCode
	RC   wire.RC
	// Promised means that the target has the whole message and said that its response comes
	// later (NO_RESPONSE).
	Promised bool
	// Lent means that the target has the announcement of a rendezvous send, of which it has read Done bytes.
	Lent bool
	// Window and InFlight are the window that is closed and what it counts: bytes of
	// congestion control, or PSNs.
	Window, InFlight int
	// Behind is the context of the message that goes first, BehindLeft the number of its
	// bytes that are not sent, BehindFor what that message waits for.
	Behind     any
	BehindLeft uint64
	BehindFor  WaitFor
	// Unmatched is the number of messages of the receive's kind (tagged or not) that no
	// receive has matched, OtherKind that of the other kind. Tags are the tags of the
	// oldest messages of Unmatched.
	Unmatched, OtherKind int
	Tags                 []uint64
	// Payload is what a packet to the target of a send carries, Interface what it would if the
	// path carried as much; 0 if it does (F7).
	Payload, Interface int
	// Early is the number of packets that came before one that is missing.
	Early int
	// Full is the number of PDCIDs in quarantine, or of operations that are posted.
	Full int
}

// manyTags is the most tags of unmatched messages that a Waiting lists.
const manyTags = 8

// send reports whether the operation is a send.
func (w *Waiting) send() bool { return !w.Kind.Recv() }

// Diagnose says of each operation that has not ended what it waits for, the oldest
// operation first. It changes nothing. It reads all operations and all outstanding packets.
func (f *FEP) Diagnose(now time.Duration) []Waiting { return f.DiagnoseEndpoint(now, AllEndpoints) }

// DiagnoseEndpoint is Diagnose of the operations of one endpoint.
func (f *FEP) DiagnoseEndpoint(now time.Duration, id EndpointID) []Waiting {
	d := diagnosis{f: f, now: now, id: id, at: map[ses.Handle]*sending{}}
	d.findSends()
	f.ses.EachSend(id, d.send)
	f.ses.EachRecv(id, d.recv)
	slices.SortStableFunc(d.out, func(a, b Waiting) int { return int(min(1, max(-1, b.Age-a.Age))) })
	return d.out
}

// DiagnoseRefused says why Post fails with ErrFull for op.
func (f *FEP) DiagnoseRefused(now time.Duration, op *Op) Waiting {
	w := Waiting{Endpoint: op.Endpoint, Context: op.Context, Kind: op.Kind, Mode: f.modeOf(op.Kind, op.Ordered), Tag: op.Tag, Peer: op.Peer, Remote: f.PeerAddr(op.Peer), Total: uint64(len(op.Buf)), Cause: WaitRoom, Heard: -1}
	for _, v := range op.Iov {
		w.Total += uint64(len(v))
	}
	sends, recvs := f.Posted()
	switch {
	case !w.send():
		w.Full = recvs
	case sends < f.cfg.MaxSends:
		w.Cause = WaitPDC
		_, w.Full = f.pds.Full(now)
	default:
		w.Full = sends
	}
	return w
}

// A sending says where the packets of a message are.
type sending struct {
	ln       *lane
	pdc      *pds.PDC
	queue    int    // the message's place in the lane, counted from 1; 0 if it is not there
	bytes    uint32 // of its outstanding packets
	inFlight int
	lost     int
	arrived  int
	refused  int
	beyond   bool          // one of them waits because the peer's window refused it
	nack     wire.NackCode // of a refused packet
	notReady bool          // the target was not ready for one of them
	first    time.Duration // when the first of them was sent first

	idem  bool          // it goes by RUDI
	tries int           // by RUDI: the most times that one of the packets was sent
	next  time.Duration // by RUDI: when the first of them is late
}

// A diagnosis is the state of one call of Diagnose.
type diagnosis struct {
	f   *FEP
	now time.Duration
	id  EndpointID // of which endpoint, or AllEndpoints
	at  map[ses.Handle]*sending
	out []Waiting
	// front holds what the first message of a lane waits for, filled by behind.
	front map[*lane]*Waiting
}

// meant reports whether the diagnosis is about a message: it is of the endpoint, or the first of its lane.
func (d *diagnosis) meant(h ses.Handle) bool {
	return d.id == AllEndpoints || d.at[h] != nil || d.f.ses.Of(h, d.id)
}

// of returns the sending of a message, and makes one if there is none. p is used if it has
// no PDC yet.
func (d *diagnosis) of(h ses.Handle, p *pds.PDC) *sending {
	s := d.at[h]
	if s == nil {
		s = &sending{}
		d.at[h] = s
	}
	if s.pdc == nil {
		s.pdc = p
	}
	return s
}

// findSends finds the packets of all messages.
func (d *diagnosis) findSends() {
	f := d.f
	f.pds.Each(func(p *pds.PDC) {
		if int(p.Slot) < len(f.lanes) && f.lanes[p.Slot].pdc == p {
			ln := &f.lanes[p.Slot]
			for i := range ln.q.len() {
				if h := ln.q.at(i); i == 0 || d.meant(h) { // the first is what the others are behind
					s := d.of(h, p)
					s.pdc, s.ln, s.queue = p, ln, i+1
				}
			}
		}
		p.EachSent(func(k pds.Sent) {
			h := handle(k.Piece)
			if !d.meant(h) {
				return
			}
			s := d.of(h, p)
			s.bytes += k.Piece.Len
			if s.first == 0 || k.First < s.first {
				s.first = k.First
			}
			s.notReady = s.notReady || k.State != pds.Arrived && k.Nack == wire.NackNoSESMsgAvail
			switch k.State {
			case pds.InFlight:
				s.inFlight++
			case pds.Lost:
				s.lost++
				s.beyond = s.beyond || k.Nack == wire.NackPSNOORWindow
			case pds.Refused:
				s.refused++
				s.nack = k.Nack
				s.beyond = s.beyond || k.Nack == wire.NackPSNOORWindow
			case pds.Arrived:
				s.arrived++
			}
		})
	})
	d.findIdempotents()
}

// findIdempotents finds the packets of messages that go by RUDI.
func (d *diagnosis) findIdempotents() {
	f := d.f
	if f.idem.table == nil {
		return
	}
	f.idem.table.EachSent(func(k rudi.Sent) {
		s := d.of(handle(k.Piece), nil)
		s.idem = true
		s.bytes += k.Piece.Len
		s.tries = max(s.tries, k.Tries)
		if s.first == 0 || k.First < s.first {
			s.first = k.First
		}
		if s.next == 0 || k.Late < s.next {
			s.next = k.Late
		}
		if k.Lost {
			s.lost++
		} else {
			s.inFlight++
		}
	})
	for id := range f.peers {
		q := f.idem.queues[PeerID(id)]
		if q == nil {
			continue
		}
		for i := range q.q.len() {
			s := d.of(q.q.at(i), nil)
			s.idem, s.queue = true, i+1
		}
	}
}

// modeOf is the mode by which an operation goes that has no packets yet; 0 for a receive.
func (f *FEP) modeOf(kind OpKind, ordered bool) wire.Mode {
	switch {
	case kind.Recv():
		return 0
	case f.cfg.Datagram:
		return wire.UUD
	case ordered:
		return wire.ROD
	}
	return wire.RUD
}

// ago is the time since t, negative if t is 0, which means never.
func (d *diagnosis) ago(t time.Duration) time.Duration {
	if t == 0 {
		return -1
	}
	return d.now - t
}

// in is the time until t, 0 if t is not known or has come.
func (d *diagnosis) in(t time.Duration) time.Duration {
	if t <= d.now {
		return 0
	}
	return t - d.now
}

// heard is the time since a peer was last heard on any PDC, negative if on none.
func (d *diagnosis) heard(peer uint32) time.Duration {
	var at time.Duration
	d.f.pds.Each(func(p *pds.PDC) {
		if p.Peer == peer {
			at = max(at, p.Heard())
		}
	})
	return d.ago(at)
}

// send adds a send to the result.
func (d *diagnosis) send(v *ses.SendView) {
	w := Waiting{
		Endpoint: v.Endpoint, Context: v.Context, Kind: v.Kind, Tag: v.Tag, Peer: PeerID(v.Peer), Remote: d.f.PeerAddr(PeerID(v.Peer)), Age: d.now - v.Posted,
		Done: uint64(v.Taken), Total: uint64(v.Length), Heard: -1,
	}
	if payload, full := d.f.PayloadMTU(w.Peer); payload < full {
		w.Payload, w.Interface = payload, full
	}
	d.why(v, &w)
	if v.Kind == OpRead {
		w.Done = uint64(v.Got)
	}
	switch s := d.at[v.Handle]; {
	case s != nil && s.idem:
		w.Mode = wire.RUDI
	case s != nil && s.pdc != nil:
		w.Mode = s.pdc.Mode()
	default:
		w.Mode = d.f.modeOf(v.Kind, v.Ordered)
	}
	if w.Heard < 0 {
		w.Heard = d.heard(v.Peer)
	}
	d.out = append(d.out, w)
}

// why finds the cause of a send: the first that holds in the order below. What the peer or
// this side says comes first, then what silence suggests, then windows that are full,
// because silence fills them, too.
func (d *diagnosis) why(v *ses.SendView, w *Waiting) {
	f := d.f
	s := d.at[v.Handle]
	if s != nil {
		w.Done -= uint64(s.bytes)
	}
	switch v.Stage {
	case ses.StageFenced:
		w.Cause, w.For = WaitFence, w.Age
		return
	case ses.StageAgain:
		w.Cause, w.RC, w.Timeouts, w.Next, w.For = WaitNotReady, v.RC, v.Tries, d.in(v.RetryAt), max(0, d.ago(v.Since))
		return
	case ses.StageLent:
		w.Cause, w.Lent, w.For = WaitNotReady, true, w.Age
		return
	case ses.StageResult:
		w.Cause, w.Promised = WaitAnswer, true
		return
	}
	switch {
	case f.sec != nil && !f.sec.Ready() && (s == nil || s.queue > 0 || s.lost > 0 || s.refused > 0):
		w.Cause, w.For = WaitKey, max(0, d.ago(f.todo.keyless))
		return
	case s != nil && s.idem:
		d.whyIdempotent(v, s, w)
		return
	case f.cfg.Datagram:
		return // it leaves with the next train
	case s == nil:
		w.Cause = WaitPDC // its PDC ended, and the next is not open
		return
	}
	p := s.pdc
	t := p.View()
	w.Heard, w.Timeouts, w.Next, w.GiveUp, w.ICMP = d.ago(t.Heard), t.RTOs, d.in(t.NextSend), d.in(t.GiveUp), t.Evidence != 0
	w.Nack = t.Doubt
	out := s.inFlight + s.lost + s.refused + s.arrived // packets that are not answered
	switch {
	case s.queue > 0 && !p.Usable() && s.ln.begun == 0:
		w.Cause = WaitClose
	case s.queue > 1:
		d.behind(s, w)
	case s.notReady:
		w.Cause, w.Nack, w.For = WaitNotReady, wire.NackNoSESMsgAvail, d.now-max(t.NotReady, s.first)
	case s.beyond:
		w.Cause, w.Nack, w.Window, w.InFlight = WaitPeerWindow, wire.NackPSNOORWindow, t.Range, t.Ahead
	case t.Short != 0:
		w.Cause, w.Nack, w.For = WaitShort, t.ShortCode, d.now-t.Short
	case s.refused > 0:
		w.Cause, w.Nack = WaitShort, s.nack
	case !t.Answered && (out > 0 || t.SynRange):
		w.Cause, w.For = WaitOpen, max(0, d.ago(s.first))
	case s.arrived > 0 && s.arrived == out && t.Hole && p.Mode() == wire.ROD:
		w.Cause = WaitOrder
	case s.arrived > 0 && s.arrived == out && !t.Hole:
		w.Cause = WaitAnswer
	case t.RTOs > 0 || t.Probes > 0:
		w.Cause, w.For = WaitAck, max(0, w.Heard)
	case s.queue == 0 && s.lost == 0:
		w.Cause = WaitNothing
	case t.PeerWindow:
		w.Cause, w.Window, w.InFlight = WaitPeerWindow, t.Range, t.Ahead
	case t.OwnWindow:
		w.Cause, w.Window, w.InFlight = WaitOwnWindow, f.cfg.MPRange, t.Ahead
	case p.CCC() != nil && f.credit != nil && creditOf(p) != nil && !creditOf(p).HasCredit():
		w.Cause, w.InFlight, w.For = WaitCredit, p.CCC().InFlight(), creditOf(p).Waits(d.now)
	case p.CCC() != nil && !p.CCC().CanSend(d.packet(v)):
		w.Cause, w.Window, w.InFlight = WaitCongestion, p.CCC().Window(), p.CCC().InFlight()
	}
}

// whyIdempotent finds the cause of a send that goes by RUDI.
func (d *diagnosis) whyIdempotent(v *ses.SendView, s *sending, w *Waiting) {
	t := d.f.idem.table.State(v.Peer)
	if at := d.ago(t.Answered); at >= 0 {
		w.Heard = at
	}
	if ago := d.heard(v.Peer); ago >= 0 && (w.Heard < 0 || ago < w.Heard) {
		w.Heard = ago // on a PDC
	}
	w.Next, w.GiveUp = d.in(s.next), d.in(t.GiveUp)
	if s.tries > 0 {
		w.Timeouts = s.tries - 1
	}
	switch {
	case w.Timeouts > 0 || s.lost > 0:
		w.Cause, w.For = WaitAck, d.now-s.first
	case s.queue > 0 && t.Outstanding >= t.Window:
		w.Cause, w.Window, w.InFlight = WaitOwnWindow, t.Window, t.Outstanding
	}
}

// packet is the nominal size of the next packet of a message.
func (d *diagnosis) packet(v *ses.SendView) int {
	p, _ := d.f.ses.Peek(v.Handle, int(d.f.peers[v.Peer].mtu))
	return int(p.Len) + d.f.form.reqLen + d.f.form.overhead
}

// behind names the message that goes before this one in the lane.
func (d *diagnosis) behind(s *sending, w *Waiting) {
	w.Cause = WaitBehind
	first := d.front[s.ln]
	if first == nil {
		h := s.ln.q.front()
		if v, ok := d.f.ses.View(h); ok {
			first = &Waiting{Context: v.Context, Total: uint64(v.Length)}
			d.why(&v, first)
			first.Done = uint64(v.Taken) // the bytes sent, to compute BehindLeft
		}
		if d.front == nil {
			d.front = map[*lane]*Waiting{}
		}
		if first == nil {
			first = &Waiting{} // the message has already completed
		}
		d.front[s.ln] = first
	}
	w.Behind, w.BehindLeft, w.BehindFor = first.Context, first.Total-first.Done, first.Cause
}

// recv adds a receive to the result.
func (d *diagnosis) recv(v *ses.RecvView) {
	f := d.f
	w := Waiting{Endpoint: v.Endpoint, Context: v.Context, Kind: OpRecv, Tag: v.Tag, Peer: PeerID(v.Peer), Age: d.now - v.Posted, Total: v.Size, Heard: -1}
	if v.Tagged {
		w.Kind = OpTRecv
	}
	if v.Peer != 0 {
		w.Remote = f.PeerAddr(w.Peer)
	}
	early, heard := d.early(v)
	w.Early, w.Heard = early, heard
	switch {
	case v.Message:
		w.Cause, w.Done, w.Total, w.For = WaitRest, uint64(v.Got), uint64(v.Length), d.now-v.Began
		if p := f.pds.At(v.PDC); p != nil {
			var at time.Duration
			w.Early, at = p.Early()
			w.Heard = d.now - at
			w.Mode = p.Mode()
		}
	case v.Starved:
		w.Cause = WaitCQ
		w.Unmatched, _ = f.ses.UnexpectedOf(v.Endpoint, v.Tagged, 0)
	case early > 0:
		w.Cause = WaitEarlier
	default:
		var oldest []ses.Early
		w.Unmatched, oldest = f.ses.UnexpectedOf(v.Endpoint, v.Tagged, manyTags)
		w.OtherKind, _ = f.ses.UnexpectedOf(v.Endpoint, !v.Tagged, 0)
		if v.Tagged {
			for _, e := range oldest {
				w.Tags = append(w.Tags, e.Tag)
			}
		}
		w.Cause = WaitMessage
		if w.Unmatched+w.OtherKind > 0 {
			w.Cause = WaitMatch
		}
		if at := f.lost(v); at != 0 {
			w.Cause, w.For = WaitLost, d.now-at
		}
	}
	d.out = append(d.out, w)
}

// lost is when the only source that a receive accepts was given up, 0 if it never was, or was
// heard since.
func (f *FEP) lost(v *ses.RecvView) time.Duration {
	if !v.HasSource {
		return 0
	}
	at := f.peers[v.Peer].lostAt
	f.pds.Each(func(p *pds.PDC) {
		if p.Peer == v.Peer && p.View().Heard > at {
			at = 0
		}
	})
	return at
}

// early is the number of early packets from the sources that a receive accepts, and the
// time since one of these sources was heard, negative if never.
func (d *diagnosis) early(v *ses.RecvView) (n int, heard time.Duration) {
	heard = -1
	d.f.pds.Each(func(p *pds.PDC) {
		if p.Initiator() || v.HasSource && p.Peer != v.Peer {
			return
		}
		k, at := p.Early()
		n += k
		if ago := d.now - at; heard < 0 || ago < heard {
			heard = ago
		}
	})
	return n, heard
}

// String describes the operation and its cause in a sentence.
func (w *Waiting) String() string {
	var b strings.Builder
	what := [...]string{OpSend: "send", OpTSend: "tagged send", OpRecv: "receive", OpTRecv: "tagged receive",
		OpWrite: "write", OpRead: "read", OpAtomic: "atomic", OpFetch: "fetching atomic"}[w.Kind]
	b.WriteString(what)
	if w.Kind == OpTSend || w.Kind == OpTRecv {
		fmt.Fprintf(&b, " %#x", w.Tag)
	}
	switch {
	case w.Remote.IsValid() && w.send():
		fmt.Fprintf(&b, " to %v", w.Remote)
	case w.Remote.IsValid():
		fmt.Fprintf(&b, " from %v", w.Remote)
	}
	if w.Mode != 0 {
		fmt.Fprintf(&b, " by %v", w.Mode)
	}
	fmt.Fprintf(&b, ", %v old, %d of %d bytes: %s", short(w.Age), w.Done, w.Total, w.Why())
	if w.Interface > 0 {
		fmt.Fprintf(&b, "; the path to %v carries %d bytes of payload in a packet, the interface %d", w.Remote, w.Payload, w.Interface)
	}
	return b.String()
}

// contextText is a context as part of a sentence: a number or a string itself, of anything
// else its type. It does not read what a pointer points to, because the user may be writing
// there.
func contextText(ctx any) string {
	switch ctx.(type) {
	case nil:
		return "without a context"
	case string, int, int32, int64, uint, uint32, uint64, uintptr:
		return fmt.Sprint(ctx)
	}
	return fmt.Sprintf("of a %T", ctx)
}

// short is d truncated to three digits.
func short(d time.Duration) time.Duration {
	for unit := time.Duration(1); ; unit *= 10 {
		if d < 1000*unit {
			return d.Truncate(unit)
		}
	}
}

// Why is the cause in a sentence.
func (w *Waiting) Why() string {
	switch w.Cause {
	case WaitNothing:
		return "packets are under way, none is late"
	case WaitAck:
		return fmt.Sprintf("no ACK: %s", w.silence())
	case WaitOpen:
		return fmt.Sprintf("the target has not answered the first packet of %v ago: %s", short(w.For), w.silence())
	case WaitClose:
		return "the packet delivery context to the peer closes; the message goes by the next one"
	case WaitPDC:
		if w.Full > 0 {
			return fmt.Sprintf("no packet delivery context can be opened: %d ids are in quarantine", w.Full)
		}
		return "it has no packet delivery context yet"
	case WaitRoom:
		return fmt.Sprintf("no room: %d operations are posted, as many as there may be", w.Full)
	case WaitNotReady:
		s := "no matching receive at the target, and no room to keep the message"
		switch {
		case w.Lent && w.Done > 0:
			s = fmt.Sprintf("the target has read %d bytes of the message", w.Done)
		case w.Lent:
			s = "no matching receive at the target, which knows of the message and has not read it"
		case w.RC != 0:
			s = fmt.Sprintf("no matching receive at the target (it answers %v, tried %d times)", w.RC, w.Timeouts)
		}
		return s + fmt.Sprintf(", for %v%s", short(w.For), w.next())
	case WaitShort:
		if w.Nack.Class() == wire.NackFatal {
			return fmt.Sprintf("the peer answered %v, which ends the packet delivery context if it is repeated%s", w.Nack, w.next())
		}
		return fmt.Sprintf("the peer is not ready: it answers %v%s%s", w.Nack, lasts(w.For), w.next())
	case WaitCongestion:
		return fmt.Sprintf("the window is closed by congestion control: %d of %d bytes are in flight", w.InFlight, w.Window)
	case WaitCredit:
		return fmt.Sprintf("the window is closed by no credit%s: the target has granted none that is left, %d bytes are in flight", lasts(w.For), w.InFlight)
	case WaitPeerWindow:
		return fmt.Sprintf("the window is closed by the peer (MP_RANGE): it takes %d packets, %d are not acknowledged", w.Window, w.InFlight)
	case WaitOwnWindow:
		return fmt.Sprintf("%d packets are sent and not acknowledged, as many as this side sends ahead (%d)", w.InFlight, w.Window)
	case WaitKey:
		return "there is no valid key to seal packets with" + lasts(w.For)
	case WaitBehind:
		return fmt.Sprintf("behind the message %s, of which %d bytes are not sent and which waits for %v", contextText(w.Behind), w.BehindLeft, w.BehindFor)
	case WaitFence:
		return "the sends before a fence have not ended"
	case WaitOrder:
		return fmt.Sprintf("it arrived, and the peer keeps it until an earlier packet arrives%s", w.next())
	case WaitAnswer:
		if w.Promised {
			return "the peer acknowledged all of it, and its response, which comes apart, did not come" + w.last()
		}
		return fmt.Sprintf("it arrived, and its answer did not come: %s", w.silence())
	case WaitMessage:
		return "no message came that matches; no other waits either" + w.last()
	case WaitMatch:
		return w.match()
	case WaitRest:
		s := fmt.Sprintf("the message began %v ago and is not complete%s", short(w.For), w.last())
		if w.Early > 0 {
			s += fmt.Sprintf("; %d later packets wait for one that is missing", w.Early)
		}
		return s
	case WaitEarlier:
		return fmt.Sprintf("%d packets came and wait for an earlier one, for the sake of order%s", w.Early, w.last())
	case WaitCQ:
		return fmt.Sprintf("%d messages came, and the completion queue has no room: read it", w.Unmatched)
	case WaitConnection:
		return "there is no connection yet"
	case WaitLost:
		return fmt.Sprintf("its source was given up %v ago; the receive stays, as the source may come back%s", short(w.For), w.last())
	}
	return w.Cause.String()
}

func (w *Waiting) match() string {
	if w.Unmatched == 0 {
		kind := "untagged"
		if w.Kind == OpRecv {
			kind = "tagged"
		}
		return fmt.Sprintf("no message matches: %d came that are %s", w.OtherKind, kind)
	}
	if w.Kind == OpRecv {
		return fmt.Sprintf("%d messages came, from sources that this receive does not take from", w.Unmatched)
	}
	var tags []string
	for _, t := range w.Tags {
		tags = append(tags, fmt.Sprintf("%#x", t))
	}
	more := ""
	if len(tags) < w.Unmatched {
		more = ", …"
	}
	return fmt.Sprintf("%d messages came, and none matches: tags %s%s", w.Unmatched, strings.Join(tags, ", "), more)
}

// silence says since when nothing was heard of the peer, and what the FEP does about it.
func (w *Waiting) silence() string {
	s := "nothing was heard of the peer on any packet delivery context"
	if w.Heard >= 0 {
		s = fmt.Sprintf("the peer was heard %v ago", short(w.Heard))
	}
	switch {
	case w.Nack != 0 && w.Heard >= 0:
		s += fmt.Sprintf(", it answered %v once, which does not count alone", w.Nack)
	case w.Nack != 0:
		s = fmt.Sprintf("the peer answered %v once, which does not count alone, and nothing else was heard of it", w.Nack)
	}
	if w.ICMP {
		s += ", and ICMP says that nobody is there"
	}
	s += fmt.Sprintf(", %d timeouts since%s", w.Timeouts, w.next())
	if w.GiveUp > 0 {
		s += fmt.Sprintf(", given up in %v", short(w.GiveUp))
	}
	return s
}

func (w *Waiting) next() string {
	if w.Next <= 0 {
		return ""
	}
	return fmt.Sprintf(", sent again in %v", short(w.Next))
}

func (w *Waiting) last() string {
	if w.Heard < 0 {
		return ""
	}
	return fmt.Sprintf("; a packet came %v ago", short(w.Heard))
}

func lasts(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf(" for %v", short(d))
}
