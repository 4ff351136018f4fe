package netswitch

import (
	"slices"
	"sync"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// Settings of the samples.
const (
	sampleEvery = 100 * time.Millisecond
	// maxSamples bounds them. When it is reached, every other sample is dropped and the
	// interval doubled, so that the samples of a long run still cover all of it.
	maxSamples = 3000
)

// rates samples a switch every 100 ms. It may be used by several goroutines.
type rates struct {
	mu       sync.Mutex
	samples  []result.Sample
	stride   int // looks per sample
	looks    int
	sent     []uint64        // of the last second, by look
	at       []time.Duration // of each in sent
	last, up float64         // packets a second: now, most
}

// An engine is a Switch as the HTTP interface and the sampler use it.
type engine interface {
	Stats() (Stats, error)
	Start() error
	Apply(fabric.Event) error
	Config() Config
	Series() []result.Sample
}

// run samples until ended is closed.
func (r *rates) run(e interface{ fabricStats() (*fabric.Stats, error) }, ended <-chan struct{}) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-ended:
			return
		case <-t.C:
		}
		if st, err := e.fabricStats(); err == nil {
			r.add(st)
		}
	}
}

// add adds one sample.
func (r *rates) add(st *fabric.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const second = int(time.Second / sampleEvery)
	r.sent, r.at = append(r.sent, st.Sent), append(r.at, time.Duration(st.Now))
	if n := len(r.sent); n > second {
		r.sent, r.at = slices.Delete(r.sent, 0, n-second-1), slices.Delete(r.at, 0, n-second-1)
		if d := r.at[second] - r.at[0]; d > 0 {
			r.last = float64(r.sent[second]-r.sent[0]) / d.Seconds()
			r.up = max(r.up, r.last)
		}
	}
	if st.Started == nil {
		return
	}
	if r.stride == 0 {
		r.stride = 1
	}
	if r.looks++; r.looks%r.stride != 0 {
		return
	}
	if len(r.samples) >= maxSamples {
		for i := range maxSamples / 2 {
			r.samples[i] = r.samples[2*i+1]
		}
		r.samples = slices.Delete(r.samples, maxSamples/2, len(r.samples))
		// The last sample stays, and this one is halfway to the next.
		r.looks = r.stride
		r.stride *= 2
		return
	}
	r.samples = append(r.samples, Sample(st))
}

// pps returns the packets sent per second, in the last second and at most in any.
func (r *rates) pps() (last, most float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.up
}

func (r *rates) series() []result.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.samples)
}

// lostWhys are the names of the decisions that end a packet.
var lostWhys = func() (names []string) {
	for w := range fabric.NumWhys {
		if w.Lost() {
			names = append(names, w.String())
		}
	}
	return names
}()

// Sample returns the part of st that plots show. If the timeline has not started, its time
// is that of the switch's clock.
func Sample(st *fabric.Stats) result.Sample {
	s := result.Sample{
		At:    time.Duration(st.Now),
		Bytes: make(map[string]int64, len(st.Lines)), Wait: map[string]int64{},
		Lost: map[string]int64{}, Trim: map[string]int64{}, Mark: map[string]int64{},
	}
	if st.Started != nil {
		s.At -= time.Duration(*st.Started)
	}
	// Values of 0 are left out, except Bytes, which names the lines.
	set := func(m map[string]int64, line string, n int64) {
		if n != 0 {
			m[line] = n
		}
	}
	for name := range st.Lines {
		l := st.Lines[name]
		s.Bytes[name] = int64(l.SentB)
		set(s.Wait, name, l.Waiting)
		lost := uint64(0)
		for _, why := range lostWhys {
			lost += l.Whys[why]
		}
		set(s.Lost, name, int64(lost))
		set(s.Trim, name, int64(l.Whys[fabric.Trimmed.String()]))
		set(s.Mark, name, int64(l.Whys[fabric.Marked.String()]))
	}
	return s
}
