package traffic

import (
	"math"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A span is the time in which the legs of one end measured, from the first begin to the
// last end. The legs of a short test may measure one after another.
type span struct {
	from, to time.Duration
	// late is when the last leg began, early when the first one ended, least the shortest
	// time.
	late, early, least time.Duration
	msgs               int64
	rate               float64 // sum of the messages a second of each leg in its own time
}

func (s *span) add(m *Measure) {
	if m.Duration <= 0 {
		return
	}
	if end := m.Begin + m.Duration; s.to == 0 {
		s.from, s.to, s.late, s.early, s.least = m.Begin, end, m.Begin, end, m.Duration
	} else {
		s.from, s.to = min(s.from, m.Begin), max(s.to, end)
		s.late, s.early, s.least = max(s.late, m.Begin), min(s.early, end), min(s.least, m.Duration)
	}
	s.msgs += m.Msgs
	s.rate += float64(m.Msgs) / m.Duration.Seconds()
}

// length is the time in which all messages were sent. If the test was timed and the legs
// measured together for most of the time, their rates add up, and length is the time that
// gives this sum. In a short test some legs may begin early and others end late, by as much
// as a batch of completions takes, although all were sending then.
func (s *span) length(timed bool) time.Duration {
	all := s.to - s.from
	if together := s.early - s.late; !timed || together < s.least/2 || s.rate == 0 {
		return all
	}
	return time.Duration(math.Round(float64(s.msgs) / s.rate * float64(time.Second)))
}

// Result makes the record of a run from both ends: the legs of the client, and the results
// of the server's legs, nil if the server returned none. spread is for an incast.
func Result(s *Spec, legs []*Leg, peer []LegResult, spread *Spread) record.Run {
	run := record.Run{Op: s.Op, Size: s.Size, Transport: record.Counters{Drops: map[string]uint64{}}}
	if peer != nil {
		run.PeerTransport = &record.Counters{Drops: map[string]uint64{}}
	}
	if s.Check {
		run.DataCheck = &record.Check{}
	}
	addCheck := func(c *record.Check) {
		if c != nil && run.DataCheck != nil {
			run.DataCheck.Add(c)
		}
	}
	var here, there span // on the clocks of the two ends
	var lost, sent int64
	for i, l := range legs {
		mine := l.Res
		run.Transport.Add(&mine.Counters)
		addCheck(mine.Check)
		var theirs LegResult
		if peer != nil {
			theirs = peer[i]
			run.PeerTransport.Add(&theirs.Counters)
			addCheck(theirs.Check)
			sent += mine.Sent
			if s.Lossy() && (s.Pingpong() || s.Exchanges()) {
				lost += mine.Sent - mine.Received // round trips
			} else {
				sent += theirs.Sent
				lost += max(0, mine.Sent-theirs.Received) + max(0, theirs.Sent-mine.Received)
			}
		}
		if s.Pingpong() || s.Exchanges() {
			run.Msgs += mine.Tx.Msgs
			if s.Test == Load { // all streams have the same times, each on its own clock
				mine.Tx.Begin = 0
			}
			here.add(&mine.Tx)
			continue
		}
		for _, d := range []struct {
			name     string
			on       bool
			from, to *LegResult
		}{
			{"forward", s.Sends(false), &mine, &theirs},
			{"reverse", s.Sends(true), &theirs, &mine},
		} {
			if !d.on {
				continue
			}
			// The sender's completions tell when messages arrived, unless the level does not promise
			// that, or the sender was lost. A datagram's completion never does.
			m, local := d.from.Tx, d.from == &mine
			run.MeasuredAt = "sender"
			if s.Op == Inject || s.Complete == "inject" || s.Lossy() || m.Duration == 0 {
				m, local = d.to.Rx, !local
				run.MeasuredAt = "receiver"
			}
			st := record.Stream{Direction: d.name, Msgs: m.Msgs, Bytes: m.Msgs * s.Size, DurationNS: int64(m.Duration)}
			if m.Duration > 0 {
				st.GoodputBPS = float64(st.Bytes) * 8 / m.Duration.Seconds()
			}
			run.Msgs += m.Msgs
			if local {
				here.add(&m)
			} else {
				there.add(&m)
			}
			if s.Test == Incast {
				rtx := mine.Counters.Rtx()
				spurious := min(mine.Spurious, rtx)
				st.Rtx, st.Spurious, st.ECN, st.Trimmed = &rtx, &spurious, &mine.Echoed, &mine.Refused
			}
			run.Streams = append(run.Streams, st)
		}
	}
	if run.Iters = s.Iters; s.Iters == 0 {
		run.Iters = run.Msgs / int64(max(1, len(run.Streams)))
	}
	duration := max(here.length(s.Iters == 0), there.length(s.Iters == 0))
	run.Bytes = run.Msgs * s.Size
	run.DurationNS = int64(duration)
	if peer != nil {
		if run.Lost = &lost; s.Lossy() {
			run.Sent = &sent
		}
	}
	switch {
	case s.Exchanges():
		exchangedBy(s, legs, &run, duration)
	case s.Test == Incast:
		shared(s, legs, &run, spread)
	}
	if s.Pingpong() {
		run.FirstNS = int64(legs[0].Res.First)
		if h := legs[0].hist; h.count() > 0 {
			run.Latency = h.latency()
			run.Latency.RTT = s.Test == Ping || s.OneSided()
		}
	} else if duration > 0 && s.Test != RR {
		if s.Times() {
			run.Latency = timesOf(s, legs, peer)
		}
		bps, rate := float64(run.Bytes)*8/duration.Seconds(), float64(run.Msgs)/duration.Seconds()
		run.GoodputBPS, run.MsgsPerS = &bps, &rate
	}
	if len(run.Streams) < 2 {
		run.Streams = nil
	}
	run.CPU = cpu(&legs[0].Res, peer, duration)
	return run
}

// Times describes the times of the operations of legs of one end, nil if none was taken.
func Times(legs []*Leg) *record.Latency { return described(timed(legs)) }

// timed adds up the times of the operations of legs.
func timed(legs []*Leg) *histogram {
	h := newHistogram()
	for _, l := range legs {
		if l.Spec.Times() && l.hist != nil {
			h.merge(l.hist)
		}
	}
	return h
}

// described describes times from the call to the completion.
func described(h *histogram) *record.Latency {
	if h.count() == 0 {
		return nil
	}
	l := h.latency()
	l.RTT, l.Completion = true, true
	return l
}

// timesOf describes the times of the operations of both ends.
func timesOf(s *Spec, legs []*Leg, peer []LegResult) *record.Latency {
	h := timed(legs)
	if len(peer) > 0 && peer[0].Latency != nil {
		all := Histogram{h}
		_ = all.Add(peer[0].Latency) // what cannot be read leaves the times of this end
	}
	return described(h)
}

// exchangedBy adds the measurements of requests and replies.
func exchangedBy(s *Spec, legs []*Leg, run *record.Run, duration time.Duration) {
	all := exchanged{opened: newHistogram(), closed: newHistogram()}
	h := newHistogram()
	for _, l := range legs {
		x := &l.ex
		h.merge(l.hist)
		all.offered += x.offered
		all.late += x.late
		all.unsent += x.unsent
		all.span = max(all.span, x.span)
		if all.errors += x.errors; x.lastErr != nil {
			run.LastError = strings.Join(strings.Fields(x.lastErr.Error()), " ")
		}
		all.lag = max(all.lag, x.lag)
		all.lastLag = max(all.lastLag, x.lastLag)
		if x.opened != nil {
			all.opened.merge(x.opened)
			all.closed.merge(x.closed)
		}
	}
	if h.count() > 0 {
		run.Latency = h.latency()
		run.Latency.RTT = true
	}
	if s.Test == RR {
		run.Errors = &all.errors
		if duration > 0 {
			rate := float64(run.Msgs) / duration.Seconds()
			run.MsgsPerS = &rate
		}
		if s.Churn && all.opened.count() > 0 {
			run.Churn = &record.Churn{Open: all.opened.latency(), Close: all.closed.latency()}
			run.Churn.Open.RTT, run.Churn.Close.RTT = true, true
		}
		return
	}
	l := &record.Load{Offered: all.offered, Late: all.late, LateAfterNS: int64(LateAfter), MaxLagNS: int64(all.lag), Unsent: all.unsent}
	if all.span > 0 {
		l.OfferedPer = float64(l.Offered) / all.span.Seconds()
	}
	l.Overloaded = all.overloaded(s.Time)
	run.Load = l
}

// overloaded reports whether requests piled up in a test of duration d. Then many are late, to the
// end: a stall delays some, and one at the end only the last.
func (x *exchanged) overloaded(d time.Duration) bool {
	return x.unsent*100 > x.offered || x.late*lateShare > x.offered && x.lastLag > max(d/100, piledUp)
}

// shared adds how fairly the senders of an incast shared, and how long rounds took.
func shared(s *Spec, legs []*Leg, run *record.Run, spread *Spread) {
	x := &record.Incast{Within: s.Within}
	if j, ok := spread.fairness(); ok {
		x.Jain = &j
	}
	if at, ok := spread.converged(s.Within); ok {
		ns := int64(at)
		x.ConvergenceNS = &ns
	}
	x.Round, x.Rounds = legs[0].Group.race.rounds()
	run.Incast = x
}

// cpu returns the processor time of both processes while the first leg measured, scaled to
// the time in which all legs did. getrusage counts processes and not streams, and the
// clocks of legs and ends do not run at the same time.
func cpu(mine *LegResult, peer []LegResult, duration time.Duration) *record.CPU {
	pick := func(l *LegResult) Measure {
		if l.Tx.Duration > 0 {
			return l.Tx
		}
		return l.Rx
	}
	m := pick(mine)
	if m.Duration <= 0 || m.User+m.Sys == 0 {
		return nil
	}
	told := func(used, in time.Duration) int64 { return int64(float64(used) * float64(duration) / float64(in)) }
	c := &record.CPU{UserNS: told(m.User, m.Duration), SysNS: told(m.Sys, m.Duration)}
	if peer != nil {
		if p := pick(&peer[0]); p.Duration > 0 {
			c.PeerUserNS, c.PeerSysNS = told(p.User, p.Duration), told(p.Sys, p.Duration)
		}
	}
	return c
}
