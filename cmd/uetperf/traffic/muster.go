package traffic

import (
	"sync/atomic"
	"time"
)

// A muster lets the streams of one end and direction measure at the same time: each
// begins when all are warm, and goes on until all have measured. Otherwise what one
// carries while another warms up or is done already would be nobody's, and the sum of a
// short test less than what the path carried. Nil: nobody is waited for.
type muster struct {
	streams    int32
	warm, done atomic.Int32
}

// musters are those of one end.
type musters struct{ tx, rx *muster }

// newMusters are those for a test, nil where streams need not measure together: there
// is one, or each has its own number of messages.
func newMusters(s *Spec) musters {
	if s.Test != BW && s.Test != Rate || s.Iters > 0 || s.Parallel < 2 {
		return musters{}
	}
	return musters{&muster{streams: int32(s.Parallel)}, &muster{streams: int32(s.Parallel)}}
}

// A place is one stream's part in a muster.
type place struct {
	*muster
	isWarm, isDone bool
}

// begins says that the stream is warm, and reports whether all are.
func (p *place) begins() bool {
	return p.muster == nil || p.all(&p.isWarm, &p.warm)
}

// over reports whether a stream that has measured for a while is to end, as all have
// measured for the time. One that has nothing completed is waited for as long again.
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
