package uet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/memnet"
)

func TestTheLastCloseOfAPortLingersOnce(t *testing.T) {
	// R-EP-14: the last endpoint waits for the others and for what it has sent itself, together at most as long as the
	// one that may linger longest. The peer is alive, and the path so bad that nothing is through in time.
	for _, c := range []struct{ first, last, most time.Duration }{
		{time.Second, time.Second, time.Second},
		{200 * time.Millisecond, time.Second, time.Second},
		{time.Second, 200 * time.Millisecond, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lingering(c.first))
			r.info.Config.network = memnet.New(memnet.Config{Seed: 1, Delay: time.Millisecond, Faults: badnet.Faults{Loss: 0.8}})
			all := r.sharers(1)
			r.info.Config.Tuning.Linger = c.last
			all = append(all, r.joiner(all[0]))
			peer := r.alone()
			for _, a := range all {
				to := a.know(peer)
				for range 500 {
					ok(t, a.TInject(make([]byte, 1000), to, 1))
				}
			}
			var first time.Duration
			left := make(chan struct{})
			go func() {
				first = all[0].closes()
				close(left)
			}()
			synctest.Wait()
			last := all[1].closes()
			<-left
			if first < c.first || first > c.first+2*partGrace {
				t.Errorf("%+v: the first Close took %v", c, first)
			}
			if last < c.most || last > c.most+2*partGrace {
				t.Errorf("%+v: the last Close took %v", c, last)
			}
		})
	}
}
