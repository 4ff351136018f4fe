package perf

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// sharingTest returns a test whose streams share a port.
func sharingTest(test, op string, size int64, streams int) traffic.Spec {
	s := base(test, op, size)
	s.SharePort, s.Parallel, s.Iters, s.Window = true, streams, 60, 4
	return s
}

// The streams of a test with Spec.SharePort have one port at each end, and each its messages: what is sent is
// verified at the end of its stream.
func TestStreamsShareAPort(t *testing.T) {
	var mu sync.Mutex
	ports, tests := map[uint16]bool{}, 0
	tap := func(d *uet.Tapped) {
		mu.Lock()
		defer mu.Unlock()
		ports[d.Local.Port()] = true
	}
	addr := serve(t, ServerConfig{Tap: tap, Opened: func(_ *uet.Endpoint, kind string) {
		mu.Lock()
		defer mu.Unlock()
		if kind == "test" {
			tests++
		}
	}})
	for _, c := range []struct {
		name string
		spec traffic.Spec
		with func(*traffic.Spec)
	}{
		{"bw send", sharingTest(traffic.BW, traffic.Send, 10_000, 5), nil},
		{"bw tsend both", sharingTest(traffic.BW, traffic.TSend, 10_000, 5), func(s *traffic.Spec) { s.Bidir, s.Progress = true, "manual" }},
		{"rate inject back", sharingTest(traffic.Rate, traffic.Inject, 64, 3), func(s *traffic.Spec) { s.Reverse = true }},
		{"rod", sharingTest(traffic.BW, traffic.TSend, 5000, 4), func(s *traffic.Spec) { s.Mode = "rod" }},
		{"write", sharingTest(traffic.BW, traffic.Write, 5000, 4), nil},
		{"writedata", sharingTest(traffic.BW, traffic.WriteData, 5000, 4), nil},
		{"read", sharingTest(traffic.BW, traffic.Read, 5000, 4), nil},
		{"rudi", sharingTest(traffic.BW, traffic.Write, 5000, 4), func(s *traffic.Spec) { s.Mode = traffic.RUDI }},
		{"fadd", sharingTest(traffic.Rate, traffic.FAdd, 64, 4), nil},
		{"cas", sharingTest(traffic.Rate, traffic.CAS, 8, 4), func(s *traffic.Spec) { s.Progress = "manual" }},
		{"rr", sharingTest(traffic.RR, traffic.TSend, 500, 4), func(s *traffic.Spec) { s.Reply = 700 }},
		{"load", sharingTest(traffic.Load, traffic.TSend, 500, 4), func(s *traffic.Spec) {
			s.Reply, s.Rate, s.Arrivals, s.Iters, s.Time = 700, 2000, traffic.Poisson, 0, 100*time.Millisecond
		}},
		{"datagrams", sharingTest(traffic.BW, traffic.Send, 500, 4), func(s *traffic.Spec) { s.EP, s.Mode = traffic.Dgram, traffic.UUD }},
		{"one queue", sharingTest(traffic.BW, traffic.TSend, 500, 4), func(s *traffic.Spec) { s.OneQueue = true }},
		{"one queue, read", sharingTest(traffic.BW, traffic.Read, 500, 4), func(s *traffic.Spec) { s.OneQueue = true }},
		{"many", sharingTest(traffic.Rate, traffic.TSend, 64, 300), func(s *traffic.Spec) { s.Iters = 10 }},
		{"many, write", sharingTest(traffic.Rate, traffic.Write, 64, 100), func(s *traffic.Spec) { s.Iters = 10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.spec
			if c.with != nil {
				c.with(&s)
			}
			cl := dial(t, addr, ClientConfig{Tap: tap})
			mu.Lock()
			clear(ports)
			tests = 0
			mu.Unlock()
			r := run(t, cl, s).Run
			mu.Lock()
			defer mu.Unlock()
			// Two are those of the control exchange.
			if len(ports) != 4 || tests != 1 {
				t.Errorf("%d ports, %d endpoints reported", len(ports), tests)
			}
			if d := r.DataCheck; d == nil || d.OK == 0 || d.Wrong != 0 {
				t.Errorf("data check %+v", d)
			}
			if s.EP != traffic.Dgram && (r.Lost == nil || *r.Lost != 0) {
				t.Errorf("lost %v", r.Lost)
			}
			// One FEP counts for all streams, once: each message is at most 10 packets here, and as many ACKs.
			most := uint64(s.Parallel) * uint64(s.Iters+s.Warmup) * 2 * (2 + uint64(s.Size)/1000)
			for _, n := range []uint64{r.Transport.TxPkts, r.PeerTransport.RxPkts} {
				if s.Iters > 0 && n > most || n == 0 {
					t.Errorf("%d packets, at most %d", n, most)
				}
			}
			if tx, rx := r.Transport.TxPkts, r.PeerTransport.RxPkts; s.EP != traffic.Dgram && (rx > tx || rx < tx*9/10) {
				t.Errorf("%d packets sent, %d received", tx, rx)
			}
		})
	}
}

// A bad network is between the two ports.
func TestSharedPortsThroughARelay(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{Impair: &relay.Faults{Loss: 0.02, Seed: 3}})
	res := run(t, c, sharingTest(traffic.BW, traffic.TSend, 5000, 6))
	if res.Run.DataCheck.Wrong != 0 || res.Relay.In == 0 || res.Relay.Lost == 0 {
		t.Errorf("%+v, %+v", res.Run.DataCheck, res.Relay)
	}
}

// Streams behind the 4,096th have another JobID, because a PIDonFEP has 12 bits.
func TestNamesOfStreamsOfAPort(t *testing.T) {
	s := sharingTest(traffic.Rate, traffic.TSend, 64, traffic.MaxParallel)
	s.Job = 1<<24 - jobs(&s)
	names := map[[2]uint32]bool{}
	first := &end{local: netip.MustParseAddrPort("127.0.0.1:5")}
	for i := range s.Parallel {
		info := &uet.Info{}
		info.Config.Tap = func(*uet.Tapped) {}
		below(first, &s, i, info)
		c, a := &info.Config, &info.SrcAddr
		if !c.SharePort || c.JobID >= 1<<24 || a.PIDonFEP >= 1<<12 || a.PIDonFEP != pidOf(&s, i) || a.Port != 5 || c.Tap != nil {
			t.Fatalf("stream %d: %+v, job %#x", i, a, c.JobID)
		}
		names[[2]uint32{c.JobID, uint32(a.PIDonFEP)}] = true
	}
	if len(names) != s.Parallel {
		t.Errorf("%d names for %d streams", len(names), s.Parallel)
	}
	if s.SharePort = false; jobs(&s) != 1 || pidOf(&s, 7) != 0 {
		t.Error("streams with ports of their own have names")
	}
}

// A server that does not know of shared ports is not asked for them.
func TestSharedPortNeedsTheServer(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{Pretend: Pretend{Older: true}}), ClientConfig{})
	_, err := c.Run(context.Background(), sharingTest(traffic.BW, traffic.TSend, 64, 2), Hooks{})
	if err == nil || !strings.Contains(err.Error(), "older") {
		t.Error(err)
	}
}

// What ends early ends the others, and nothing stays open.
func TestSharedPortIsInterrupted(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := sharingTest(traffic.BW, traffic.TSend, 1000, 4)
	s.Iters, s.Time = 0, time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if res, err := c.Run(ctx, s, Hooks{}); !errors.Is(err, context.DeadlineExceeded) || res.Run.Msgs == 0 {
		t.Errorf("%v", err)
	}
	run(t, c, sharingTest(traffic.BW, traffic.TSend, 1000, 4))
}

func TestSharedPortRefused(t *testing.T) {
	for _, c := range []struct {
		with func(*traffic.Spec)
		says string
	}{
		{func(s *traffic.Spec) { s.EP = traffic.MSG }, "a connection has a port of its own"},
		{func(s *traffic.Spec) { s.Test, s.Time, s.Within = traffic.Incast, time.Second, 0.5 }, "one sender of all"},
		{func(s *traffic.Spec) { s.Test, s.Churn, s.Window = traffic.RR, true, 1 }, "--churn closes"},
		{func(s *traffic.Spec) { s.Test, s.Parallel = traffic.Lat, 1 }, "one stream"},
	} {
		s := sharingTest(traffic.BW, traffic.TSend, 64, 2)
		c.with(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.says, err)
		}
	}
	s := sharingTest(traffic.BW, traffic.TSend, 64, 2)
	s.Encapsulation = traffic.Standard
	if err := s.Validate(); err != nil {
		t.Errorf("several endpoints may share port 4793: %v", err)
	}
}

// The memory of each stream has a key of its own where the streams are in one domain.
func TestKeysOfStreams(t *testing.T) {
	for _, together := range []bool{false, true} {
		for _, mode := range []string{"rud", traffic.RUDI} {
			s := sharingTest(traffic.BW, traffic.Write, 64, 3)
			s.SharePort, s.Mode = together, mode
			keys := map[uint64]bool{}
			for i := range s.Parallel {
				k := keyOf(&s, i)
				if keys[k] = true; (k&uet.IdempotentKey != 0) != (mode == traffic.RUDI) {
					t.Errorf("key %#x, %s", k, mode)
				}
			}
			if want := map[bool]int{false: 1, true: 3}[together]; len(keys) != want {
				t.Errorf("together=%v: %d keys", together, len(keys))
			}
			if h := hints(&s, nil, 0, 0); (h.Domain.MRMode == fi.MREndpoint) != together {
				t.Errorf("together=%v: %v", together, h.Domain.MRMode)
			}
		}
	}
}
