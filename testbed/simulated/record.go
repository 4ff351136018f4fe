package simulated

import (
	"runtime"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/transport"
)

// counters are those of one side's endpoints, as uetperf has them.
func (s *session) counters(server bool) record.Counters {
	c := record.Counters{Drops: map[string]uint64{}}
	for _, st := range s.streams {
		e := st.c
		if server {
			e = st.v
		}
		if e.h.FEP == nil {
			continue
		}
		st := e.h.FEP.Stats()
		c.Add(countersOf(&st))
	}
	return c
}

// nackTrimmed are the NACK codes of packets that a switch has cut.
var nackTrimmed = [...]uint8{1, 2}

func countersOf(s *transport.Stats) *record.Counters {
	c := &record.Counters{
		TxPkts: s.TxPackets, RxPkts: s.RxPackets, TxBytes: s.TxBytes, RxBytes: s.RxBytes,
		RtxRTO: s.RtxRTO, RtxSACK: s.RtxSACK, RtxNack: s.RtxNack, RtxProbe: s.RtxProbe,
		Dup: s.RxDup, OOO: s.RxOOO, ECNCE: s.RxCE, AcksTx: s.AcksTx, AcksRx: s.AcksRx, Drops: map[string]uint64{},
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

// minus is what was counted since b. A process that was restarted counts from
// zero.
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

// latency describes a histogram.
func latency(h *hdr.Histogram) *record.Latency {
	b, err := h.Encode(hdr.V2CompressedEncodingCookieBase)
	if err != nil {
		b = nil
	}
	return &record.Latency{
		Min: h.Min(), P50: h.ValueAtPercentile(50), P90: h.ValueAtPercentile(90), P99: h.ValueAtPercentile(99),
		P999: h.ValueAtPercentile(99.9), Max: h.Max(), Mean: h.Mean(), StdDev: h.StdDev(), HDR: string(b),
	}
}

// addTo adds the session to the record of its host, which is that of its first
// session.
func (s *session) addTo(r *record.Record) *record.Record {
	if !s.begun {
		return r
	}
	if r == nil {
		h := machine()
		h.Name = s.l.hosts[s.client].name
		peer := h
		peer.Name = s.l.hosts[s.server].name
		st := s.streams[0]
		r = &record.Record{
			Schema: record.Schema, Tool: record.Tool{Version: "simulated", Go: runtime.Version()}, Started: s.l.res.Started, Command: []string{}, Seed: s.l.seed,
			Host: h, Peer: &peer, Config: s.config(), Verdict: []record.Verdict{}, OK: true,
			Path: &record.Path{
				Local: st.c.h.Addr().String(), Remote: st.v.h.Addr().String(), Interface: "sim", MTU: max(s.l.sc.Fabric.MTU, 0),
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
	c := record.Config{
		Test: s.p.test, Op: s.p.op, EP: "rdm", Mode: s.p.mode, Complete: s.p.complete, CC: "nscc", Sec: "off", CRC: true, MTU: s.p.mtu,
		Paths: s.p.paths, Parallel: s.p.parallel, Progress: "auto", Direction: "forward",
	}
	if !s.p.exchanges() {
		c.Window = s.p.window
	}
	if s.l.sc.Security == "psk" {
		c.Sec = "psk"
	}
	switch {
	case s.p.bidir:
		c.Direction = "both"
	case s.p.reverse:
		c.Direction = "reverse"
	}
	return c
}
