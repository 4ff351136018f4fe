package perf

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/uet"
)

// datagrams returns a Spec of datagrams.
func datagrams(test string, size int64) traffic.Spec {
	s := base(test, traffic.Send, size)
	s.EP, s.Mode = traffic.Dgram, traffic.UUD
	return s
}

// Each test of datagrams runs, in clear and sealed. No PDC carries them.
func TestRunDatagrams(t *testing.T) {
	server, client := testKeys(t)
	addr := serve(t, ServerConfig{Keys: server})
	for sec, cfg := range map[string]ClientConfig{traffic.Off: {}, traffic.PSK: {Sec: traffic.PSK, Keys: client[traffic.PSK], EP: traffic.Dgram}} {
		c := dial(t, addr, cfg)
		for _, test := range []string{traffic.Ping, traffic.Lat, traffic.BW, traffic.Rate} {
			for _, progress := range []string{"auto", "manual"} {
				for _, way := range []string{"", "reverse", "bidir"} {
					s := datagrams(test, 600)
					s.Progress, s.Reverse, s.Bidir = progress, way == "reverse", way == "bidir"
					if s.Pingpong() && way != "" {
						continue
					}
					t.Run(sec+"/"+test+"/"+progress+"/"+way, func(t *testing.T) {
						r := run(t, c, s).Run
						want, ways := s.Iters+s.Warmup, int64(1)
						if s.Bidir {
							ways = 2
						}
						// Even loopback may lose some, if this host is busy.
						if r.Lost == nil || *r.Lost > want/10 || r.Sent == nil || *r.Sent != want*ways || r.Msgs > s.Iters*ways || r.Msgs+*r.Lost < s.Iters*ways-64 {
							t.Errorf("%d messages, %v of %v lost", r.Msgs, r.Lost, r.Sent)
						}
						got := *r.Sent - *r.Lost
						if s.Pingpong() {
							got *= 2
						}
						if r.DataCheck.OK < got || r.DataCheck.Wrong != 0 {
							t.Errorf("data check %+v, want %d ok", r.DataCheck, got)
						}
						if !s.Pingpong() && (r.MeasuredAt != "receiver" || r.GoodputBPS == nil) || s.Pingpong() && r.Latency == nil {
							t.Errorf("measured %+v", r)
						}
						if r.Transport.AcksRx+r.Transport.AcksTx+r.PeerTransport.AcksRx != 0 {
							t.Errorf("ACKs: %+v", r.Transport)
						}
					})
				}
			}
		}
	}
}

// What the network loses is counted, and is no error. What it repeats is one.
func TestRunLostDatagrams(t *testing.T) {
	addr := serve(t, ServerConfig{})
	loses := dial(t, addr, ClientConfig{Impair: &relay.Faults{Loss: 0.01, Reorder: 0.01, Seed: 3}})
	for _, test := range []string{traffic.BW, traffic.Rate, traffic.Lat} {
		s := datagrams(test, 100)
		least, most := int64(100), int64(400) // of a share of 1 %
		if s.Iters = 20_000; s.Pingpong() {
			s.Iters, least, most = 500, 1, 60 // 2 %: each way
		}
		r := run(t, loses, s).Run
		if *r.Lost < least || *r.Lost > most || r.DataCheck.Wrong != 0 || *r.Sent != s.Iters+s.Warmup {
			t.Errorf("%s: %d of %d lost, %+v", test, *r.Lost, *r.Sent, r.DataCheck)
		}
		if s.Pingpong() && r.Msgs+*r.Lost < s.Iters {
			t.Errorf("%d round trips, %d lost", r.Msgs, *r.Lost)
		}
	}
	repeats := dial(t, addr, ClientConfig{Impair: &relay.Faults{Duplicate: 0.1, Seed: 4}})
	for _, test := range []string{traffic.BW, traffic.Lat} {
		if r := run(t, repeats, datagrams(test, 100)).Run; r.DataCheck.Dup == 0 || r.DataCheck.Wrong != r.DataCheck.Dup {
			t.Errorf("%s: %+v", test, r.DataCheck)
		}
	}
	// Nothing gets through: the test ends, and has measured nothing.
	none := datagrams(traffic.Ping, 100)
	none.Iters, none.Interval, none.Warmup = 3, time.Millisecond, 0
	c := dial(t, addr, ClientConfig{Impair: &relay.Faults{Loss: 1, Seed: 4}})
	if r := run(t, c, none).Run; *r.Lost != 3 || r.Msgs != 0 || r.Latency != nil {
		t.Errorf("%d lost, %d round trips", *r.Lost, r.Msgs)
	}
	none = datagrams(traffic.BW, 100)
	if r := run(t, c, none).Run; *r.Lost != none.Iters+none.Warmup || r.Msgs != 0 {
		t.Errorf("%d lost, %d came", *r.Lost, r.Msgs)
	}
}

// A datagram is one packet.
func TestRunLongDatagrams(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := datagrams(traffic.BW, 2000)
	s.MTU = 2048
	if r := run(t, c, s).Run; r.DataCheck.Wrong != 0 {
		t.Errorf("%+v", r.DataCheck)
	}
	s.Size = 2049
	var usage *usageError
	if _, err := c.Run(context.Background(), s, Hooks{}); !errors.As(err, &usage) {
		t.Errorf("longer than --mtu: %v", err)
	}
	s.MTU, s.Size = 0, 1025
	info := &uet.Info{}
	info.Ep.MaxMsgSize = 1024
	if err := fits(&s, info); !errors.As(err, &usage) {
		t.Errorf("longer than a packet of this interface: %v", err)
	}
	if s.Size = 1024; fits(&s, info) != nil {
		t.Error("a packet is refused")
	}
}

// Requests and replies that are datagrams: those that get lost are counted, and hold up no other.
func TestExchangesOfDatagrams(t *testing.T) {
	addr := serve(t, ServerConfig{})
	good, bad := dial(t, addr, ClientConfig{}), dial(t, addr, ClientConfig{Impair: &relay.Faults{Loss: 0.05, Seed: 3}})
	for _, test := range []string{traffic.Load, traffic.RR} {
		for name, c := range map[string]*Client{"good": good, "bad": bad} {
			t.Run(test+"/"+name, func(t *testing.T) {
				s := exchanging(test, traffic.Send, 600, 900)
				s.EP, s.Mode, s.Window, s.Iters = traffic.Dgram, traffic.UUD, 64, 0
				s.Time = 500 * time.Millisecond
				r := run(t, c, s).Run
				if r.Msgs == 0 || r.Sent == nil || *r.Sent < r.Msgs || r.Latency == nil {
					t.Fatalf("%d answered of %v", r.Msgs, r.Sent)
				}
				if d := r.DataCheck; d.Wrong != 0 || d.OK < 2*r.Msgs {
					t.Errorf("data check %+v of %d", d, r.Msgs)
				}
				if c == bad && *r.Lost == 0 {
					t.Errorf("none of %d lost", *r.Sent)
				}
				if most := int64(2 * time.Second); r.DurationNS > most {
					t.Errorf("it took %d ns", r.DurationNS)
				}
			})
		}
	}
}
