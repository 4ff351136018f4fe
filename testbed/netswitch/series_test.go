package netswitch

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

func look(i int, sent uint64, started bool) *fabric.Stats {
	st := &fabric.Stats{Now: fabric.Duration(time.Duration(i) * sampleEvery), Sent: sent, Lines: map[string]fabric.LineStats{
		"b.to": {SentB: 10 * sent, Waiting: 3, Whys: map[string]uint64{"lost_queue": 2, "lost_random": 1, "no_route": 1, "trimmed": 5, "marked": 6, "passed": 7}},
	}}
	if started {
		zero := fabric.Duration(time.Second)
		st.Started = &zero
	}
	return st
}

func TestSamples(t *testing.T) {
	var r rates
	for i := range 20 {
		r.add(look(i, uint64(100*i), i >= 12))
	}
	s := r.series()
	if len(s) != 8 || s[0].At != 200*time.Millisecond {
		t.Fatalf("%d samples, the first at %v", len(s), s[0].At)
	}
	last := s[7]
	if last.Bytes["b.to"] != 19000 || last.Wait["b.to"] != 3 || last.Lost["b.to"] != 4 || last.Trim["b.to"] != 5 || last.Mark["b.to"] != 6 {
		t.Errorf("%+v", last)
	}
	if now, most := r.pps(); now != 1000 || most != 1000 {
		t.Errorf("%v packets a second, %v at most", now, most)
	}
}

func TestSamplesAreBounded(t *testing.T) {
	var r rates
	const n = 5 * maxSamples
	for i := range n {
		r.add(look(i+10, 0, true))
	}
	s := r.series()
	if len(s) > maxSamples || len(s) < maxSamples/2 {
		t.Fatalf("%d samples of %d", len(s), n)
	}
	gap := s[1].At - s[0].At
	for i := 1; i < len(s); i++ {
		if s[i].At-s[i-1].At != gap {
			t.Fatalf("gap of %v at %d among gaps of %v", s[i].At-s[i-1].At, i, gap)
		}
	}
}
