package simtest

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// everDied reports whether a life of the host has ended.
func (h *Host) everDied() bool {
	return h.FEP == nil || h.Closed || len(h.died) > 1
}

// mayFail reports whether a send may end in error. Most faults of docs/faults.md allow only
// success.
func (w *World) mayFail(o *Op) bool {
	late := o.Ordered && o.Event.Cause == transport.TooBig && !o.Event.Unknown // F7: only for certain
	return w.spec.MayFail || o.WrongRI || w.targetEnded(o) || late && w.void > 0 || w.removedFrom(o)
}

// targetEnded reports whether the endpoint that a send is for has ever ended, or one of the
// two hosts abandoned the other.
func (w *World) targetEnded(o *Op) bool {
	t := w.Hosts[o.Peer]
	return t.everDied() || t.shut[o.To] || parted(o.Host, t)
}

// sendEnded checks the end of a send.
func (w *World) sendEnded(o *Op) {
	h, e := o.Host, &o.Event
	switch {
	case e.Cause == transport.OK:
		switch {
		case o.Silent:
			w.Failf("%s: success event for a silent %v", h.Name(), o)
		case o.WrongRI && !o.early():
			w.Failf("%s: success of %v, whose target is not there", h.Name(), o)
		case o.gaveUp:
			w.Failf("%s: success of %v, of which a packet was given up", h.Name(), o)
		case o.cancel:
			w.Failf("%s: success of a cancelled %v", h.Name(), o)
		case e.Unknown:
			w.Failf("%s: success with unknown outcome of %v", h.Name(), o)
		case !o.early() && !w.spec.Forged:
			w.stage(o)
		}
	case e.Cause == transport.Truncated:
		// S-CPL-07: a truncated receive is the receiver's affair.
		w.Failf("%s: truncation at the sender of %v", h.Name(), o)
	case e.Cause == transport.Cancelled:
		w.wanted(o)
		if o.cancel && (o.txPieces > 0 && len(o.deferrals) == 0 && !o.refused || e.Unknown) {
			w.Failf("%s: cancelled after packets left: %v", h.Name(), o)
		}
		w.certain(o)
	default:
		if !w.mayFail(o) {
			w.Failf("%s: %v fails: %v%s", h.Name(), o, e.Cause, unknown(*e))
		}
		w.certain(o)
	}
	if !o.Inject {
		set(o.buf, spent)
	}
}

// wanted checks that an operation that ended as cancelled was cancelled, or that its host
// closed or abandoned the other host.
func (w *World) wanted(o *Op) {
	h := o.Host
	if i := h.abandoning; i != Any && (o.Peer == i || o.Peer == Any && o.Event.Peer == h.peers[i]) {
		return
	}
	if !o.cancel && !h.closing && !h.shut[o.From] {
		w.Failf("%s: %v ends cancelled without a cancel", o.Host.Name(), o)
	}
}

// stage checks that a send succeeds only after its target received every packet and
// its host every answer (docs/faults.md rule 2, R-CMPL-01, S-CPL-01).
func (w *World) stage(o *Op) {
	h := o.Host
	there := false
	for _, d := range o.lives {
		there = there || d.allAt != 0
	}
	switch {
	case !there && w.spec.SameRandom && len(o.lives) > 1:
		// Each life got a part, on PDCs that chance gave the same two PDCIDs and Start_PSN. In
		// clear nothing distinguishes the two (T22).
	case !there:
		w.Failf("%s: %v completes before all of it was given to the target (%d of %d bytes left)", h.Name(), o, o.txBytes, o.Len)
	case o.had: // and the last answers are lost
	case o.ansBytes < o.Len || len(o.answered) == 0:
		w.Failf("%s: %v completes with %d of %d bytes answered", h.Name(), o, o.ansBytes, o.Len)
	}
}

// certain checks that the target does not have the message of a send that failed
// without Unknown (docs/faults.md rule 3).
func (w *World) certain(o *Op) {
	if o.Event.Unknown {
		return
	}
	for _, d := range o.lives {
		switch {
		case d.receive == nil && (!d.had || o.by != nil && o.by.replaced):
			// Who refuses the Start_PSN, or a life that does not have the PDC, refuses its packets.
		case (o.Event.Cause == transport.Rejected || o.refused) && len(w.Hosts[o.Peer].born) > 1:
			// One life of the target refused it, and the next one may have accepted a copy that
			// was under way. In clear nothing distinguishes the two (T22).
		case w.spec.Secure == transport.SecureNone && o.deferredBefore(d.life):
			// A former life of the target deferred it, and died with that. A copy of the attempt was under
			// way, and this life accepted it. In clear nothing distinguishes the two (T22).
		case d.receive != nil:
			w.Failf("%s: %v fails for certain (%v), but %s received it in %v", o.Host.Name(), o, o.Event.Cause, w.Hosts[o.Peer].Name(), d.receive)
		case o.hadAll(d) && len(o.deferrals) == 0 && !o.voided && !o.refused && o.Event.Cause != transport.Rejected && o.Event.Cause != transport.NotReady && o.Event.Cause != transport.NoResource:
			w.Failf("%s: %v fails for certain (%v), but all of it was given to the target", o.Host.Name(), o, o.Event.Cause)
		}
	}
}

// hadAll reports whether one PDC gave all of the message to that life of the target. Parts that came on several
// count for nothing: each PDC has a message of its own, and who did not have a PDC, or refused its
// Start_PSN, refused what came on it.
func (o *Op) hadAll(d *delivery) bool {
	return d.allAt != 0 && slices.ContainsFunc(d.dirs, func(k *dir) bool {
		return !k.replaced && (k.holder == d.life || k.holder == 0) && k.gave(o, d)
	})
}

// deferredBefore reports whether a life of the target before that one deferred the message.
func (o *Op) deferredBefore(life int) bool {
	return slices.ContainsFunc(o.lives, func(d *delivery) bool { return d.life < life && len(d.deferred) > 0 })
}

// recvEnded checks the end of a receive.
func (w *World) recvEnded(o *Op) {
	h, e := o.Host, &o.Event
	switch e.Cause {
	case transport.OK, transport.Truncated:
		if !w.spec.Forged {
			w.received(o)
		} else if w.spec.Tells && o.tagged() {
			w.amongLiars(o)
		}
	case transport.Cancelled:
		w.wanted(o)
		if i := untouched(o.buf, soil); i >= 0 && o.cancel && !h.takesBack() {
			w.Failf("%s: byte %d of a receive that nothing matched was written: %v", h.Name(), i, o)
		}
	default:
		// F9: it matched a message whose rest will never arrive.
		if e.Len != 0 {
			w.Failf("%s: %v ends in error with length %d", h.Name(), o, e.Len)
		}
		h.errRecv++
	}
	if e.Unknown {
		w.Failf("%s: a receive with unknown outcome: %v", h.Name(), o)
	}
	w.guarded(o, o.whole)
	set(o.buf, spent)
}

// takesBack reports whether the host took a receive back from a message of which something had
// come already, and was written.
func (h *Host) takesBack() bool {
	if h.FEP != nil && h.FEP.Stats().TakenBack > 0 {
		h.tookBack = true
	}
	return h.tookBack
}

// withdraws reports whether the host has withdrawn a receive from a deferred message that did
// not come, and may have given it to a message that was kept before (S-DEF-08).
func (h *Host) withdraws() bool {
	if h.FEP != nil && h.FEP.Stats().Withdrawn > 0 {
		h.withdrew = true
	}
	return h.withdrew
}

// forgotten reports whether a message was over before its target began its present life. If the
// message was sent on two PDCs (NACK 15), the target knows neither, and may accept a late copy
// from each (T22).
func (w *World) forgotten(s *Op, h *Host) bool {
	var over time.Duration
	if s.Ended && s.Level != transport.LevelInject {
		over = s.EndedAt
	}
	for _, at := range s.Host.died {
		if at >= s.PostedAt && (over == 0 || at < over) {
			over = at
		}
	}
	return over != 0 && h.Life() > 1 && over < h.born[h.Life()-1]
}

// received checks a received message against the send that it must come from.
func (w *World) received(o *Op) {
	h, e := o.Host, &o.Event
	copy(o.head[:], o.buf[:min(e.Len, len(o.buf))])
	o.from = h.FEP.PeerAddr(e.Peer)
	s, sure := w.identify(o)
	if !sure {
		// It may be one of several messages. Choose one that no receive has, else one whose
		// receive can get another instead.
		s = w.place(o, map[*Op]bool{})
	}
	if s == nil || !s.send() || w.Hosts[s.Peer] != h {
		w.Failf("%s: %v receives a message that nobody sent here: %d bytes, tag %#x, peer %d", h.Name(), o, e.Len, e.Tag, e.Peer)
	}
	if d := s.delivery(h.Life()); sure && d.receive != nil && d.twin && w.place(d.receive, map[*Op]bool{s: true}) != nil {
		d.receive, d.twin = nil, false
	}
	o.match = s
	n := min(s.Len, o.Len)
	d := s.delivery(h.Life())
	switch {
	case !o.accepts(s):
		w.Failf("%s: %v receives %v, which it does not accept", h.Name(), o, s)
	case d.receive != nil && d.receive != o && !w.forgotten(s, h):
		w.Failf("%s: %v is received twice, by %v and %v", h.Name(), s, d.receive, o)
	case d.allAt == 0:
		w.Failf("%s: %v completes when %d of %d bytes of %v have arrived", h.Name(), o, d.bytes, s.Len, s)
	case e.Len != n || int(e.OverLen) != s.Len-n:
		w.Failf("%s: %v receives %d bytes and %d over from %v", h.Name(), o, e.Len, e.OverLen, s)
	case (e.Cause == transport.Truncated) != (e.OverLen > 0):
		w.Failf("%s: %v ends as %v with %d bytes over", h.Name(), o, e.Cause, e.OverLen)
	case o.from != s.Host.Addr():
		w.Failf("%s: %v names %v as source of %v", h.Name(), o, o.from, s)
	case e.Initiator != s.name().Initiator:
		w.Failf("%s: %v names initiator %d for %v", h.Name(), o, e.Initiator, s)
	case s.tagged() && e.Tag != s.tag:
		w.Failf("%s: %v reports tag %#x of %v", h.Name(), o, e.Tag, s)
	case e.HasData != s.HasData || s.HasData && e.Data != s.data:
		w.Failf("%s: %v reports data %v %#x of %v", h.Name(), o, e.HasData, e.Data, s)
	}
	if err := checkPattern(o.buf[:n], s.ID, 0); err != nil {
		w.Failf("%s: %v receives %v with wrong bytes: %v", h.Name(), o, s, err)
	}
	if i := untouched(o.buf[n:], soil); i >= 0 && !h.takesBack() {
		w.Failf("%s: %v receives %v and byte %d behind it was written", h.Name(), o, s, n+i)
	}
	d.receive = o
	d.twin = !sure
	if s.Failed() {
		w.certain(s)
	}
}

// identify returns the send whose message a receive got. It is not sure if the message is too
// short to carry its number and several are possible.
func (w *World) identify(o *Op) (s *Op, sure bool) {
	e := &o.Event
	switch {
	case o.tagged():
		return w.op(tagID(e.Tag)), true
	case e.HasData:
		return w.op(uint32(e.Data)), true
	case e.Len >= 8:
		id, _ := readPattern(o.buf)
		return w.op(id), true
	}
	n := 0
	for _, p := range w.ops {
		if w.looksLike(o, p) {
			s = p
			n++
		}
	}
	return s, n == 1
}

// looksLike reports whether a receive of few bytes may have got a message.
func (w *World) looksLike(o, s *Op) bool {
	e := &o.Event
	if s.Kind != transport.OpSend || s.postSeq == 0 || s.HasData || w.Hosts[s.Peer] != o.Host || s.Len != e.Len+int(e.OverLen) || s.WrongRI ||
		s.Host.Addr() != o.from || s.name().Initiator != e.Initiator || !o.accepts(s) {
		return false
	}
	// A message that a former life of the target refused may have come to this life.
	if s.Failed() && !s.Event.Unknown && len(o.Host.born) == 1 {
		return false
	}
	if checkPattern(o.head[:e.Len], s.ID, 0) != nil {
		return false
	}
	d := s.delivery(o.Host.Life())
	return d.allAt != 0 && (d.receive == nil || d.twin)
}

// place gives a receive one of the messages that it may have got, in post order, and moves
// other such receives to other messages (bipartite matching by augmenting paths).
func (w *World) place(o *Op, seen map[*Op]bool) *Op {
	for _, s := range w.ops {
		if seen[s] || !w.looksLike(o, s) {
			continue
		}
		seen[s] = true
		d := s.delivery(o.Host.Life())
		if d.receive == nil || d.twin && w.place(d.receive, seen) != nil {
			d.receive, d.twin = o, true
			o.match = s
			return s
		}
	}
	return nil
}

// claim takes a receive for a message from another message that looks the same, if that one
// need not have been received or can claim another receive. A message need not be received
// although all of it arrived, if the target refused its PDC as that of a former life.
func (w *World) claim(s *Op, seen map[*Op]bool) bool {
	t := w.Hosts[s.Peer]
	for _, o := range w.ops {
		m := o.match
		if m == nil || m == s || o.Host != t || o.Life != t.Life() || seen[o] {
			continue
		}
		d := m.delivery(o.Life)
		if d.receive != o || !d.twin || !w.looksLike(o, s) {
			continue
		}
		seen[o] = true
		if w.mustArrive(m) && !w.claim(m, seen) {
			continue
		}
		if d.receive == o {
			d.receive, d.twin = nil, false
		}
		d = s.delivery(o.Life)
		d.receive, d.twin = o, true
		o.match = s
		return true
	}
	return false
}

// owed reports whether Settle must wait for an operation: a send that has not ended, or a
// message that must still be received.
func (w *World) owed(o *Op) bool {
	if o.waiting {
		return o.Host.Up()
	}
	if o.read() {
		return o.postSeq != 0 && o.Open() && o.Host.Up() && o.Life == o.Host.Life()
	}
	if o.postSeq == 0 || !o.send() {
		return false
	}
	if o.Open() && o.Host.Up() && o.Life == o.Host.Life() {
		if !o.Silent {
			return true
		}
		// A silent send makes no event when it succeeds: it is over when its message is
		// received.
		if !o.Delivered() && !w.targetEnded(o) && !o.WrongRI && !w.spec.Forged {
			return true
		}
		return false
	}
	return w.missing(o)
}

// missing reports whether a message that must be delivered was not.
func (w *World) missing(o *Op) bool {
	return w.mustArrive(o) && !o.Delivered() && !w.claim(o, map[*Op]bool{})
}

// mustArrive reports whether a message that ended in success must be delivered: to a target
// that never died, or to the life that answered for it.
func (w *World) mustArrive(o *Op) bool {
	t := w.Hosts[o.Peer]
	if o.Failed() || o.Open() || o.Lost || o.WrongRI || w.spec.Forged || t.shut[o.To] || parted(o.Host, t) {
		return false
	}
	if o.voided && o.early() && o.Ordered && o.Host.Up() && o.Host.FEP.Stats().LateErrors > 0 {
		return false // F7: it came too late for its order, which nobody is told any more
	}
	if !t.everDied() {
		// Early success promises nothing if the sender died afterwards.
		return !o.early() || o.Life == o.Host.Life() && o.Host.Up()
	}
	if o.early() || !t.Up() {
		return false
	}
	for _, d := range o.lives {
		if d.allAt != 0 && d.allAt <= o.EndedAt {
			return d.life == t.Life() // else that life is over, with all it knew
		}
	}
	return false
}

// Drain posts receives that accept everything, k tagged and k untagged ones per endpoint. Each
// that ends is replaced, so that whatever arrives is received.
func (w *World) Drain(k int) {
	n := 0
	for _, o := range w.ops {
		if o.send() {
			n = max(n, o.Len)
		}
	}
	for _, h := range w.Hosts {
		if h.Up() && h.drainLeft == nil {
			h.drain(k, n)
		}
	}
}

func (h *Host) drain(k, n int) {
	old := h.onEvent
	post := func(kind transport.OpKind, at transport.EndpointID, old *Op) bool {
		o := h.w.newOp(h, OpSpec{Kind: kind, From: at, Peer: Any, AnyClass: true})
		o.Len, o.drainer = n, true
		if old != nil {
			// The next receive gets the same buffer, so that a late write shows.
			o.whole, o.buf = old.whole, old.buf
			old.whole, old.buf = nil, nil
			set(o.buf, soil)
		} else {
			o.whole, o.buf = newBuffer(n)
		}
		return h.post(o)
	}
	h.onEvent = func(o *Op) {
		if old != nil {
			old(o)
		}
		if o.drainer && !h.closing && h.Up() && !h.shut[o.From] && o.Event.Cause != transport.Cancelled {
			post(o.Kind, o.From, o)
		}
	}
	for range k {
		for i := range len(h.spec.More) + 1 {
			if at := transport.EndpointID(i); !h.shut[at] {
				post(transport.OpRecv, at, nil)
				post(transport.OpTRecv, at, nil)
			}
		}
	}
	h.drainLeft = func() {
		h.onEvent = old
		for _, o := range h.recvs {
			if o.drainer && o.Open() {
				h.Cancel(o)
			}
		}
	}
}

// patience bounds the time for which the network keeps a datagram after it healed.
func (w *World) patience() time.Duration {
	var d time.Duration
	for i, l := range w.Net.Lines() {
		if i >= w.gramLines[0] && i < w.gramLines[1] {
			continue // nobody waits for datagrams
		}
		f := l.Faults()
		d = max(d, f.Delay+f.Jitter)
	}
	d = max(d, w.spec.Patience)
	return 8 * d
}

// work is how long the hosts may need to send what is left, at half a window in each round
// trip. The window is as small as the configuration makes it, or as the queue of a switch that
// drops or trims. A target that grants credit receives at half the rate that it grants, at least.
func (w *World) work() time.Duration {
	var d, granted time.Duration
	room := math.MaxInt
	for _, l := range w.Net.Lines() {
		f := l.Faults()
		if f.Queue > 0 {
			room = min(room, f.Queue)
		}
		if f.Trim.After > 0 {
			room = min(room, f.Trim.After)
		}
	}
	for _, h := range w.Hosts {
		left, asked, came := 0, 0, 0
		for _, o := range w.ops {
			if !o.send() && !o.read() || !w.owed(o) {
				continue
			}
			p := w.Hosts[o.Peer]
			if o.Host == h && o.send() {
				left += o.Len
			}
			if o.Host == h && o.read() || p == h && o.announced() {
				asked += o.Len
			}
			to, back := p, o.Host // the data and what asks for it, if it is asked for
			if o.Kind == transport.OpRead || o.Kind == transport.OpFetch {
				to, back = o.Host, p
			}
			switch {
			case to == h:
				came += o.Len + overhead(o.Len)
			case back == h && (o.read() || o.announced()):
				came += overhead(o.Len)
			}
		}
		mtu := h.Config.PayloadMTU
		window := min(h.Config.Window, room)
		trips := left / max(window, mtu)
		trips += asked / max(min(window, h.Config.ReadWindow)/mtu*mtu, mtu) // a read asks for whole packets
		d = max(d, time.Duration(2*trips)*w.patience()/4)
		if h.Config.Congestion != transport.NSCC && h.Config.LineRate > 0 {
			granted = max(granted, time.Duration(2*float64(came)/float64(h.Config.LineRate)*float64(time.Second)))
		}
	}
	return d + granted
}

// announced reports whether a send goes by rendezvous, if its target reads.
func (o *Op) announced() bool {
	least := o.Host.Config.RendezvousMin
	return o.send() && least > 0 && o.Len >= least
}

// overhead is no less than the nominal size of all headers of n bytes of data, and of the requests that ask
// for them: of as many packets as with the smallest MTU, 128 bytes each.
func overhead(n int) int { return (n/1024 + 1) * 128 }

// keptFor is how long a receive may be kept for a deferred message that does not come, and how long
// a read may wait for data that does not come although its target lives: five sweeps (S-DEF-08).
const keptFor = 125 * time.Second

// Settle drains everything, waits for the end of all operations, for rest, and for the end of
// all PDCs, and audits. The network must be healed. bound is for the operations between hosts
// that never died.
func (w *World) Settle(bound time.Duration) {
	if w.tb != nil {
		w.tb.Helper()
	}
	w.settling = true
	w.Drain(4)
	w.note("settling")
	bound += w.work()
	var slow time.Duration // the extra time that the death of a host allows
	for _, h := range w.Hosts {
		if h.everDied() || w.spec.MayFail || slices.Contains(h.abandoned, true) {
			for _, g := range w.Hosts {
				slow = max(slow, g.Config.PeerTimeout+2*time.Second)
			}
		}
	}
	if w.spec.Liar {
		slow = max(slow, keptFor) // what the liar has promised and does not bring ends as idle
	}
	// docs/faults.md rule 5: while an operation between living hosts is open, there is
	// progress within 1 s.
	from := w.Net.Now()
	i, live := 0, 0
	stuck := func() *Op {
		for ; live < len(w.ops); live++ {
			o := w.ops[live]
			if !o.send() && !o.read() || !w.owed(o) || w.Hosts[o.Peer].everDied() || o.Host.everDied() || parted(o.Host, w.Hosts[o.Peer]) || slow > 0 && (o.waiting || w.Hosts[o.Peer].deferred) {
				continue // or it waits for room, or a receive, that operations of dead hosts occupy
			}
			return o
		}
		return nil
	}
	for {
		done := w.Net.RunUntil(w.Net.Now()+time.Second/4, func() bool {
			for i < len(w.ops) && !w.owed(w.ops[i]) {
				i++
			}
			return i == len(w.ops)
		})
		if done {
			break
		}
		now := w.Net.Now()
		o := stuck()
		switch {
		case o != nil && now-from > bound+w.patience():
			w.Failf("%v is still open %v after the faults have ended", o, now-from)
		case o != nil && now-max(from, w.progress) > time.Second+w.patience() && !w.spec.Liar: // the ledger, which is off, sees progress
			w.Failf("nothing went on for %v after the faults have ended; open: %v\n%s", now-max(from, w.progress), o, o.Host.FEP.Dump())
		default:
			o := w.ops[min(i, len(w.ops)-1)]
			since := max(from, o.PostedAt)
			if o.waiting {
				since = max(from, w.progress) // it waits for room, which takes the time of a dead peer
			}
			if w.Hosts[o.Peer].deferred && slow > 0 {
				since += keptFor // its receive may be kept for a message that does not come
			}
			if o.read() && w.twins {
				since += keptFor // what its peer returned may pass for what it had (T22): it ends as idle
			}
			if now-since > bound+slow+w.patience() {
				w.Failf("%v is still open %v after the faults have ended, time for a dead peer included", o, now-from)
			}
		}
	}
	// Only this shows the end of a silent send to a host that died.
	w.RunUntil(bound+slow+w.patience(), "the end of all sends", func() bool {
		for _, h := range w.Hosts {
			if h.Up() && h.FEP.Busy() {
				return false
			}
		}
		return true
	})
	// A host that was restarted may accept a late copy as a new packet.
	w.RunUntil(10*time.Second, "the arrival of the last late copy", func() bool { return w.Net.UnderWay() == 0 })
	// What it completes on a ROD PDC is executed in several turns.
	w.Run(100 * time.Millisecond)
	// A late half of a message occupies a receive until its PDC is given up, and a whole
	// message may have to wait for that receive. A receive that is kept for a deferred message whose
	// sender has ended goes back when it has waited for five sweeps (S-DEF-08).
	late := slow
	for _, h := range w.Hosts {
		if h.everDied() || h.closing || !h.Up() || slices.Contains(h.abandoned, true) {
			late = keptFor
		}
	}
	w.RunUntil(time.Second+late+w.patience(), "the receipt of what is unexpected", func() bool {
		for _, h := range w.Hosts {
			if h.Up() && h.FEP.Unexpected() > 0 {
				return false
			}
		}
		return true
	})
	// No message is left, so cancel the receives that remain. Those that wait for the rest of a
	// message end with their peer.
	for _, h := range w.Hosts {
		if h.drainLeft != nil && h.Up() {
			h.drainLeft()
		}
		h.drainLeft = nil
		h.cancelRecvs()
	}
	var left *Op
	ended := func() bool {
		for _, h := range w.Hosts {
			for len(h.recvs) > 0 && !h.recvs[0].Open() {
				h.recvs = h.recvs[1:]
			}
			if h.Up() && len(h.recvs) > 0 {
				left = h.recvs[0]
				return false
			}
		}
		return true
	}
	if !w.Net.RunUntil(w.Net.Now()+time.Second+slow+w.patience(), ended) {
		// What a message had could not be cancelled. If the message came from nobody, its receive waits again.
		for _, h := range w.Hosts {
			h.cancelRecvs()
		}
		w.Run(time.Millisecond)
	}
	if !ended() {
		w.Failf("%v can neither be cancelled nor ends", left)
	}
	w.Rest(slow)
	w.Audit()
}

// cancelRecvs cancels all receives that are open.
func (h *Host) cancelRecvs() {
	if !h.Up() {
		return
	}
	for _, o := range h.recvs {
		if o.Open() {
			h.Cancel(o)
		}
	}
}

// Rest waits until there is no message, then no PDC, then no timer, then no packet under way.
// It checks that no host sends anything after that.
func (w *World) Rest(slow time.Duration) {
	if w.tb != nil {
		w.tb.Helper()
	}
	w.restGrams()
	var idle, quarantine, silent time.Duration
	for _, h := range w.Hosts {
		c := &h.Config
		// A target may ask for nearly PeerTimeout for the close of a PDC: its initiator is gone, or has closed
		// the PDC in a blackout (seed 20180232).
		silent = max(silent, c.PeerTimeout)
		// An initiator closes after IdleClose, a target asks after two.
		idle = max(idle, 2*c.IdleClose+c.CloseReqTime+c.SuspectTimeout)
		quarantine = max(quarantine, c.Quarantine)
		slow = max(slow, c.CloseReqTime)
	}
	all := func(cond func(h *Host) bool) func() bool {
		return func() bool {
			for _, h := range w.Hosts {
				if h.FEP != nil && !cond(h) {
					return false
				}
			}
			return true
		}
	}
	// A stored response whose CLEAR was lost waits for the initiator's CLOSE if its source
	// never proved itself (T27).
	w.RunUntil(max(idle, silent)+2*time.Second+slow+w.patience(), "rest", all(func(h *Host) bool { return h.FEP.Idle() && !h.FEP.Busy() }))
	w.RunUntil(max(idle, silent)+2*time.Second+slow+w.patience(), "the end of all PDCs", all(func(h *Host) bool { return h.FEP.PDCs() == 0 }))
	w.RunUntil(quarantine+2*time.Second, "the end of all timers", all(func(h *Host) bool { return h.FEP.NextTimeout() == 0 }))
	w.RunUntil(10*time.Second, "the arrival of the last datagram", func() bool { return w.Net.UnderWay() == 0 })
	packets := w.packets
	w.Run(10 * time.Second)
	if w.packets != packets {
		w.Failf("%d datagrams were sent at rest", w.packets-packets)
	}
	if n := w.Net.UnderWay(); n != 0 {
		w.Failf("BUG: simtest: %d datagrams under way at rest", n)
	}
	for _, h := range w.Hosts {
		if h.pool.Out() != 0 {
			w.Failf("%s: %d buffers out of the pool at rest", h.Name(), h.pool.Out())
		}
		if h.FEP == nil {
			continue
		}
		if !h.FEP.Idle() || h.FEP.Busy() || h.FEP.Queued() != 0 {
			w.Failf("%s: not idle at rest: busy %v, %d queued", h.Name(), h.FEP.Busy(), h.FEP.Queued())
		}
		// Bytes that stayed in flight would close a window of one packet for ever.
		if n := h.FEP.Load().InFlight; n != 0 {
			w.Failf("%s: %d bytes in flight at rest", h.Name(), n)
		}
	}
}

// Audit checks what is known only at the end of a run.
func (w *World) Audit() {
	if w.tb != nil {
		w.tb.Helper()
	}
	for _, o := range w.ops {
		if o.postSeq == 0 {
			continue
		}
		if o.Open() && o.Host.Up() && o.Life == o.Host.Life() && !(o.send() && o.Silent) {
			w.Failf("%s: %v never ended", o.Host.Name(), o)
		}
		// Check that nobody wrote to a buffer that was given back, or around one.
		switch {
		case o.buf != nil && o.Ended:
			w.unwritten(o, o.whole, o.buf)
		case o.whole != nil:
			w.guarded(o, o.whole)
		}
		if !o.send() {
			continue
		}
		if w.missing(o) {
			w.Failf("%s: %v ended in success and was never received", o.Host.Name(), o)
		}
		if o.Failed() {
			w.certain(o)
		}
		w.deliveryStage(o)
		w.matchStage(o)
	}
	for _, n := range slices.Sorted(maps.Keys(w.spare)) {
		for _, s := range w.spare[n] {
			w.unwritten(s.was, s.whole, s.whole[guardLen:guardLen+n])
		}
	}
	if !w.spec.Light {
		w.auditOrder()
	}
	w.auditCounters()
	w.auditBoards()
	if w.spec.Liar {
		w.auditLies()
	}
	w.auditSlates()
	w.auditGrams()
	for _, h := range w.Hosts {
		w.auditHost(h)
	}
}

// deliveryStage checks that a send at LevelDelivery succeeds only when the target has
// the message (R-CMPL-07): a receive that was posted before the message was complete has
// ended by then. A receive that was taken back, or withdrawn from a deferred message, may get
// a message that was kept before (R-CMPL-19, S-DEF-08). The receive of a rendezvous send ends when the answers to
// its read are there, too.
func (w *World) deliveryStage(o *Op) {
	if !o.OK() || o.Level != transport.LevelDelivery || o.lent || w.Hosts[o.Peer].takesBack() || w.Hosts[o.Peer].withdraws() {
		return
	}
	for _, d := range o.lives {
		if r := d.receive; r != nil && !d.twin && d.allAt != 0 && d.allAt <= o.EndedAt && r.PostedAt < d.allAt && r.EndedAt > o.EndedAt {
			w.Failf("%s: %v completes at delivery before %v has the message", o.Host.Name(), o, r)
		}
	}
}

// matchStage checks that a send at LevelMatch succeeds only when a receive has its message
// (R-CMPL-12).
func (w *World) matchStage(o *Op) {
	if !o.OK() || o.Level != transport.LevelMatch || w.spec.Forged {
		return
	}
	for _, d := range o.lives {
		if d.receive != nil && d.receive.PostedAt <= o.EndedAt {
			return
		}
	}
	for _, r := range w.ops {
		if r.Host == w.Hosts[o.Peer] && r.Kind == transport.OpRecv && r.Ended && r.match == nil && r.Event.Len < 8 && !o.tagged() {
			return // it may have got the message, of which too little fitted to tell
		}
	}
	w.Failf("%s: %v completes at match, and no receive has it at %v", o.Host.Name(), o, o.EndedAt)
}

// auditOrder checks that ordered messages, and receives, are matched in the order in
// which they were posted (S-MAT-04, R-MSG-08, R-ORD-05).
func (w *World) auditOrder() {
	type flow struct {
		from, to     *Host
		life, toLife int
		by, of       transport.EndpointID
		tagged       bool
	}
	ordered := map[flow][]*Op{}
	var flows []flow
	var cancelled []*Op
	for _, r := range w.ops {
		if !r.send() && !r.read() && r.postSeq != 0 && r.cancel {
			cancelled = append(cancelled, r)
		}
	}
	for _, s := range w.ops {
		for _, d := range s.lives {
			if d.receive == nil || d.twin {
				continue
			}
			for _, r := range cancelled {
				// r was pending all the time and should have got it, unless it was taken back from a
				// message that it had then.
				if r.Host == d.receive.Host && !r.Host.takesBack() && r.Life == d.receive.Life && r.postSeq < d.receive.postSeq &&
					r.endSeq > d.receive.endSeq && r.accepts(s) {
					w.Failf("%s: %v got %v, though %v was posted before and matches", r.Host.Name(), d.receive, s, r)
				}
			}
			// Packets for a former life of the target may arrive late, in any order.
			if s.Ordered && s.PostedAt >= d.receive.Host.born[d.life-1] {
				f := flow{s.Host, d.receive.Host, s.Life, d.life, s.From, s.To, s.tagged()}
				if ordered[f] == nil {
					flows = append(flows, f)
				}
				ordered[f] = append(ordered[f], s)
			}
		}
	}
	for _, f := range flows {
		// What decides about most pairs, of which there are many, is side by side.
		type post struct{ sent, got, tag uint64 }
		posts := make([]post, len(ordered[f]))
		got := make([]*Op, len(ordered[f]))
		for i, s := range ordered[f] {
			got[i] = s.delivery(f.toLife).receive
			posts[i] = post{s.postSeq, got[i].postSeq, s.tag}
		}
		for i, b := range ordered[f] {
			at, rb := posts[i], got[i]
			for k := range posts {
				if p := &posts[k]; p.got <= at.got || p.sent >= at.sent || rb.tagged() && (p.tag^rb.tag)&^rb.ignore != 0 {
					continue
				}
				a, ra := ordered[f][k], got[k]
				if a.Ended && a.Event.Unknown && a.endSeq < b.postSeq {
					continue // its PDC was gone, and a packet of it came late (S-END-07)
				}
				if f.to.withdraws() {
					continue // rb may have been kept for a message before a, which was given up (S-DEF-08)
				}
				if a.early() && parted(f.from, f.to) {
					continue // Abandon ended its PDC after its completion, and a packet of it came late
				}
				if rb.accepts(a) {
					w.Failf("%s: ordered messages matched out of order: %v by %v, then %v by %v", f.to.Name(), b, rb, a, ra)
				}
			}
		}
	}
}

// auditHost compares a host's counters with what the packets show.
func (w *World) auditHost(h *Host) {
	if h.FEP == nil {
		return
	}
	st := h.FEP.Stats()
	if !w.spec.Hostile && !w.spec.NoCRC {
		// F5, F6: each damaged datagram, and no other, is counted as such a drop.
		n := st.Drops[transport.DropCRC] + st.Drops[transport.DropShort] + st.Drops[transport.DropLength] + st.Drops[transport.DropSecured]
		if w.spec.Secure != transport.SecureNone {
			for _, r := range [...]transport.DropReason{transport.DropClear, transport.DropAuth, transport.DropSDI, transport.DropKey, transport.DropEpoch} {
				n += st.Drops[r]
			}
		}
		if n+st.RxTrimmed != uint64(h.damaged+h.trimmed) {
			w.Failf("%s: %d datagrams came damaged or trimmed, %d are counted as such", h.Name(), h.damaged+h.trimmed, n+st.RxTrimmed)
		}
		// A FEP that looks at code points counts trimmed datagrams separately.
		if cut := uint64(h.trimmed); h.Config.Trimming && (st.RxTrimmed > cut || st.RxTrimmed < cut-uint64(h.wild)) || !h.Config.Trimming && st.RxTrimmed != 0 {
			w.Failf("%s: %d datagrams came trimmed, %d are counted as such", h.Name(), h.trimmed, st.RxTrimmed)
		}
		if nacks := st.NacksTx[1] + st.NacksTx[2]; st.RxTrimmed != nacks+st.Drops[transport.DropTrimmed] {
			w.Failf("%s: of %d trimmed datagrams %d were answered and %d dropped", h.Name(), st.RxTrimmed, nacks, st.Drops[transport.DropTrimmed])
		}
	}
	died := false
	for _, g := range w.Hosts {
		died = died || g.everDied()
	}
	if !w.spec.Hostile && !died { // packets for a former life may be odd
		for _, r := range []transport.DropReason{transport.DropType, transport.DropNextHdr, transport.DropHeader, transport.DropUnsent, transport.DropSelf} {
			if st.Drops[r] != 0 {
				w.Failf("%s: %d drops for reason %d among honest peers", h.Name(), st.Drops[r], r)
			}
		}
	}
	if w.spec.Liar {
		return // what it says may be a message, to a receive of Drain
	}
	// A host in a later life may get late copies of half a message, and is excused.
	if h.errRecv > 0 && !w.spec.MayFail && h.Life() == 1 {
		for _, s := range w.ops {
			if s.send() && s.postSeq != 0 && w.Hosts[s.Peer] == h && (s.Lost || s.Failed() || s.Host.everDied() || parted(s.Host, h)) {
				return
			}
		}
		w.Failf("%s: %d receives ended in error, though nothing happened to any sender", h.Name(), h.errRecv)
	}
}
