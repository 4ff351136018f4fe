package perf

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// Each operation on memory of the server runs in each test that has it. What was read, written and added
// is verified.
func TestRunAccesses(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, test := range []string{traffic.Lat, traffic.BW, traffic.Rate} {
		for _, op := range []string{traffic.Write, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS} {
			for _, mode := range []string{"rud", "rod"} {
				for _, level := range []string{"transmit", "delivery"} {
					for _, progress := range []string{"auto", "manual"} {
						s := base(test, op, 400)
						if op == traffic.CAS {
							s.Size = 8
						}
						s.Mode, s.Complete, s.Progress = mode, level, progress
						t.Run(test+"/"+op+"/"+mode+"/"+level+"/"+progress, func(t *testing.T) {
							r := run(t, c, s).Run
							if r.Msgs > s.Iters || r.Msgs < s.Iters-64 || r.Lost == nil || *r.Lost != 0 {
								t.Errorf("%d operations, lost %v", r.Msgs, r.Lost)
							}
							want := s.Iters + s.Warmup
							if op == traffic.Write {
								want = int64(s.Places())
							}
							if r.DataCheck.OK != want || r.DataCheck.Wrong != 0 {
								t.Errorf("data check %+v, want %d ok", r.DataCheck, want)
							}
							if s.Pingpong() && (r.Latency == nil || !r.Latency.RTT) || !s.Pingpong() && (r.GoodputBPS == nil || r.MeasuredAt != "sender") {
								t.Errorf("measured %+v", r)
							}
						})
					}
				}
			}
		}
	}
}

// Mode rudi runs in each test of write and read: all that is written or read after the first operation goes
// by RUDI, also if packets are lost, and then some are sent again.
func TestRunRUDI(t *testing.T) {
	var answers atomic.Uint64
	addr := serve(t, ServerConfig{Closed: func(ep *uet.Endpoint) { answers.Add(ep.Stats().RUDIAnswers) }})
	good := dial(t, addr, ClientConfig{})
	bad := dial(t, addr, ClientConfig{Impair: &relay.Faults{Loss: 0.02, Seed: 5}})
	for _, test := range []string{traffic.Lat, traffic.BW, traffic.Rate} {
		for _, op := range []string{traffic.Write, traffic.Read} {
			for _, level := range []string{"transmit", "delivery"} {
				for name, c := range map[string]*Client{"good": good, "bad": bad} {
					s := base(test, op, 400)
					s.Mode, s.Complete = traffic.RUDI, level
					t.Run(test+"/"+op+"/"+level+"/"+name, func(t *testing.T) {
						was := answers.Load()
						r := run(t, c, s).Run
						want := s.Iters + s.Warmup
						if n := int64(answers.Load() - was); n < want-int64(s.Window) {
							t.Errorf("%d answers by RUDI to %d operations", n, want)
						}
						if op == traffic.Write {
							want = int64(s.Places())
						}
						if r.DataCheck.OK != want || r.DataCheck.Wrong != 0 || r.Lost == nil || *r.Lost != 0 {
							t.Errorf("data check %+v, want %d ok, lost %v", r.DataCheck, want, r.Lost)
						}
						if c == bad && r.Transport.RtxRTO == 0 {
							t.Error("nothing was sent again")
						}
						if k := r.Transport; k.OpsROD|k.OpsUUD != 0 || k.OpsRUDI < uint64(s.Iters-int64(s.Window)) || k.OpsRUD > uint64(s.Window)+2 {
							t.Errorf("operations: rud %d rod %d rudi %d uud %d", k.OpsRUD, k.OpsROD, k.OpsRUDI, k.OpsUUD)
						}
					})
				}
			}
		}
	}
}

// What each end counts of the operations of a test by their delivery mode: every message and access, once, by the mode that was
// asked for.
func TestRunCountsModes(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, test := range []struct {
		op, mode string
		of       func(r *record.Counters) *uint64
	}{
		{traffic.Send, traffic.RUD, func(r *record.Counters) *uint64 { return &r.OpsRUD }},
		{traffic.TSend, traffic.ROD, func(r *record.Counters) *uint64 { return &r.OpsROD }},
		{traffic.Read, traffic.ROD, func(r *record.Counters) *uint64 { return &r.OpsROD }},
		{traffic.FAdd, traffic.RUD, func(r *record.Counters) *uint64 { return &r.OpsRUD }},
		{traffic.Send, traffic.UUD, func(r *record.Counters) *uint64 { return &r.OpsUUD }},
	} {
		for _, kind := range []string{traffic.BW, traffic.Lat} {
			t.Run(kind+"/"+test.op+"/"+test.mode, func(t *testing.T) {
				s := base(kind, test.op, 400)
				if s.Mode = test.mode; s.Mode == traffic.UUD {
					s.EP = traffic.Dgram
				}
				r := run(t, c, s).Run
				all := uint64(s.Iters + s.Warmup)
				for i, k := range []*record.Counters{&r.Transport, r.PeerTransport} {
					n := *test.of(k)
					*test.of(k) = 0
					// A stream has a few messages more, which begin and end it.
					if i == 0 && (n < all || n > all+64) || k.OpsRUD|k.OpsROD|k.OpsRUDI|k.OpsUUD != 0 {
						t.Errorf("end %d: %d of %d operations, and of other modes %d %d %d %d", i, n, all, k.OpsRUD, k.OpsROD, k.OpsRUDI, k.OpsUUD)
					}
					if i == 1 && (kind == traffic.Lat && !s.OneSided()) != (n >= all) {
						t.Errorf("%d operations of the server", n)
					}
				}
			})
		}
	}
}

// The levels match, of messages, and commit, of writes, run in each test that has them. What was sent is verified at its
// receiver, and what was written in the file where it is durable.
func TestRunLevels(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, v := range []struct {
		level string
		ops   []string
	}{{"match", []string{traffic.Send, traffic.TSend}}, {"commit", []string{traffic.Write, traffic.WriteData}}} {
		for _, test := range []string{traffic.Lat, traffic.BW, traffic.Rate, traffic.Load} {
			for _, op := range v.ops {
				for _, mode := range []string{traffic.RUD, traffic.ROD} {
					t.Run(v.level+"/"+test+"/"+op+"/"+mode, func(t *testing.T) {
						durable := v.level == "commit"
						if durable && runtime.GOOS != "linux" {
							t.Skip("durable writes need Linux")
						}
						s := base(test, op, 3000)
						if test == traffic.Load {
							s = exchanging(test, op, 3000, 0)
						}
						s.Complete, s.Mode = v.level, mode
						r := run(t, c, s).Run
						if r.Msgs == 0 || r.DataCheck.OK == 0 || r.DataCheck.Wrong != 0 || r.Lost == nil || *r.Lost != 0 {
							t.Errorf("%d ended, %+v, lost %v", r.Msgs, r.DataCheck, r.Lost)
						}
						want := s.Iters + s.Warmup
						if test == traffic.Load {
							want = r.Msgs + s.Warmup
						}
						switch {
						case op == traffic.Write && test != traffic.Load && r.DataCheck.OK != int64(s.Places()):
							t.Errorf("%d places verified of %d", r.DataCheck.OK, s.Places())
						case op == traffic.WriteData && r.DataCheck.OK != want:
							t.Errorf("%d writes verified of %d", r.DataCheck.OK, want)
						}
						if n := int64(r.Transport.TxPkts); durable && n < 2*r.Msgs { // the bytes, and the question whether they are durable
							t.Errorf("%d packets were sent for %d durable writes", n, r.Msgs)
						}
					})
				}
			}
		}
	}
}

// Each level is what a leg asks its endpoint for, and with ROD it asks for the order of its operations.
func TestHintsOfLevels(t *testing.T) {
	for level, want := range map[string]fi.Flags{"inject": fi.InjectComplete, "transmit": fi.TransmitComplete, "delivery": fi.DeliveryComplete, "match": fi.MatchComplete} {
		s := base(traffic.BW, traffic.Send, 8)
		s.Complete, s.Mode = level, traffic.ROD
		if h := hints(&s, nil, time.Second, time.Second); h.Tx.OpFlags != want || h.Tx.MsgOrder != fi.OrderSAS {
			t.Errorf("%s: flags %v, order %v", level, h.Tx.OpFlags, h.Tx.MsgOrder)
		}
	}
	s := base(traffic.BW, traffic.Write, 8)
	s.Complete, s.Mode = "commit", traffic.ROD
	if h := hints(&s, nil, time.Second, time.Second); h.Tx.OpFlags != 0 || h.Caps&fi.RMAPmem == 0 || h.Tx.MsgOrder&fi.OrderWAW == 0 {
		t.Errorf("commit: flags %v, capabilities %v, order %v", h.Tx.OpFlags, h.Caps, h.Tx.MsgOrder)
	}
}

// A write with data tells the application of the server its number, once each; what was written is verified.
func TestRunWriteData(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, test := range []string{traffic.Lat, traffic.BW, traffic.Rate, traffic.Load} {
		for _, mode := range []string{"rud", "rod"} {
			for _, progress := range []string{"auto", "manual"} {
				s := base(test, traffic.WriteData, 5000)
				if test == traffic.Load {
					s = exchanging(test, traffic.WriteData, 5000, 0)
				}
				s.Mode, s.Progress = mode, progress
				t.Run(test+"/"+mode+"/"+progress, func(t *testing.T) {
					r := run(t, c, s).Run
					want := s.Iters + s.Warmup
					if test == traffic.Load {
						want = r.Msgs + s.Warmup
					}
					if r.DataCheck.OK != want || r.DataCheck.Wrong != 0 || r.Lost == nil || *r.Lost != 0 {
						t.Errorf("data check %+v, want %d ok, lost %v", r.DataCheck, want, r.Lost)
					}
				})
			}
		}
	}
}

// A load of accesses: none is left out, each ends with its completion, and what was read, written and added is
// verified.
func TestLoadOfAccesses(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, v := range []struct {
		op, mode string
		size     int64
	}{{traffic.Write, "rud", 3000}, {traffic.Write, traffic.RUDI, 3000}, {traffic.Read, "rod", 20000}, {traffic.Read, traffic.RUDI, 3000}, {traffic.FAdd, "rud", 16}, {traffic.Swap, "rud", 8}, {traffic.CAS, "rud", 8}} {
		t.Run(v.op+"/"+v.mode, func(t *testing.T) {
			s := exchanging(traffic.Load, v.op, v.size, 0)
			s.Mode, s.Parallel, s.Window = v.mode, 2, 8
			r := run(t, c, s).Run
			if r.Load.Offered != r.Msgs+r.Load.Unsent || r.Load.Offered < 1450 || r.Load.Offered > 1550 || *r.Lost != 0 {
				t.Errorf("%+v, %d ended, %d lost; want all of 1500", r.Load, r.Msgs, *r.Lost)
			}
			want := r.Msgs + s.Warmup*int64(s.Parallel)
			if v.op == traffic.Write {
				want = int64(s.Places() * s.Parallel)
			}
			if d := r.DataCheck; d.Wrong != 0 || d.OK > want || v.op != traffic.Write && d.OK != want || d.OK == 0 {
				t.Errorf("data check %+v, want %d ok", d, want)
			}
			if r.Latency == nil || !r.Latency.RTT || r.Latency.P50 <= 0 {
				t.Errorf("latency %+v", r.Latency)
			}
		})
	}
}
