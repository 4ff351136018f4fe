package traffic

import (
	"math"
	"testing"
	"time"
)

// base returns a Spec for a test to change.
func base(test, op string, size int64) Spec {
	return Spec{
		Test: test, Op: op, Mode: "rud", Complete: "transmit", Size: size, Iters: 200, Warmup: 10, Window: 16, Parallel: 1, Check: true,
		Progress: "auto", CRC: true, CC: "nscc", GSO: "auto", Seed: 7, PeerTimeout: 8 * time.Second,
	}
}

// exchanging returns a Spec of load or rr for a test to change.
func exchanging(test, op string, size, reply int64) Spec {
	s := base(test, op, size)
	s.Reply, s.Warmup = reply, 5
	if test == Load {
		s.Rate, s.Arrivals, s.Iters, s.Time = 5000, Constant, 0, 300*time.Millisecond
	}
	return s
}

func incasting(senders int, size int64, d time.Duration) Spec {
	s := base(Incast, TSend, size)
	s.Iters, s.Time, s.Parallel, s.Window, s.Within, s.Warmup = 0, d, senders, 2, 0.5, 4
	return s
}

func TestSpecValidate(t *testing.T) {
	ok := base(BW, Send, 100)
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"test":        func(s *Spec) { s.Test = "x" },
		"op":          func(s *Spec) { s.Op = "shuffle" },
		"mode":        func(s *Spec) { s.Mode = "uud" },
		"level":       func(s *Spec) { s.Complete = "commit" },
		"progress":    func(s *Spec) { s.Progress = "" },
		"cc":          func(s *Spec) { s.CC = "tfc" },
		"gso":         func(s *Spec) { s.GSO = "maybe" },
		"size":        func(s *Spec) { s.Size = -1 },
		"huge":        func(s *Spec) { s.Size = 1 << 33 },
		"memory":      func(s *Spec) { s.Size = MaxMemory },
		"iters":       func(s *Spec) { s.Iters = -1 },
		"warmup":      func(s *Spec) { s.Warmup = -1 },
		"overflow":    func(s *Spec) { s.Iters, s.Warmup = 1<<62, 1<<62 },
		"no end":      func(s *Spec) { s.Iters = 0 },
		"no window":   func(s *Spec) { s.Window = 0 },
		"window":      func(s *Spec) { s.Window = MaxWindow + 1 },
		"parallel":    func(s *Spec) { s.Parallel = 0 },
		"mtu":         func(s *Spec) { s.MTU = 1500 },
		"paths":       func(s *Spec) { s.Paths = 1000 },
		"choice":      func(s *Spec) { s.PathChoice = "ecmp" },
		"both":        func(s *Spec) { s.Reverse, s.Bidir = true, true },
		"reverse lat": func(s *Spec) { s.Test, s.Reverse = Lat, true },
		"total":       func(s *Spec) { s.Size, s.Window, s.Parallel = 16<<20, 64, 64 },
		"timeout":     func(s *Spec) { s.PeerTimeout = -1 },
		"sample":      func(s *Spec) { s.Sample = time.Millisecond },
		"rate of bw":  func(s *Spec) { s.Rate = 5 },
		"reply of bw": func(s *Spec) { s.Reply = 5 },
		"churn of bw": func(s *Spec) { s.Churn, s.Window = true, 1 },
		"no rate":     func(s *Spec) { *s = exchanging(Load, TSend, 8, 8); s.Rate = 0 },
		"bad rate":    func(s *Spec) { *s = exchanging(Load, TSend, 8, 8); s.Rate = math.NaN() },
		"endless":     func(s *Spec) { *s = exchanging(Load, TSend, 8, 8); s.Rate = math.Inf(1) },
		"arrivals":    func(s *Spec) { *s = exchanging(Load, TSend, 8, 8); s.Arrivals = "" },
		"timeless":    func(s *Spec) { *s = exchanging(Load, TSend, 8, 8); s.Time, s.Iters = 0, 5 },
		"reply":       func(s *Spec) { *s = exchanging(RR, TSend, 8, -1) },
		"huge reply":  func(s *Spec) { *s = exchanging(RR, TSend, 8, 1<<40) },
		"replies": func(s *Spec) {
			*s = exchanging(RR, TSend, 8, MaxMemory/2)
			s.Parallel, s.Window = 64, 64
		},
		"reverse rr":  func(s *Spec) { *s = exchanging(RR, TSend, 8, 8); s.Reverse = true },
		"inject rr":   func(s *Spec) { *s = exchanging(RR, Inject, 8, 8) },
		"churn":       func(s *Spec) { *s = exchanging(RR, TSend, 8, 8); s.Churn = true },
		"one sender":  func(s *Spec) { *s = incasting(1, 8, time.Second) },
		"within":      func(s *Spec) { *s = incasting(2, 8, time.Second); s.Within = math.NaN() },
		"incast send": func(s *Spec) { *s = incasting(2, 8, time.Second); s.Op = Send },
		"incast msg":  func(s *Spec) { *s = incasting(2, 8, time.Second); s.EP = MSG },
		"write load":  func(s *Spec) { *s = exchanging(Load, Write, 8, 8) },
		"write back":  func(s *Spec) { s.Op, s.Reverse = Write, true },
		"read inject": func(s *Spec) { s.Op, s.Complete = Read, "inject" },
		"add halves":  func(s *Spec) { s.Op, s.Size = FAdd, 12 },
		"add more":    func(s *Spec) { s.Op, s.Size = FAdd, 520 },
		"swap halves": func(s *Spec) { s.Op, s.Size = Swap, 12 },
		"cas of two":  func(s *Spec) { s.Op, s.Size = CAS, 16 },
		"rudi send":   func(s *Spec) { s.Mode = RUDI },
		"lent write":  func(s *Spec) { s.Op, s.Rendezvous = Write, 8 },
		"lent inject": func(s *Spec) { s.Op, s.Rendezvous = Inject, 8 },
		"lent early":  func(s *Spec) { s.Complete, s.Rendezvous = "inject", 8 },
		"lent length": func(s *Spec) { s.Rendezvous = -1 },
		"rudi add":    func(s *Spec) { s.Mode, s.Op, s.Size = RUDI, FAdd, 8 },
		"rudi commit": func(s *Spec) { s.Mode, s.Op, s.Complete = RUDI, Write, "commit" },
		"incast all":  func(s *Spec) { *s = incasting(64, 8, time.Second); s.Window = 1024 },
	} {
		s := ok
		change(&s)
		if err := s.Validate(); err == nil {
			t.Errorf("%s: %+v is taken", name, s)
		}
	}
}

// Buffers never exceed their bounds, whatever is asked for.
func TestSpecMemory(t *testing.T) {
	for _, size := range []int64{0, 1, 4 << 10, 1 << 20, 100 << 20, MaxMemory / 2} {
		for _, window := range []int{1, 64, MaxWindow} {
			for _, check := range []bool{false, true} {
				s := base(BW, Send, size)
				s.Window, s.Check = window, check
				tx, txBufs, rx, rxBufs := s.slots()
				if mem := int64(txBufs+rxBufs) * size; mem > MaxMemory+MaxMemory/2 || tx < 1 || rx < tx || check && (tx != txBufs || rx != rxBufs) {
					t.Errorf("size %d, window %d, check %v: %d sends in %d buffers, %d receives in %d, %d bytes", size, window, check, tx, txBufs, rx, rxBufs, mem)
				}
			}
		}
	}
}
