package perf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

func incasting(senders int, size int64, d time.Duration) traffic.Spec {
	s := base(traffic.Incast, traffic.TSend, size)
	s.Iters, s.Time, s.Parallel, s.Window, s.Within, s.Warmup = 0, d, senders, 2, 0.5, 4
	return s
}

func TestIncast(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, sec := range []string{traffic.Off, traffic.PSK} {
		for _, mode := range []string{"rud", "rod"} {
			for _, progress := range []string{"auto", "manual"} {
				t.Run(strings.Join([]string{sec, mode, progress}, "/"), func(t *testing.T) {
					c := dial(t, addr, ClientConfig{EP: traffic.RDM, Sec: sec, Keys: mine[sec]})
					s := incasting(4, 20000, time.Second) // on a busy machine, too, each sender has a turn
					s.Mode, s.Progress = mode, progress
					r := run(t, c, s).Run
					if len(r.Streams) != 4 || r.Incast == nil || r.Incast.Rounds < 2 || r.Incast.Round == nil || r.Incast.Round.P50 <= 0 {
						t.Fatalf("%+v, %+v", r, r.Incast)
					}
					sum := int64(0)
					for _, st := range r.Streams {
						if sum += st.Msgs; st.Rtx == nil || st.ECN == nil || st.Trimmed == nil || st.Msgs == 0 {
							t.Errorf("%+v", st)
						}
					}
					// Only the streams are measured; each round adds one block per sender.
					least := sum + 4*r.Incast.Rounds
					if d := r.DataCheck; d.OK < least || d.Wrong != 0 || *r.Lost != 0 || sum != r.Msgs {
						t.Errorf("data check %+v, want at least %d; %d of streams; lost %d", d, least, sum, *r.Lost)
					}
					if j := r.Incast.Jain; j == nil || *j < 0.25 || *j > 1 {
						t.Errorf("jain %v", j)
					}
				})
			}
		}
	}
}

// One receiver serves all senders and tells their messages apart, even if bursts are lost
// and sent again.
func TestIncastLossy(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{Impair: &relay.Faults{Loss: 0.02, Reorder: 0.02, Duplicate: 0.02, Corrupt: 0.01, Seed: 5}})
	r := run(t, c, incasting(6, 30000, 600*time.Millisecond)).Run
	rtx := uint64(0)
	for _, st := range r.Streams {
		rtx += *st.Rtx
	}
	if r.DataCheck.Wrong != 0 || *r.Lost != 0 || rtx == 0 || r.DataCheck.OK == 0 || r.Transport.Rtx() != rtx {
		t.Errorf("%+v, lost %d, %d sent again, of senders %d", r.DataCheck, *r.Lost, r.Transport.Rtx(), rtx)
	}
}

func TestIncastInterrupted(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, half := range []time.Duration{time.Hour, 50 * time.Millisecond} { // during the streams, during the rounds
		ctx, cancel := context.WithCancel(context.Background())
		s := incasting(3, 10000, 2*half)
		if half < time.Hour {
			s.Time = time.Hour
		}
		begin := time.Now()
		hooks := Hooks{Every: 20 * time.Millisecond, Interval: func(n int64, at time.Duration) {
			if n > 100 {
				cancel()
			}
		}}
		res, err := c.Run(ctx, s, hooks)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
			continue
		}
		if r := res.Run; r.Msgs == 0 || r.DataCheck.Wrong != 0 || *r.Lost != 0 || r.PeerTransport == nil {
			t.Errorf("%+v", r)
		}
		if d := time.Since(begin); d > grace+time.Second {
			t.Errorf("it took %v", d)
		}
	}
}

// Each congestion control moves everything, over sockets, from one sender and from several.
func TestCongestionControls(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, cc := range []string{traffic.NSCC, traffic.RCCC, traffic.BothCC} {
		for _, mode := range []string{"rud", "rod"} {
			one := base(traffic.BW, traffic.TSend, 100_000)
			one.Mode = mode
			for name, s := range map[string]traffic.Spec{"bw": one, "incast": incasting(4, 20000, 300*time.Millisecond)} {
				s.CC = cc
				t.Run(name+"/"+mode+"/"+cc, func(t *testing.T) {
					r := run(t, c, s).Run
					if r.DataCheck.Wrong != 0 || r.DataCheck.OK == 0 || *r.Lost != 0 {
						t.Errorf("data check %+v, lost %d", r.DataCheck, *r.Lost)
					}
				})
			}
		}
	}
}
