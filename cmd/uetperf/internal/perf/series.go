package perf

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// maxSamples bounds a series. When it is full, neighbours are joined and the interval
// doubles.
const maxSamples = 1000

// A series collects samples over time in bounded memory.
type series struct {
	every   time.Duration
	samples []record.Sample
	seen    total
	taken   int // calls of add since the last sample
	join    int // calls of add per sample
}

// A total has the counts since the begin of a run.
type total struct {
	bytes, msgs              int64
	rtx, ecn, trimmed, drops uint64
	spurious                 uint64 // of rtx, as the sender found out; not in samples
}

// count adds the counters of the endpoints of one side.
func (t *total) count(c *record.Counters) {
	t.rtx += c.Rtx()
	t.ecn += c.ECNCE
	t.trimmed += c.Trimmed
	for _, n := range c.Drops {
		t.drops += n
	}
}

func newSeries(every time.Duration) *series { return &series{every: every, join: 1} }

// add adds the totals at a time, with congestion window and round-trip time.
func (s *series) add(at time.Duration, t total, cwnd int, rtt time.Duration) {
	if s.taken++; s.taken < s.join {
		return
	}
	s.sample(at, t, cwnd, rtt)
	if len(s.samples) < maxSamples {
		return
	}
	half := s.samples[:0]
	for i := 0; i+1 < len(s.samples); i += 2 {
		a, b := s.samples[i], s.samples[i+1]
		b.Plus(&a)
		half = append(half, b)
	}
	s.samples = half
	s.join *= 2
	s.every *= 2
}

func (s *series) sample(at time.Duration, t total, cwnd int, rtt time.Duration) {
	s.taken = 0
	o := s.seen
	s.seen = t
	s.samples = append(s.samples, record.Sample{
		AtNS: int64(at), Bytes: t.bytes - o.bytes, Msgs: t.msgs - o.msgs, CwndBytes: int64(cwnd), RTTNS: int64(rtt),
		Rtx: t.rtx - o.rtx, ECN: t.ecn - o.ecn, Trimmed: t.trimmed - o.trimmed, Drops: t.drops - o.drops,
	})
}

// end adds the final totals. The rest of the interval becomes a sample if it is at least a
// quarter of one, else a part of the last.
func (s *series) end(at time.Duration, t total, cwnd int, rtt time.Duration) {
	n := len(s.samples)
	if n > 0 && at <= time.Duration(s.samples[n-1].AtNS) {
		at = time.Duration(s.samples[n-1].AtNS) + 1
	}
	s.sample(at, t, cwnd, rtt)
	if n == 0 {
		return
	}
	if last, prev := &s.samples[n], &s.samples[n-1]; time.Duration(last.AtNS-prev.AtNS) < s.every/4 {
		last.Plus(prev)
		if last.CwndBytes == 0 {
			last.CwndBytes, last.RTTNS = prev.CwndBytes, prev.RTTNS
		}
		*prev = *last
		s.samples = s.samples[:n]
	}
}

// merge adds the samples of the other end of the run, whose intervals may differ.
// theirWindow says that the other end sends, so that window and round-trip time are its.
func merge(mine, theirs []record.Sample, theirWindow bool) []record.Sample {
	i := 0
	for k := range theirs {
		t := &theirs[k]
		// Add t to the sample in which it ends, approximately: the two clocks began a one-way
		// delay apart.
		for i < len(mine)-1 && mine[i].AtNS+(mine[i+1].AtNS-mine[i].AtNS)/2 < t.AtNS {
			i++
		}
		if i == len(mine) {
			break
		}
		m := &mine[i]
		m.Plus(t)
		if theirWindow && t.CwndBytes > 0 {
			m.CwndBytes, m.RTTNS = t.CwndBytes, t.RTTNS
		}
	}
	return mine
}

// pack shortens the samples of a server, which must fit one control message. It leaves out
// bytes and messages, which the client counts itself.
func pack(in []record.Sample) [][7]int64 {
	out := make([][7]int64, len(in))
	for i, s := range in {
		out[i] = [7]int64{s.AtNS, s.CwndBytes, s.RTTNS, int64(s.Rtx), int64(s.ECN), int64(s.Trimmed), int64(s.Drops)}
	}
	return out
}

func unpack(in [][7]int64) []record.Sample {
	out := make([]record.Sample, 0, min(len(in), maxSamples))
	for _, v := range in[:min(len(in), maxSamples)] {
		out = append(out, record.Sample{
			AtNS: v[0], CwndBytes: v[1], RTTNS: v[2], Rtx: uint64(v[3]), ECN: uint64(v[4]), Trimmed: uint64(v[5]), Drops: uint64(v[6]),
		})
	}
	return out
}
