package cms

import "time"

// This file is the source of RCCC, receiver credit (UE 3.6): what a CCC may send without a
// window, because its destination granted it. grants.go is the destination.

// quantum is the unit of credit on the wire, creditMod the number of its values.
const (
	quantum   = 256
	creditMod = 1 << 24
)

// Constants of RCCC that no source gives. Arbitrary unless a comment says otherwise.
const (
	// opening is how many packets may leave before the first answer, at the start and after an
	// idle time: what TCP began with for long (RFC 3390). More is of little use, as the credit comes
	// after one round trip, and is lost where many sources begin at once.
	opening = 3
	// silentAsks is how many questions in a row may stay without any answer before a packet
	// leaves without credit. Its acknowledgement or its timeout then tells what is wrong.
	silentAsks = 3
	// forgottenAsks is how many questions in a row bring no credit until a grant below an earlier one is
	// no late one.
	forgottenAsks = 2
	// starvedFor is how many of the longest timeouts a destination may answer and grant nothing,
	// before a packet leaves without credit.
	starvedFor = 4
	// unusedFor is how many smoothed RTTs credit may stay unused while there is nothing to
	// send. The destination has granted it to others since.
	unusedFor = 8
)

// A Credit is the congestion control context of a source with RCCC: alone, or together with
// NSCC, of which the stricter one then decides. Its methods are the congestion control interface
// that package pds declares, and what RCCC adds.
//
// Counters on the wire are cumulative and wrap around; here they are bytes and do not. A grant
// that comes late, twice or never changes nothing, because the highest one counts. A peer that
// lies can let the source send no more than it asked for, which is MaxWnd at most, and no less than
// a packet now and then.
type Credit struct {
	nscc Window // NSCC with both; with RCCC alone it measures the path and is what remains of a refusal

	credit int64 // bytes that may leave; the last packet may overdraw
	free   int64 // the same before the first answer: unsolicited
	queued int64 // bytes that wait to be sent
	want   int64 // of these: as far as they are asked for
	mtu    int64

	granted int64 // all credit so far
	asked   int64 // the highest credit target that was sent

	on   bool // false after the destination refused
	both bool
	dry  bool // nothing waited to be sent when this was last told
	id   uint8

	asks    uint8 // questions since the last grant, saturating
	unheard uint8 // of these: since the last answer
	askedAt time.Duration
	askAt   time.Duration // when to ask again
	grantAt time.Duration // when the last grant came, or the wait for it began
	sentAt  time.Duration // when the last packet left
	waitsAt time.Duration // since when packets wait for credit, 0: they do not. Counted in CreditStats.waiting

	stats *CreditStats
}

// CreditStats count what a source saw of its grants.
type CreditStats struct {
	Grants   uint64 // that brought credit
	Old      uint64 // below an earlier one: late, or taken back
	Excess   uint64 // above what was asked for; the excess does not count
	Persists uint64 // packets that left without credit, because none came

	waiting int           // CCCs on which packets wait for credit
	since   time.Duration // if there are any: since when
	waited  time.Duration // how long there were, before
}

// Waited is for how long packets waited for credit until now, whichever CCC they were of.
func (s *CreditStats) Waited(now time.Duration) time.Duration {
	if s.waiting == 0 {
		return s.waited
	}
	return s.waited + now - s.since
}

// setWaits says whether packets wait for credit.
func (c *Credit) setWaits(now time.Duration, on bool) {
	s := c.stats
	switch {
	case on == (c.waitsAt != 0):
	case on:
		c.waitsAt = now
		if s.waiting++; s.waiting == 1 {
			s.since = now
		}
	default:
		c.waitsAt = 0
		if s.waiting--; s.waiting == 0 {
			s.waited += now - s.since
		}
	}
}

// Waits is how long packets have been waiting for credit, 0 if they do not.
func (c *Credit) Waits(now time.Duration) time.Duration {
	if c.waitsAt == 0 {
		return 0
	}
	return now - c.waitsAt
}

// NewCredit returns the CCC of a source with RCCC, with NSCC too if both. id is its ccc_id; it
// counts in stats.
func NewCredit(cfg Config, both bool, id uint8, stats *CreditStats) *Credit {
	c := &Credit{nscc: *New(cfg), both: both, id: id, on: true, stats: stats}
	c.mtu = int64(c.nscc.mtu)
	c.free = min(opening*c.mtu, int64(c.nscc.ceil))
	return c
}

// ID is the ccc_id.
func (c *Credit) ID() uint8 { return c.id }

// Queue adds n nominal bytes, or if negative takes them away, of what waits to be sent, lost packets included. A
// nil Credit counts nothing.
func (c *Credit) Queue(n int) {
	if c != nil {
		c.queued += int64(n)
	}
}

// Queued is the sum of Queue.
func (c *Credit) Queued() int { return int(c.queued) }

// On reports whether RCCC is in force: the destination has not refused.
func (c *Credit) On() bool { return c.on }

// Refuse ends RCCC: the destination does not know it, and NSCC alone decides.
func (c *Credit) Refuse(now time.Duration) {
	c.on = false
	c.setWaits(now, false)
}

// End tells that the CCC is no longer used.
func (c *Credit) End(now time.Duration) { c.setWaits(now, false) }

// HasCredit reports whether RCCC lets a packet leave.
func (c *Credit) HasCredit() bool { return !c.on || c.credit+c.free > 0 }

// CanSend reports whether a packet of n nominal bytes may leave now.
func (c *Credit) CanSend(n int) bool {
	switch {
	case !c.on:
		return c.nscc.CanSend(n)
	case c.credit+c.free <= 0:
		return false
	case c.both:
		return c.nscc.CanSend(n)
	}
	return c.nscc.inflight+int64(n) <= int64(c.nscc.ceil) || c.nscc.inflight <= int64(c.nscc.ceil)/2
}

// OnSend counts a packet of n nominal bytes that leaves now.
func (c *Credit) OnSend(now time.Duration, n int) (wantAR bool) {
	first := c.nscc.srtt == 0
	ar := c.nscc.OnSend(now, n)
	if !c.on {
		return ar
	}
	if c.free > 0 {
		c.free = max(c.free-int64(n), 0)
	} else {
		c.credit -= int64(n)
	}
	c.want = max(c.want-int64(n), 0)
	c.sentAt = now
	return ar && (c.both || first) || c.credit+c.free <= 0
}

// OnAck and the methods below are those of Window. Any answer ends the unsolicited sending.
func (c *Credit) OnAck(now time.Duration, newly int, rtt time.Duration, ce bool, pend uint8, restore bool) {
	c.free = 0
	c.nscc.OnAck(now, newly, rtt, ce, pend, restore)
}

// OnTaken is Window.OnTaken where the sender decides alone. Else credit bounds what is in flight.
func (c *Credit) OnTaken() {
	if !c.on {
		c.nscc.OnTaken()
	}
}

// OnLoss is Window.OnLoss.
func (c *Credit) OnLoss(now time.Duration, n int, rto bool) { c.nscc.OnLoss(now, n, rto) }

// OnSpurious is Window.OnSpurious.
func (c *Credit) OnSpurious() { c.nscc.OnSpurious() }

// OnNack is Window.OnNack.
func (c *Credit) OnNack(now time.Duration, n int, trimmed bool) {
	c.free = 0
	c.nscc.OnNack(now, n, trimmed)
}

// OnGone is Window.OnGone.
func (c *Credit) OnGone(n int) { c.nscc.OnGone(n) }

// SRTT is Window.SRTT.
func (c *Credit) SRTT() time.Duration { return c.nscc.SRTT() }

// RTO is Window.RTO.
func (c *Credit) RTO() time.Duration { return c.nscc.RTO() }

// InFlight is Window.InFlight.
func (c *Credit) InFlight() int { return c.nscc.InFlight() }

// Window is the congestion window of NSCC; with RCCC alone, MaxWnd.
func (c *Credit) Window() int {
	if c.on && !c.both {
		return int(c.nscc.ceil)
	}
	return c.nscc.Window()
}

// Wants takes up what Queue has told. The first bytes after an idle time begin anew with unsolicited packets. share is the number of destinations that this
// source sends to at once: its link cannot use the credit of all.
func (c *Credit) Wants(now time.Duration, share int) {
	n := c.queued
	if n == 0 {
		c.want, c.dry = 0, true
		c.setWaits(now, false)
		return
	}
	if c.dry && c.nscc.inflight == 0 {
		if c.credit < 0 || now-c.sentAt > unusedFor*max(c.nscc.srtt, c.nscc.cfgBase) {
			c.credit = 0
		}
		c.free = max(min(opening*c.mtu, int64(c.nscc.ceil))-c.credit, 0)
		c.asks, c.unheard, c.grantAt = 0, 0, now
		c.setWaits(now, false)
	}
	if c.grantAt == 0 {
		c.grantAt = now
	}
	c.dry = false
	most := int64(c.nscc.ceil)
	if c.both {
		most = min(c.nscc.cwnd+c.mtu, most)
	}
	c.want = min(n, most)
	if share > 1 {
		c.want = min(max(c.want/int64(share), c.mtu), n)
	}
}

// target is the credit target, in bytes: what was used, and what is wanted. What leaves
// unsolicited needs no credit.
func (c *Credit) target() int64 {
	return (c.granted - c.credit + max(c.want-c.free, 0) + quantum - 1) &^ (quantum - 1)
}

// Target is the ccc_id and the credit_target of a packet that leaves now.
func (c *Credit) Target() (id uint8, target uint32) {
	if !c.on {
		return 0, 0
	}
	t := c.target()
	c.asked = max(c.asked, t)
	return c.id, uint32(t/quantum) % creditMod
}

// Ask reports whether a CREDIT_REQ is due, because nothing may leave that could carry the
// target. If so it counts as sent. There is one per half a round trip at most; without an answer it is
// sent again after the timeout, which doubles.
func (c *Credit) Ask(now time.Duration) bool {
	if !c.on || c.credit+c.free > 0 || c.want == 0 {
		return false
	}
	c.setWaits(now, true)
	if c.target() > c.asked {
		if at := c.askedAt + c.nscc.srtt/2; c.askedAt != 0 && now < at {
			c.askAt = at
			return false
		}
	} else if c.askAt == 0 {
		c.askAt = now + c.wait() // a packet has just asked
		return false
	} else if now < c.askAt {
		return false
	}
	c.askedAt = now
	c.askAt = now + c.wait()
	if c.asks < 255 {
		c.asks++
	}
	if c.unheard < 255 {
		c.unheard++
	}
	return true
}

// wait is how long to wait for an answer to a question.
func (c *Credit) wait() time.Duration {
	return min(c.nscc.RTO()<<min(c.asks, 16), time.Duration(c.nscc.rtoMax)*time.Microsecond)
}

// AskAt is when Ask may be due, 0 if a question is not open.
func (c *Credit) AskAt() time.Duration { return c.askAt }

// Persist lets one packet leave without credit if the destination is silent, or answers
// and grants nothing for long. It reports whether it does.
func (c *Credit) Persist(now time.Duration) bool {
	if !c.on || c.credit+c.free > 0 || c.want == 0 || c.nscc.inflight > 0 {
		return false
	}
	if c.unheard < silentAsks && now-c.grantAt < starvedFor*time.Duration(c.nscc.rtoMax)*time.Microsecond {
		return false
	}
	c.free = 1 - min(c.credit, 0) // the last packet may overdraw
	c.setWaits(now, false)
	c.unheard, c.grantAt = 0, now
	c.stats.Persists++
	return true
}

// Persists reports whether Persist has just let a packet leave, which has not left yet.
func (c *Credit) Persists(now time.Duration) bool {
	return c.on && c.free > 0 && c.unheard == 0 && c.grantAt == now && c.askAt != 0
}

// OnCredit processes a grant: the cumulative credit of a CREDIT or of an ACK. It reports
// whether packets may leave, or a question. A destination that has forgotten this source counts from the beginning, so
// one that was asked several times and says less than it did is taken at its word.
func (c *Credit) OnCredit(now time.Duration, granted uint32) bool {
	if !c.on {
		return false
	}
	c.free, c.unheard = 0, 0
	d := int64(int32((granted-uint32(c.granted/quantum))<<8)>>8) * quantum
	if d <= 0 {
		if d < 0 {
			c.stats.Old++
		}
		if d < 0 && c.credit <= 0 && c.asks >= forgottenAsks {
			c.granted += d
			c.asked, c.asks, c.askAt = c.granted, 0, 0 // the next question is of another target
			return true
		}
		return false
	}
	if c.granted+d > c.asked {
		c.stats.Excess++
		d = c.asked - c.granted
		if d <= 0 {
			return false
		}
	}
	c.granted += d
	c.credit = min(c.credit+d, int64(c.nscc.ceil))
	c.stats.Grants++
	c.asks, c.askAt, c.grantAt = 0, 0, now
	c.setWaits(now, c.waitsAt != 0 && c.credit <= 0)
	return true
}
