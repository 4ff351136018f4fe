package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A patient is the FEP of a host that waits for CLEAR as long as it takes: it sends a
// guaranteed response once and no CLEAR_REQ. The first deaf CLEARs do not reach it, nor do
// those before the time deafUntil.
type patient struct {
	simtest.Endpoint
	deaf      int
	deafUntil time.Duration
	sent      map[wire.PSN]bool // guaranteed responses
	clears    int
	probes    int
}

func (f *patient) Receive(now time.Duration, d *dgram.Datagram) {
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		if c, _, err := wire.ParseCP(b); err == nil {
			switch c.Ctl {
			case wire.CtlClear:
				if f.clears++; f.clears <= f.deaf || now < f.deafUntil {
					continue
				}
			case wire.CtlProbe:
				f.probes++
			}
		}
		one := *d
		one.Data, one.Seg = b, 0
		f.Endpoint.Receive(now, &one)
	}
}

func (f *patient) Transmit(now time.Duration, d *dgram.Datagram) bool {
	for f.Endpoint.Transmit(now, d) {
		if c, _, err := wire.ParseCP(d.Data); err == nil && c.Ctl == wire.CtlClearReq {
			continue
		}
		if a, _, err := wire.ParseAck(d.Data); err == nil && a.Req == wire.ReqClear {
			if f.sent[a.AckPSN()] {
				continue
			}
			f.sent[a.AckPSN()] = true
		}
		return true
	}
	return false
}

// S-CLR-05, F2: a source sends CLEAR again as long as the CACK of the target shows that it
// waits for one, and not more often than it asks by PROBE. Without receives each response of
// the target is guaranteed: the window is full of them when the CLEARs are lost.
func TestLostClearIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		deaf int
		dark time.Duration
	}{{"each once", 128, 0}, {"for two seconds", 0, 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(10) {
				line := lan
				line.Delay = 2 * ms
				w := pair(t, 990+seed, line, hostile, config(func(c *transport.Config) { c.MPRange = 128 }))
				f := &patient{Endpoint: w.Hosts[1].FEP, deaf: c.deaf, deafUntil: w.Now() + c.dark, sent: map[wire.PSN]bool{}}
				w.Hosts[1].FEP = f
				ops := post(w.Hosts[0], tsend(1, 10), 400)
				w.RunOps(20*time.Second, ops...)
				w.Want("ok", ops...)
				if f.clears <= f.deaf || f.probes > 20 {
					t.Errorf("seed %d: %d CLEARs, %d PROBEs", seed, f.clears, f.probes)
				}
				post(w.Hosts[1], trecv(10), 400)
				settle(w)
			}
		})
	}
}
