package simulated

import (
	"cmp"
	"runtime"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// nackTrimmed are the NACK codes of packets that a switch has cut.
var nackTrimmed = [...]uint8{1, 2}

// countersOf returns the counters of an endpoint in this life, as uetperf has them.
func countersOf(h *simtest.Host) record.Counters {
	if h.FEP == nil {
		return record.Counters{Drops: map[string]uint64{}}
	}
	s := h.FEP.Stats()
	c := record.Counters{
		TxPkts: s.TxPackets, RxPkts: s.RxPackets, TxBytes: s.TxBytes, RxBytes: s.RxBytes,
		RtxRTO: s.RtxRTO, RtxSACK: s.RtxSACK, RtxNack: s.RtxNack, RtxProbe: s.RtxProbe,
		Dup: s.RxDup, OOO: s.RxOOO, ECNCE: s.RxCE, AcksTx: s.AcksTx, AcksRx: s.AcksRx, Drops: map[string]uint64{},
		CreditsGranted: s.CreditsGranted, CreditsUsed: s.CreditsUsed, CreditWaitNS: uint64(s.CreditWaited),
	}
	for _, code := range nackTrimmed {
		c.Trimmed += s.NacksTx[code]
	}
	for i, n := range s.Drops {
		if n > 0 {
			c.Drops[transport.DropReason(i).String()] = n
		}
	}
	return c
}

// minus returns the counts since b. A restarted process counts from zero.
func minus(a, b record.Counters) record.Counters {
	sub := func(x *uint64, y uint64) {
		if *x >= y {
			*x -= y
		}
	}
	sub(&a.TxPkts, b.TxPkts)
	sub(&a.RxPkts, b.RxPkts)
	sub(&a.TxBytes, b.TxBytes)
	sub(&a.RxBytes, b.RxBytes)
	sub(&a.RtxRTO, b.RtxRTO)
	sub(&a.RtxSACK, b.RtxSACK)
	sub(&a.RtxNack, b.RtxNack)
	sub(&a.RtxProbe, b.RtxProbe)
	sub(&a.Dup, b.Dup)
	sub(&a.OOO, b.OOO)
	sub(&a.Trimmed, b.Trimmed)
	sub(&a.ECNCE, b.ECNCE)
	sub(&a.AcksTx, b.AcksTx)
	sub(&a.AcksRx, b.AcksRx)
	sub(&a.CreditsGranted, b.CreditsGranted)
	sub(&a.CreditsUsed, b.CreditsUsed)
	sub(&a.CreditWaitNS, b.CreditWaitNS)
	for k, n := range b.Drops {
		if a.Drops[k] >= n {
			a.Drops[k] -= n
		}
		if a.Drops[k] == 0 {
			delete(a.Drops, k)
		}
	}
	return a
}

// addTo adds the session to the record of its host. The host's first session made the
// record.
func (s *session) addTo(r *record.Record) *record.Record {
	if s.begun == 0 {
		return r
	}
	if r == nil {
		h := machine()
		h.Name = s.l.hosts[s.client].name
		peer := h
		peer.Name = s.l.hosts[s.server].name
		r = &record.Record{
			Schema: record.Schema, Tool: record.Tool{Version: "simulated", Go: runtime.Version()}, Started: s.l.res.Started, Command: []string{}, Seed: s.l.seed,
			Host: h, Peer: &peer, Config: s.config(), Verdict: []record.Verdict{}, OK: true,
			Path: &record.Path{
				Local: s.clients[0].Addr().String(), Remote: s.servers[0].Addr().String(), Interface: "sim", MTU: max(s.l.sc.Fabric.MTU, 0),
				GSO: record.Feature{Why: "simulated"}, GRO: record.Feature{Why: "simulated"},
				Rcvbuf: hostBuffer, RcvbufAsked: hostBuffer, ECN: true,
			},
		}
		if r.Path.MTU == 0 {
			r.Path.MTU = 1500
		}
	}
	r.Runs = append(r.Runs, s.runs...)
	for i := range s.runs {
		if c := s.runs[i].DataCheck; c != nil && c.Wrong > 0 || *s.runs[i].Lost > 0 {
			r.OK = false
		}
	}
	if s.err != nil {
		r.OK = false
		if r.Error != "" {
			r.Error += "; "
		}
		r.Error += s.err.Error()
	}
	return r
}

func (s *session) config() record.Config {
	p := s.p
	c := record.Config{
		Test: p.Test, Op: p.Op, EP: p.Endpoint(), Mode: p.Mode, Complete: p.Complete, CC: p.CC, Sec: cmp.Or(s.l.sc.Security, p.Security()), CRC: p.CRC, MTU: p.mtu,
		Paths: p.Paths, Parallel: p.Parallel, Progress: p.Progress, Direction: p.Direction(),
	}
	if !p.Exchanges() && !p.Pingpong() {
		c.Window = p.Window
	}
	return c
}
