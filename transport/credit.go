package transport

import (
	"fmt"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Congestion says by what a FEP decides when packets may leave, and whether it grants credit
// (UE 3.6).
type Congestion uint8

// The kinds of congestion control.
const (
	// NSCC: the source decides, by what ACKs show of the network.
	NSCC Congestion = iota
	// RCCC: the destination grants credit, and the source sends what it covers.
	RCCC
	// NSCCAndRCCC: the source sends what both permit.
	NSCCAndRCCC
)

var congestionNames = [...]string{"nscc", "rccc", "both"}

func (c Congestion) String() string {
	if int(c) < len(congestionNames) {
		return congestionNames[c]
	}
	return fmt.Sprintf("congestion %d", uint8(c))
}

// A crediting is both ends of RCCC in a FEP: its sources' CCCs that wait for credit, and what it
// grants. It exists with RCCC only.
type crediting struct {
	grants *cms.Grants
	// waiting are the PDCs on which packets wait for credit. waitAt is no later than the first
	// of their questions is due, 0 if none is.
	waiting []*pds.PDC
	asked   []*pds.PDC // those of waiting that have just asked; empty between calls
	waitAt  time.Duration
	// lacking is, by PeerID, how many of waiting the peer has; targets is how many peers have some.
	// setWaiting alone writes both.
	lacking []int32
	targets int
	// queued is, by pds.PDC.Slot, what of the PDC is in the sum of its CCC; turn the PDC that had the last turn, which
	// has sent some of that since. count and uncount alone write them and the sums.
	queued  []queued
	turn    *pds.PDC
	ids     map[PeerID]*creditIDs
	lastID  uint8
	used    cms.CreditStats // of all sources' CCCs
	refused uint64
}

// A queued is how many nominal bytes a CCC has in its sum for a PDC.
type queued struct {
	in *cms.Credit
	n  int
}

// creditIDs are the ccc_ids of the CCCs that there are to a peer. They follow one another, so that an id is
// used again only after all others that are free, when the peer has long forgotten whose it was.
type creditIDs struct {
	used [4]uint64
	n    int // of used
	last uint8
}

// take returns an id that no CCC has. There must be one.
func (s *creditIDs) take() uint8 {
	for s.last++; s.used[s.last/64]>>(s.last%64)&1 != 0; s.last++ {
	}
	s.used[s.last/64] |= 1 << (s.last % 64)
	s.n++
	return s.last
}

// free lets an id be used again.
func (s *creditIDs) free(id uint8) {
	s.used[id/64] &^= 1 << (id % 64)
	s.n--
}

// CreditCounters count what RCCC did.
type CreditCounters struct {
	CreditsUsed    uint64 // grants that came and brought credit
	CreditsOld     uint64 // grants below an earlier one: late, or taken back
	CreditsExcess  uint64 // grants above what was asked for; the excess does not count
	CreditPersists uint64 // packets sent without credit, because the destination was silent or granted nothing for long
	CreditsRefused uint64 // peers with which RCCC ended, because they refused it (NACK 19)
	CreditsGranted uint64 // grants made
	CreditsExpired uint64 // granted bytes that were given up: most of them never arrive
	CreditsCrowded uint64 // demands of sources for which there was no room
	// CreditWaited is for how long packets waited for credit, to whichever peer.
	CreditWaited time.Duration
}

// startCredit prepares RCCC.
func (f *FEP) startCredit() {
	room := f.cfg.RecvWindow
	if room == 0 && f.cfg.LineRate == 0 {
		room = f.cfg.Window
	}
	var cost func(int) int
	if c := f.cfg.RecvCost; c != nil && f.cfg.RecvWindow > 0 {
		cost = func(n int) int { return c(max(n-f.form.overhead, 0)) }
	}
	f.extra, f.grants = true, 1
	f.credit = &crediting{
		grants: cms.NewGrants(cms.GrantConfig{MTU: f.packetMost(), Most: f.cfg.Window, Rate: f.cfg.LineRate, Room: room, Cost: cost, BaseRTT: f.cfg.BaseRTT}),
		ids:    make(map[PeerID]*creditIDs),
		lastID: uint8(f.rng.Uint32()),
	}
}

// packetMost is the nominal size of a full packet.
func (f *FEP) packetMost() int { return f.cfg.PayloadMTU + f.form.reqLen + f.form.overhead }

// newCredit is newCCC with RCCC. Of the CCCs to a peer each has its own ccc_id. Where all are in use, a ROD PDC
// shares the CCC of the RUD PDCs.
func (f *FEP) newCredit(p *peer, cfg cms.Config) pds.CCC {
	cr, id := f.credit, f.book.byAddr[p.addr]
	ids := cr.ids[id]
	if ids == nil {
		ids = &creditIDs{last: cr.lastID}
		cr.ids[id] = ids
		cr.lastID += idStep
	}
	if p.ccc != nil && ids.n == 256 {
		return p.ccc
	}
	c := cms.NewCredit(cfg, f.cfg.Congestion == NSCCAndRCCC, ids.take(), &cr.used)
	if p.noCredit {
		c.Refuse(f.now)
	}
	if p.ccc == nil && ids.n == 256 {
		p.ccc = c // the last one is for all that follow, too
	}
	return c
}

// idStep is how far the first ccc_id of a peer is from that of the peer before it. It is odd, so that all
// have their turn. Else arbitrary.
const idStep = 61

// dropCredit ends a CCC that a PDC of a peer had or was to have, unless it is the one that PDCs share.
func (f *FEP) dropCredit(id PeerID, ccc pds.CCC) {
	if c, ok := ccc.(*cms.Credit); ok && ccc != f.peers[id].ccc {
		c.End(f.now)
		f.credit.ids[id].free(c.ID())
	}
}

// creditForgotten ends the CCC that the PDCs of a peer shared, which has none any more.
func (f *FEP) creditForgotten(id PeerID, ccc pds.CCC) {
	if c, ok := ccc.(*cms.Credit); ok {
		c.End(f.now)
	}
	delete(f.credit.ids, id)
}

// creditOf is the CCC of a PDC if it is one with credit, else nil.
func creditOf(p *pds.PDC) *cms.Credit {
	c, _ := p.CCC().(*cms.Credit)
	return c
}

// backlog is how many nominal bytes wait on a PDC.
func (f *FEP) backlog(pdc *pds.PDC, p *peer) int {
	ln := &f.lanes[pdc.Slot]
	// Messages are at least so many packets. More would be asked for than is used, and what is granted and not used is
	// withheld from others until it expires.
	packets := max((ln.bytes+int(p.mtu)-1)/int(p.mtu), ln.q.len())
	if ln.q.len() > 0 {
		packets += f.ses.Asks(ln.q.front(), int(p.mtu))
	}
	n := ln.bytes + packets*(f.form.reqLen+f.form.overhead)
	if ln.data && !pdc.Initiator() {
		parts, bytes := f.ses.ToReturn(pdc.Slot)
		n += bytes + max(parts, (bytes+int(p.mtu)-1)/int(p.mtu))*(f.form.reqLen+f.form.overhead)
	}
	return n + pdc.ToResend()*f.packetMost()
}

// count puts what waits on a PDC now into the sum of its CCC, instead of what waited there when it was last
// counted. A PDC whose messages become more or fewer has a turn soon, and each turn counts.
func (f *FEP) count(pdc *pds.PDC) {
	cr := f.credit
	for int(pdc.Slot) >= len(cr.queued) {
		cr.queued = append(cr.queued, queued{})
	}
	q, c := &cr.queued[pdc.Slot], creditOf(pdc)
	if q.in != c {
		q.in.Queue(-q.n)
		*q = queued{in: c}
	}
	n := f.backlog(pdc, &f.peers[pdc.Peer])
	c.Queue(n - q.n)
	q.n = n
}

// uncount takes a PDC that is gone out of the sum of its CCC.
func (f *FEP) uncount(pdc *pds.PDC) {
	cr := f.credit
	if cr.turn == pdc {
		cr.turn = nil
	}
	if int(pdc.Slot) < len(cr.queued) {
		q := &cr.queued[pdc.Slot]
		q.in.Queue(-q.n)
		if q.in != nil && q.in.Queued() == 0 {
			q.in.Wants(f.now, 1) // nothing waits for credit any more
		}
		*q = queued{}
	}
}

// wants tells the CCC of a PDC, which has a turn, how much waits for it, on this PDC and on those that share it.
func (f *FEP) wants(now time.Duration, pdc *pds.PDC) {
	cr := f.credit
	if cr.turn != nil && cr.turn != pdc {
		f.count(cr.turn)
	}
	cr.turn = nil
	if f.lanes[pdc.Slot].pdc == pdc { // else it is gone
		cr.turn = pdc
		f.count(pdc)
	}
	if c := creditOf(pdc); c != nil && c.On() {
		c.Wants(now, cr.targets)
	}
}

// setWaiting says whether packets of a PDC wait for credit.
func (f *FEP) setWaiting(pdc *pds.PDC, on bool) {
	if pdc.LacksCredit() == on {
		return
	}
	pdc.SetLacksCredit(on)
	cr := f.credit
	for int(pdc.Peer) >= len(cr.lacking) {
		cr.lacking = append(cr.lacking, 0)
	}
	n := &cr.lacking[pdc.Peer]
	switch {
	case on:
		if *n++; *n == 1 {
			cr.targets++
		}
	default:
		if *n--; *n == 0 {
			cr.targets--
		}
	}
}

// lacksCredit notes that packets of a PDC wait for credit, and asks for it if that is due.
func (f *FEP) lacksCredit(now time.Duration, pdc *pds.PDC) {
	c, cr := creditOf(pdc), f.credit
	if c == nil || c.HasCredit() || pdc.RemoteID() == 0 {
		return
	}
	if c.Ask(now) {
		pdc.AskCredit()
	}
	if !pdc.LacksCredit() {
		f.setWaiting(pdc, true)
		cr.waiting = append(cr.waiting, pdc)
	}
	cr.waitAt = sooner(cr.waitAt, c.AskAt())
}

// askCredits asks again for credit that did not come. Who has asked goes behind the others: its target may
// be gone, and the PDCs of a peer, which share the question, may have others.
func (f *FEP) askCredits(now time.Duration) {
	cr := f.credit
	keep, at := cr.waiting[:0], time.Duration(0)
	asked := cr.asked[:0]
	for _, pdc := range cr.waiting {
		c := creditOf(pdc)
		if c != nil && c.Persists(now) { // another PDC of the peer sends without; this one is to ask next
			keep, at = append(keep, pdc), sooner(at, max(c.AskAt(), now+1))
			continue
		}
		if c == nil || c.HasCredit() || c.AskAt() == 0 {
			f.setWaiting(pdc, false)
			continue
		}
		if now >= c.AskAt() {
			f.wants(now, pdc)
			switch {
			case c.Persist(now):
				f.setWaiting(pdc, false)
				p := &f.peers[pdc.Peer]
				f.wakeData(&f.lanes[pdc.Slot], p)
				for p.data.front() != pdc.Slot { // it is the one that sends
					p.data.push(p.data.pop())
				}
				continue
			case c.Ask(now):
				pdc.AskCredit()
				asked, at = append(asked, pdc), sooner(at, c.AskAt())
				continue
			}
			if now >= c.AskAt() {
				f.setWaiting(pdc, false)
				continue // nothing waits any more
			}
		}
		keep, at = append(keep, pdc), sooner(at, c.AskAt())
	}
	keep = append(keep, asked...)
	clear(cr.waiting[len(keep):])
	clear(asked)
	cr.waiting, cr.waitAt, cr.asked = keep, at, asked[:0]
}

// advanceCredit does what is due of RCCC.
func (f *FEP) advanceCredit(now time.Duration) {
	if cr := f.credit; cr.waitAt != 0 && now >= cr.waitAt {
		f.askCredits(now)
	}
	f.grant(now)
}

// timeout is when advanceCredit has something to do.
func (cr *crediting) timeout() time.Duration { return sooner(cr.waitAt, cr.grants.NextTimeout()) }

// grant makes the grants that are due.
func (f *FEP) grant(now time.Duration) {
	g := f.credit.grants
	g.Advance(now)
	for {
		peer, slot, _, credit, ok := g.Next(now)
		if !ok {
			return
		}
		if pdc := f.pds.At(slot); pdc != nil && pdc.Peer == peer {
			pdc.GiveCredit(credit)
		} else {
			g.Closed(peer, slot)
		}
	}
}

// demanded takes the credit target of a request that arrived, of n nominal bytes. again says that it had arrived
// before.
func (f *FEP) demanded(p *pds.PDC, h *wire.Req, n int, again bool) {
	if f.peers[p.Peer].noCredit {
		return
	}
	g := f.credit.grants
	g.Arrived(f.now, p.Peer, h.CCCID, n)
	if h.Flags&wire.FlagRETX != 0 && !again && !p.IsEarly(h.PSN) {
		g.Lost(f.now, p.Peer, h.CCCID, n) // it was sent before by other credit
	}
	g.Ask(f.now, p.Peer, h.CCCID, h.CreditTarget, p.Slot, !p.Unproven(), false)
}

// refusedOne notes that a request of n nominal bytes was refused, so that it will come again by other credit although
// its first one was used.
func (f *FEP) refusedOne(p *pds.PDC, n int) {
	if f.credit != nil && p.Peer != 0 {
		f.credit.grants.Refused(p.Peer, p.Slot, n)
	}
}

// creditAsked takes a CREDIT_REQ.
func (f *FEP) creditAsked(p *pds.PDC, payload uint32) {
	if p.Peer == 0 {
		return
	}
	q, g := wire.ParseCPCreditReq(payload), f.credit.grants
	if f.peers[p.Peer].noCredit {
		p.RefuseCredit(f.now)
		return
	}
	answer, ok := g.Ask(f.now, p.Peer, q.CCCID, q.CreditTarget, p.Slot, !p.Unproven(), true)
	switch {
	case !ok: // there are too many sources now: it asks again
	case answer:
		p.GiveCredit(g.Credit(p.Peer, q.CCCID))
	}
}

// credited takes a grant.
func (f *FEP) credited(p *pds.PDC, credit uint32) {
	if c := creditOf(p); c != nil && c.OnCredit(f.now, credit) {
		f.wakePeer(PeerID(p.Peer))
	}
}

// noCredit ends RCCC with a peer that does not know it.
func (f *FEP) noCredit(p *pds.PDC) {
	pr := &f.peers[p.Peer]
	if !pr.noCredit {
		pr.noCredit = true
		f.credit.refused++
	}
	f.credit.grants.Forget(p.Peer)
	f.pds.Each(func(q *pds.PDC) {
		if q.Peer != p.Peer {
			return
		}
		if c := creditOf(q); c != nil {
			c.Refuse(f.now)
		}
	})
	f.wakePeer(PeerID(p.Peer))
}

// creditGone forgets a PDC that is gone. last says that it was the last one of its peer.
func (f *FEP) creditGone(p *pds.PDC, last bool) {
	cr := f.credit
	if p.LacksCredit() {
		f.setWaiting(p, false)
		cr.waiting = slices.DeleteFunc(cr.waiting, func(q *pds.PDC) bool { return q == p })
	}
	f.uncount(p)
	f.dropCredit(PeerID(p.Peer), p.CCC())
	if last {
		cr.grants.Forget(p.Peer)
	} else {
		cr.grants.Closed(p.Peer, p.Slot)
	}
}

// counters are the counters of RCCC.
func (cr *crediting) counters(now time.Duration) CreditCounters {
	g := &cr.grants.Stats
	return CreditCounters{
		CreditsUsed: cr.used.Grants, CreditsOld: cr.used.Old, CreditsExcess: cr.used.Excess, CreditPersists: cr.used.Persists,
		CreditsRefused: cr.refused, CreditsGranted: g.Grants, CreditsExpired: g.Expired, CreditsCrowded: g.Full,
		CreditWaited: cr.used.Waited(now),
	}
}
