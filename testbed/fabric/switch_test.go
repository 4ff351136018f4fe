package fabric

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

func TestPerfectWire(t *testing.T) {
	for name, k := range map[string]pkt{"v4": {psn: 7, payload: 100}, "v6": {psn: 7, payload: 100, v6: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ip := k.bytes()
			r.send(append(slices.Clone(ip), 0, 0, 0)) // padding of the link
			r.run(0)
			if len(r.out) != 1 || r.out[0].port != 1 || r.out[0].at != 0 || !bytes.Equal(r.out[0].ip, ip) {
				t.Fatalf("got %+v", r.out)
			}
			d := r.log[len(r.log)-1]
			if d.Why != Passed || d.ID != 1 || d.Line != "b.to" || d.Kind != "data" || d.PSN != 7 || d.Len != len(ip) || d.Dst.Addr() != hostB[map[bool]int{true: 1}[k.v6]] {
				t.Errorf("decision %+v", d)
			}
			st := r.s.Stats(0)
			if st.Received != 1 || st.Sent != 1 || st.Started == nil || st.Lines["b.to"].SentB != uint64(len(ip)) || st.Lines["a.from"].Packets != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestRateAndDelay(t *testing.T) {
	r := newRig(t, toB(Line{Rate: 8e6, Delay: Duration(5 * ms)})) // a byte a µs
	ip := pkt{payload: 900}.bytes()
	for range 3 {
		r.send(ip)
	}
	r.run(time.Second)
	for i, o := range r.out {
		if want := time.Duration(i+1)*time.Duration(len(ip))*time.Microsecond + 5*ms; o.at != want {
			t.Errorf("packet %d left at %v, want %v", i, o.at, want)
		}
	}
	if len(r.out) != 3 {
		t.Errorf("%d packets left, want 3", len(r.out))
	}
}
