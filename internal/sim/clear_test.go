package sim_test

import (
	"slices"
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

// A promiser is the FEP of a host that answers NO_RESPONSE first to the first three packets that
// it answers by a guaranteed response. The RESPONSE, which comes later, is lost: only an ACK_REQ gets it. The
// promiser forgets the RESPONSE if its PSN is cleared before it was asked for.
type promiser struct {
	simtest.Endpoint
	w       *simtest.World
	decided time.Duration // when the RESPONSEs are there
	kept    map[wire.PSN][]byte
	told    []wire.PSN // whose RESPONSE was asked for
	asks    int
	seen    map[wire.PSN]bool
	cleared bool // a RESPONSE was cleared that was not asked for
}

func (f *promiser) Receive(now time.Duration, d *dgram.Datagram) {
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		if c, _, err := wire.ParseCP(b); err == nil {
			switch c.Ctl {
			case wire.CtlClear:
				f.clear(wire.PSN(c.Payload))
			case wire.CtlAckReq:
				if a := f.kept[c.PSN]; a != nil {
					if f.asks++; now < f.decided {
						n := wire.Nack{Type: wire.TypeNack, Code: wire.NackRcvdSESProcg, PSN: c.PSN, SPDCID: c.DPDCID, DPDCID: c.SPDCID}
						f.w.Forge(0, f.w.Hosts[1].Addr(), n.Append(nil), true)
					} else {
						f.told = append(f.told, c.PSN)
						f.w.Forge(0, f.w.Hosts[1].Addr(), a, false)
					}
					continue
				}
			}
		} else if h, _, err := wire.ParseReq(b); err == nil && h.Flags&wire.FlagSYN == 0 {
			f.clear(h.PSN.Add(int(h.ClearOff)))
		}
		one := *d
		one.Data, one.Seg = b, 0
		f.Endpoint.Receive(now, &one)
	}
}

func (f *promiser) clear(psn wire.PSN) {
	for p := range f.kept {
		if !p.After(psn) {
			f.cleared = f.cleared || !slices.Contains(f.told, p)
			delete(f.kept, p)
		}
	}
}

func (f *promiser) Transmit(now time.Duration, d *dgram.Datagram) bool {
	for f.Endpoint.Transmit(now, d) {
		hold := false
		for rest := d.Data; len(rest) > 0; {
			var b []byte
			b, rest = d.Next(rest)
			a, n, err := wire.ParseAck(b)
			if err != nil || a.Req != wire.ReqClear {
				continue
			}
			psn := a.AckPSN()
			if len(f.seen) < 3 {
				f.seen[psn] = true
			}
			if !f.seen[psn] {
				continue
			}
			hold = true
			if f.kept[psn] == nil {
				f.kept[psn] = slices.Clone(b)
				r, _, err := wire.ParseRsp(b[n:])
				if err != nil {
					panic(err)
				}
				a.Req, r.Opcode, r.RC, r.List = wire.ReqNone, wire.RspNone, wire.RCNull, 0
				f.w.Forge(0, f.w.Hosts[1].Addr(), r.Append(a.Append(nil)), true)
			}
		}
		if c, _, err := wire.ParseCP(d.Data); hold || err == nil && c.Ctl == wire.CtlClearReq {
			continue
		}
		return true
	}
	return false
}

// S-CLR-06, S-CLR-07: a source clears no packet whose promised RESPONSE it does not have, and
// asks for it from time to time. Here each RESPONSE is lost, and the receives are posted after
// half a second, or after a minute.
func TestPromisedResponseIsAskedFor(t *testing.T) {
	for _, late := range []time.Duration{500 * ms, time.Minute} {
		for seed := range uint64(5) {
			w := pair(t, 1010+seed, lan, hostile)
			w.Forged() // the answers of the promiser
			f := &promiser{Endpoint: w.Hosts[1].FEP, w: w, kept: map[wire.PSN][]byte{}, seen: map[wire.PSN]bool{}}
			w.Hosts[1].FEP = f
			f.decided = w.Now() + late
			ops := post(w.Hosts[0], tsend(1, 100), 3)
			w.Run(10 * ms)
			ops = append(ops, post(w.Hosts[0], tsend(1, 100), 1)...) // its response asks for CLEAR
			w.Run(late - 10*ms)
			if n := len(f.kept); n != 3 || f.cleared {
				t.Fatalf("%d RESPONSEs are kept, cleared early: %v", n, f.cleared)
			}
			w.RunOps(3*time.Second, ops...)
			w.Want("ok", ops...)
			// The intervals double up to two seconds.
			if most := 3 * (11 + int(late/(2*time.Second))); f.cleared || f.asks > most {
				t.Errorf("seed %d: asked %d times, cleared early: %v", seed, f.asks, f.cleared)
			}
			post(w.Hosts[1], trecv(100), 4)
			settle(w)
		}
	}
}
