package traffic

import (
	"sync/atomic"
	"time"
)

// A muster makes the streams of one end and direction measure at the same time: each begins
// when all are warm, and goes on until all have measured. Otherwise the messages that one
// stream carries while another warms up or has finished would not be counted, and a short
// test would measure less than the path carried. A nil muster waits for no stream.
type muster struct {
	streams    int32
	warm, done atomic.Int32
}

// musters are the musters of one end.
type musters struct{ tx, rx *muster }

// newMusters makes the musters for a test. They are nil if streams need not measure
// together: there is one, or each has a fixed number of messages.
func newMusters(s *Spec) musters {
	if s.Test != BW && s.Test != Rate || s.Iters > 0 || s.Parallel < 2 {
		return musters{}
	}
	return musters{&muster{streams: int32(s.Parallel)}, &muster{streams: int32(s.Parallel)}}
}

// A place is the part of one stream in a muster.
type place struct {
	*muster
	isWarm, isDone bool
}

// begins says that the stream is warm, and reports whether all are.
func (p *place) begins() bool {
	return p.muster == nil || p.all(&p.isWarm, &p.warm)
}

// over reports whether a stream that has measured for a while may end, because all streams
// have measured for the given time. It does not wait longer than twice that time, for
// streams in which nothing completes.
func (p *place) over(since, time time.Duration) bool {
	return since >= time && (p.ends() || since >= 2*time)
}

// ends says that the stream has measured, and reports whether all have.
func (p *place) ends() bool {
	return p.muster == nil || p.all(&p.isDone, &p.done)
}

func (p *place) all(mine *bool, n *atomic.Int32) bool {
	if !*mine {
		*mine = true
		n.Add(1)
	}
	return n.Load() >= p.streams
}
