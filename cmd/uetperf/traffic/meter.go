package traffic

import "time"

// A meter measures one direction.
type meter struct {
	m         *Measure
	clock     func() time.Duration // time since the leg began
	usage     func() (user, sys time.Duration)
	zero      time.Duration // origin of clock, on the clock of all legs of the end
	on, ended bool
	base      int64
	from      time.Duration
	late      time.Duration // how long after from the processor time was read
	user, sys time.Duration
}

func (l *Leg) meter(m *Measure) meter {
	return meter{m: m, clock: l.since, usage: l.Conn.Usage, zero: l.begun}
}

func (m *meter) start(now time.Duration, done int64) {
	m.on, m.base, m.from = true, done, now
	m.user, m.sys = m.usage()
}

// startWithin starts the clock of a stream. The stream had completed had messages at before
// and done messages at now, and its warm-up is over. Messages complete in batches. With -n
// all messages after the warm-up count, as if those of the batch had completed evenly. For
// a first batch, before is when the leg found its gate open, 0 if the batch came first.
func (m *meter) startWithin(s *Spec, before, now time.Duration, had, done int64) {
	if s.Iters == 0 || done <= s.Warmup {
		m.start(now, done)
		return
	}
	at := before + time.Duration(float64(now-before)*float64(s.Warmup-had)/float64(done-had))
	m.start(at, s.Warmup)
	m.late = now - at
}

// end stops the clock. Only the first call counts.
func (m *meter) end(now time.Duration, done int64) {
	if !m.on || m.ended {
		return
	}
	m.ended = true
	m.m.Msgs, m.m.Begin, m.m.Duration = done-m.base, m.zero+m.from, max(0, now-m.from)
	// The leg may end after its last message. Its processor time is then scaled to the
	// measured time. But if the leg spent much time looking for a peer that was gone, its
	// processor time says nothing of the messages, and is left out.
	over := max(0, m.clock()-now)
	if over > max(m.m.Duration/usageSlack, usageLeast) || m.late > m.m.Duration/usageSlack {
		return
	}
	u, s := m.usage()
	part := float64(m.m.Duration) / max(1, float64(m.m.Duration+over))
	m.m.User, m.m.Sys = time.Duration(float64(u-m.user)*part), time.Duration(float64(s-m.sys)*part)
}

// usageSlack: the processor time may be of a time that is longer than the measured one by
// 1/usageSlack of it, or by usageLeast.
const (
	usageSlack = 10
	usageLeast = 250 * time.Millisecond
)
