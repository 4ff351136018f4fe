package simulated

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/scenario"
)

func TestDbg(t *testing.T) {
	name := os.Getenv("SC")
	if name == "" {
		t.Skip()
	}
	sc, err := scenario.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	dbg = func(l *lab) {
		var f func()
		f = func() {
			for _, s := range l.sessions {
				for _, st := range s.streams {
					if st.c.h.FEP != nil && !s.done {
						c := st.c.h.FEP.Congestion()
						x := st.c.h.FEP.Stats()
						fmt.Printf("%v %s cwnd %d inflight %d srtt %v pdcs %d tx %d rtx %d/%d/%d/%d ackstx %d\n", l.since(), l.hosts[s.client].name, c.CwndBytes, c.InFlight, c.SRTT, c.PDCs, x.TxData, x.RtxRTO, x.RtxSACK, x.RtxNack, x.RtxProbe, x.AcksRx)
					}
				}
			}
			if !l.over() {
				l.w.Net.After(50*time.Millisecond, f)
			}
		}
		l.w.Net.After(0, f)
	}
	r, err := Play(context.Background(), sc, 1, nil)
	fmt.Println(err)
	for _, m := range r.Timeline {
		fmt.Println(m.At, m.What)
	}
}

func TestOne(t *testing.T) {
	name := os.Getenv("SCP")
	if name == "" {
		t.Skip()
	}
	sc, err := scenario.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(1)
	if v := os.Getenv("SEED"); v != "" {
		fmt.Sscan(v, &seed)
	}
	judge(t, sc, seed)
}
