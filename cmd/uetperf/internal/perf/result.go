package perf

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A span is the time in which the legs of one end measured, from the first that began
// to the last that ended: those of a short test may do so one after the other.
type span struct {
	from, to time.Duration
	// late is when the last one began, early when the first one ended, least the time of
	// the shortest.
	late, early, least time.Duration
	msgs               int64
	rate               float64 // messages a second, of each in its own time
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

// length is the time in which the messages of all went. Legs that measured for a given
// time, timed, and most of it together, had their rates at once: then it is what gives
// the sum of the rates. Of a short test some may begin early and others end late, by as
// much as a batch of completions takes; they were all sending then.
func (s *span) length(timed bool) time.Duration {
	all := s.to - s.from
	if together := s.early - s.late; !timed || together < s.least/2 || s.rate == 0 {
		return all
	}
	return time.Duration(math.Round(float64(s.msgs) / s.rate * float64(time.Second)))
}

// result puts together what both ends of all legs measured. peer is nil if the
// server did not tell.
func (r *clientRun) result(peer []LegResult) record.Run {
	s := r.spec
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
	var here, there span // as each end's clock has it
	var lost int64
	for i, l := range r.legs {
		mine := l.res
		run.Transport.Add(&mine.Counters)
		addCheck(mine.Check)
		var theirs LegResult
		if peer != nil {
			theirs = peer[i]
			run.PeerTransport.Add(&theirs.Counters)
			addCheck(theirs.Check)
			lost += max(0, mine.Sent-theirs.Received) + max(0, theirs.Sent-mine.Received)
		}
		if s.pingpong() || s.exchanges() {
			run.Msgs += mine.Tx.Msgs
			if s.Test == Load { // whose streams have the same times, each on its own clock
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
			{"forward", s.sends(false), &mine, &theirs},
			{"reverse", s.sends(true), &theirs, &mine},
		} {
			if !d.on {
				continue
			}
			// The sender's completions say when messages had arrived, unless
			// they say no such thing, or the sender was lost.
			m, local := d.from.Tx, d.from == &mine
			run.MeasuredAt = "sender"
			if s.Op == Inject || s.Complete == "inject" || m.Duration == 0 {
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
				rtx, trimmed := mine.Counters.Rtx(), l.end.refusedTrimmed()
				st.Rtx, st.ECN, st.Trimmed = &rtx, &mine.Echoed, &trimmed
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
		run.Lost = &lost
	}
	switch {
	case s.exchanges():
		r.exchanged(&run, duration)
	case s.Test == Incast:
		r.incast(&run)
	}
	if s.pingpong() {
		run.FirstNS = int64(r.legs[0].res.First)
		if h := r.legs[0].hist; h.count() > 0 {
			run.Latency = h.latency()
			run.Latency.RTT = s.Test == Ping
		}
	} else if duration > 0 && s.Test != RR {
		bps, rate := float64(run.Bytes)*8/duration.Seconds(), float64(run.Msgs)/duration.Seconds()
		run.GoodputBPS, run.MsgsPerS = &bps, &rate
	}
	if len(run.Streams) < 2 {
		run.Streams = nil
	}
	run.CPU = r.cpu(peer, duration)
	return run
}

// exchanged adds what is measured of requests and replies.
func (r *clientRun) exchanged(run *record.Run, duration time.Duration) {
	s := r.spec
	all := exchanged{opened: newHistogram(), closed: newHistogram()}
	h := newHistogram()
	for _, l := range r.legs {
		x := &l.ex
		h.merge(l.hist)
		all.offered += x.offered
		all.late += x.late
		all.unsent += x.unsent
		all.span = max(all.span, x.span)
		all.errors += x.errors
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
	// What piled up to the end is no hiccup.
	l.Overloaded = l.Unsent*100 > l.Offered || all.lastLag > max(s.Time/100, piledUp)
	run.Load = l
}

// incast adds how the senders shared and how long rounds took.
func (r *clientRun) incast(run *record.Run) {
	x := &record.Incast{Within: r.spec.Within}
	if j, ok := r.spread.fairness(); ok {
		x.Jain = &j
	}
	if at, ok := r.spread.converged(r.spec.Within); ok {
		ns := int64(at)
		x.ConvergenceNS = &ns
	}
	x.Round, x.Rounds = r.race.rounds()
	run.Incast = x
}

// cpu is the processor time of the processes while the first leg measured, for the time
// that all did: getrusage knows processes, not streams. The clocks of legs and ends do
// not run at the same time.
func (r *clientRun) cpu(peer []LegResult, duration time.Duration) *record.CPU {
	pick := func(l *LegResult) Measure {
		if l.Tx.Duration > 0 {
			return l.Tx
		}
		return l.Rx
	}
	m := pick(&r.legs[0].res)
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
