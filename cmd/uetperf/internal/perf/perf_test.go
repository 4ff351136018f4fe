package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/uet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, cfg ServerConfig) netip.AddrPort {
	t.Helper()
	if cfg.AnyPort = true; !cfg.Listen.IsValid() {
		cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	}
	if cfg.Log == nil {
		cfg.Log = func(f string, args ...any) { t.Logf("server: "+f, args...) }
	}
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Serve(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		s.Close()
	})
	return s.Addrs()[0]
}

func dial(t *testing.T, addr netip.AddrPort, cfg ClientConfig) *Client {
	t.Helper()
	c, err := Dial(context.Background(), addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// base returns a Spec for a test to change.
func base(test, op string, size int64) traffic.Spec {
	return traffic.Spec{
		Test: test, Op: op, Mode: "rud", Complete: "transmit", Size: size, Iters: 200, Warmup: 10, Window: 16, Parallel: 1, Check: true,
		Progress: "auto", CRC: true, CC: "nscc", GSO: "auto", Seed: 7, PeerTimeout: 8 * time.Second,
	}
}

func run(t *testing.T, c *Client, s traffic.Spec) *Result {
	t.Helper()
	res, err := c.Run(context.Background(), s, Hooks{})
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return res
}

// The times of messages that the server sends come here, too.
func TestRunTimesOfServer(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := base(traffic.BW, traffic.TSend, 600)
	s.Reverse, s.Parallel = true, 2
	if r := run(t, c, s).Run; r.Latency == nil || !r.Latency.Completion || r.Latency.P50 <= 0 {
		t.Errorf("%+v", r.Latency)
	}
}

func TestRunEveryTest(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, test := range []string{traffic.Ping, traffic.Lat, traffic.BW, traffic.Rate} {
		for _, op := range []string{traffic.Send, traffic.TSend, traffic.Inject} {
			for _, mode := range []string{"rud", "rod"} {
				for _, level := range []string{"inject", "transmit", "delivery"} {
					for _, progress := range []string{"auto", "manual"} {
						s := base(test, op, 600)
						s.Mode, s.Complete, s.Progress = mode, level, progress
						t.Run(test+"/"+op+"/"+mode+"/"+level+"/"+progress, func(t *testing.T) {
							r := run(t, c, s).Run
							// A stream's clock starts with a batch of completions.
							if r.Msgs > s.Iters || r.Msgs < s.Iters-64 || r.Lost == nil || *r.Lost != 0 {
								t.Errorf("%d messages, lost %v", r.Msgs, r.Lost)
							}
							want := s.Iters + s.Warmup
							if s.Pingpong() {
								want *= 2
							}
							if r.DataCheck.OK != want || r.DataCheck.Wrong != 0 {
								t.Errorf("data check %+v, want %d ok", r.DataCheck, want)
							}
							at := "sender"
							if op == traffic.Inject || level == "inject" {
								at = "receiver" // the sender's completions do not mean arrival
							}
							if !s.Pingpong() && r.MeasuredAt != at {
								t.Errorf("measured at the %s", r.MeasuredAt)
							}
							if (s.Pingpong() || s.Times()) != (r.Latency != nil) || s.Pingpong() == (r.GoodputBPS != nil) {
								t.Errorf("measured %+v", r)
							}
						})
					}
				}
			}
		}
	}
}

// testKeys returns keys for a server and a client.
func testKeys(t *testing.T) (server Keys, client map[string]*uet.Security) {
	t.Helper()
	dir := t.TempDir()
	if _, err := keys.Make(dir, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	load := func(s *uet.Security, err error) *uet.Security {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("%v: %v", s, err)
			}
		})
		return s
	}
	server = Keys{PSK: load(keys.LoadPSK(dir)), TLS: load(keys.LoadTLS(dir, "", keys.Server))}
	return server, map[string]*uet.Security{traffic.PSK: load(keys.LoadPSK(dir)), traffic.TLS: load(keys.LoadTLS(dir, "", keys.Client))}
}

// Every service runs every test, with the security that it names.
func TestRunEveryService(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, v := range services {
		t.Run(v.String(), func(t *testing.T) {
			var sealed, clear atomic.Int64
			c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec], Tap: func(d *uet.Tapped) {
				if bytes.Contains(d.Wire, []byte(`"session"`)) {
					clear.Add(1)
				} else {
					sealed.Add(1)
				}
			}})
			if (c.Connected() > 0) != (v.ep == traffic.MSG) {
				t.Errorf("connected in %v", c.Connected())
			}
			for _, test := range []string{traffic.Ping, traffic.Lat, traffic.BW, traffic.Rate} {
				for _, op := range []string{traffic.Send, traffic.TSend, traffic.Inject} {
					s := base(test, op, 600)
					s.CRC = v.sec == traffic.Off
					if !s.Pingpong() {
						s.Bidir, s.Parallel = op == traffic.Send, 2
					}
					r := run(t, c, s).Run
					want := (s.Iters + s.Warmup) * int64(s.Parallel)
					if s.Pingpong() || s.Bidir {
						want *= 2
					}
					if r.DataCheck.OK != want || r.DataCheck.Wrong != 0 || *r.Lost != 0 {
						t.Errorf("%s %s: data check %+v, want %d ok, lost %d", test, op, r.DataCheck, want, *r.Lost)
					}
					if (r.ConnectNS > 0) != (v.ep == traffic.MSG) || r.ConnectNS > r.SetupNS {
						t.Errorf("%s %s: connected in %d ns of %d", test, op, r.ConnectNS, r.SetupNS)
					}
				}
			}
			if (clear.Load() == 0) != (v.sec != traffic.Off) || v.sec != traffic.Off && sealed.Load() == 0 {
				t.Errorf("%d datagrams show the control exchange, %d do not", clear.Load(), sealed.Load())
			}
		})
	}
}

// A secured test never uses a control channel that others could forge, nor the other way
// round.
func TestControlIsSecuredAsTheTest(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for i, v := range services {
		c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec]})
		for _, other := range services {
			if other == v {
				continue
			}
			s := base(traffic.BW, traffic.Send, 100)
			s.EP, s.Sec = other.ep, other.sec
			i++
			if err := c.send(&message{Type: mPrepare, Run: 100 + i, Spec: &s, Addrs: []netip.AddrPort{c.Local()}}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.await(context.Background(), 5*time.Second, mReady); err == nil || !strings.Contains(err.Error(), "is not run") {
				t.Errorf("%v over a channel of %v: %v", other, v, err)
			}
		}
		run(t, c, base(traffic.Lat, traffic.Send, 8))
	}
}

// Requests for unexpected connections are rejected with a reason, and their number is
// bounded.
func TestServerRefusesConnections(t *testing.T) {
	addr := serve(t, ServerConfig{MaxClients: 2})
	c := dial(t, addr, ClientConfig{EP: traffic.MSG})
	stray := func(to call) error {
		t.Helper()
		hints := services[1].hints(ctlHints(time.Second), nil, 5*time.Second, 0)
		info, err := infoTo(c.server, "", hints)
		if err != nil {
			t.Fatal(err)
		}
		e, err := openEnd(info, 16)
		if err != nil {
			t.Fatal(err)
		}
		defer e.close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return e.connect(ctx, c.server, to)
	}
	for want, to := range map[string]call{
		"does not know this client":             {V: ProtocolVersion, Session: c.id + 1, Run: 1},
		"no such stream waits for a connection": {V: ProtocolVersion, Session: c.id, Run: 1},
		"no such stream makes more connections": {V: ProtocolVersion, Session: c.id, Run: 1, Again: true},
		"version mismatch":                      {V: ProtocolVersion + 1, Session: c.id},
	} {
		if err := stray(to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", to, err, want)
		}
	}
	// Clients of all kinds count.
	dial(t, addr, ClientConfig{})
	if err := stray(call{V: ProtocolVersion, Session: 5}); err == nil || !strings.Contains(err.Error(), "busy with 2 clients") {
		t.Errorf("a third client: %v", err)
	}
	run(t, c, base(traffic.BW, traffic.Send, 100))
}

func TestRunLossy(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{Impair: &relay.Faults{Loss: 0.05, Reorder: 0.01, Duplicate: 0.01, Corrupt: 0.01, Seed: 3}})
	s := base(traffic.BW, traffic.Send, 64<<10)
	res := run(t, c, s)
	t.Logf("%+v", res.Relay)
	if res.Relay.Lost == 0 || res.Run.Transport.Rtx() == 0 || res.Run.DataCheck.OK != s.Iters+s.Warmup {
		t.Errorf("relay %+v, run %+v", res.Relay, res.Run)
	}
}

func TestRunInterrupted(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, change := range []func(*traffic.Spec){
		func(*traffic.Spec) {}, func(s *traffic.Spec) { s.Reverse = true }, func(s *traffic.Spec) { s.Bidir = true }, func(s *traffic.Spec) { s.Test = traffic.Lat }, func(s *traffic.Spec) { s.Op = traffic.Inject },
		func(s *traffic.Spec) { s.Test, s.Interval = traffic.Ping, time.Hour },
	} {
		s := base(traffic.BW, traffic.TSend, 1000)
		s.Iters, s.Time, s.Warmup = 0, time.Hour, 0
		change(&s)
		ctx, cancel := context.WithCancel(context.Background())
		var hooks Hooks
		hooks.Every, hooks.Interval = 20*time.Millisecond, func(n int64, _ time.Duration) {
			if n > 0 {
				cancel()
			}
		}
		begin := time.Now()
		res, err := c.Run(ctx, s, hooks)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		if r := res.Run; r.Msgs == 0 || r.DataCheck.Wrong != 0 || r.DataCheck.OK == 0 || r.PeerTransport == nil || *r.Lost != 0 {
			t.Errorf("%+v: %+v", s, r)
		}
		if d := time.Since(begin); d > grace {
			t.Errorf("%+v: ended after %v", s, d)
		}
	}
	// The session can still be used.
	run(t, c, base(traffic.Lat, traffic.Send, 8))
}

// A server that is stopped says so, and its clients do not wait for it.
func TestServerIsStopped(t *testing.T) {
	server, client := testKeys(t)
	for _, svc := range services {
		t.Run(svc.String(), func(t *testing.T) {
			s, err := NewServer(ServerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), AnyPort: true, Keys: server})
			if err != nil {
				t.Fatal(err)
			}
			c := dial(t, s.Addrs()[0], ClientConfig{EP: svc.ep, Sec: svc.sec, Keys: client[svc.sec]})
			spec := base(traffic.BW, traffic.Send, 600)
			spec.Iters, spec.Time = 0, time.Minute
			spec.CRC = svc.sec == traffic.Off
			var stop sync.Once
			var stopping sync.WaitGroup
			_, err = c.Run(t.Context(), spec, Hooks{Every: time.Millisecond, Interval: func(n int64, _ time.Duration) {
				if n > 0 {
					stop.Do(func() { stopping.Go(s.Close) })
				}
			}})
			stopping.Wait()
			if want := svc.at(s.Addrs()[0]).String() + " ended the session: the server was stopped"; !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want %s", err, want)
			}
			// No client has to find out by waiting for an answer.
			if !isClosed(c.lost.is) || c.lost.why != err {
				t.Errorf("the client lost the server by %v", c.lost.why)
			}
		})
	}
}

// After a server has ended a session, a client takes nothing that it says for an answer: a
// late message is answered with "unknown client".
func TestSessionEndIsTheLastWord(t *testing.T) {
	addr := serve(t, ServerConfig{})
	c := dial(t, addr, ClientConfig{})
	c.message(nil, addr, &message{Session: c.id, Type: mFail, Error: sessionEnded + "so it is"})
	c.message(nil, addr, &message{V: ProtocolVersion, Session: c.id, Type: mRefuse, Error: "who is it?"})
	if _, err := c.await(t.Context(), time.Minute, mReady); !errors.Is(err, ErrUnreachable) || len(c.in) != 0 {
		t.Errorf("%v, %d messages left", err, len(c.in))
	}
}

func TestRunStreams(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := base(traffic.BW, traffic.TSend, 5000)
	s.Parallel, s.Bidir = 3, true
	r := run(t, c, s).Run
	if len(r.Streams) != 6 || r.DataCheck.OK != 6*(s.Iters+s.Warmup) || r.DataCheck.Wrong != 0 || *r.Lost != 0 {
		t.Errorf("%+v", r)
	}
	sum := int64(0)
	for _, st := range r.Streams {
		sum += st.Msgs
	}
	if sum != r.Msgs || r.Bytes != sum*s.Size {
		t.Errorf("%d messages in streams, %d in all, %d bytes", sum, r.Msgs, r.Bytes)
	}
}

// R-F9: neither end allocates per message; both run in this process.
func TestRunAllocatesNothing(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("counts allocations of a long run")
	}
	c := dial(t, serve(t, ServerConfig{Log: func(string, ...any) {}}), ClientConfig{})
	for _, test := range []string{traffic.Lat, traffic.BW, traffic.Rate, traffic.RR} {
		for _, op := range []string{traffic.Send, traffic.TSend, traffic.Inject} {
			if (test == traffic.RR || test == traffic.BW) && op == traffic.Inject {
				continue
			}
			for _, progress := range []string{"manual", "auto"} {
				for _, check := range []bool{false, true} {
					s := base(test, op, 64)
					s.Window, s.Check, s.Progress = 64, check, progress
					mallocs := func(iters int64) uint64 {
						s.Iters = iters
						var a, b runtime.MemStats
						runtime.ReadMemStats(&a)
						run(t, c, s)
						runtime.ReadMemStats(&b)
						return b.Mallocs - a.Mallocs
					}
					mallocs(1000)
					// The cost of encoding a histogram depends on its values, and the number of samples
					// and wake-ups on the time that the run takes.
					limit := 0.5
					if progress == "auto" {
						limit = 3 // each sleep arms a timer
					}
					// Both runs have the same fixed cost. A busy machine adds to the difference and never
					// reduces the cost of a message.
					per := math.Inf(1)
					for try := 0; per > limit && try < 3; try++ {
						few, many := mallocs(1000), mallocs(11000)
						per = min(per, (float64(many)-float64(few))/10000)
					}
					if per > limit {
						t.Errorf("%s %s %s, check %v: %.3f allocations per message", test, op, progress, check, per)
					}
				}
			}
		}
	}
}

// The series covers everything that both ends counted.
func TestRunSeries(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{Impair: &relay.Faults{Loss: 0.02, Seed: 3}})
	for name, change := range map[string]func(*traffic.Spec){
		"bw": func(*traffic.Spec) {}, "reverse": func(s *traffic.Spec) { s.Reverse = true }, "load": func(s *traffic.Spec) { *s = exchanging(traffic.Load, traffic.TSend, 20000, 8) }, "lat": func(s *traffic.Spec) { s.Test = traffic.Lat },
		"incast": func(s *traffic.Spec) { *s = incasting(2, 20000, time.Second) },
	} {
		s := base(traffic.BW, traffic.TSend, 20000)
		change(&s)
		s.Iters, s.Time, s.Sample, s.Warmup = 0, 400*time.Millisecond, 20*time.Millisecond, 0
		var r record.Run
		var sum record.Sample
		// On a slow host it takes longer to get enough samples and losses.
		for enough := false; !enough; s.Time *= 2 {
			r = run(t, c, s).Run
			last, cwnd, rtt := int64(0), 0, 0
			for _, x := range r.Series {
				if x.AtNS <= last {
					t.Errorf("%s: a sample at %d after one at %d", name, x.AtNS, last)
				}
				last = x.AtNS
				if x.CwndBytes > 0 {
					cwnd++
				}
				if x.RTTNS > 0 {
					rtt++
				}
			}
			sum = sumOf(r.Series)
			n := len(r.Series)
			enough = n >= 10 && cwnd >= n/2 && rtt >= n/2 && sum.Rtx > 0
			if !enough && s.Time > 10*time.Second || last < int64(s.Time)*9/10 {
				t.Fatalf("%s: %d samples, %d with a window, %d with a round trip, the last at %v; %d resent", name, n, cwnd, rtt, time.Duration(last), sum.Rtx)
			}
		}
		if sum.Msgs < r.Msgs || sum.Bytes != sum.Msgs*s.Size {
			t.Errorf("%s: %d messages, %d in the series (%d bytes)", name, r.Msgs, sum.Msgs, sum.Bytes)
		}
		// The counters are read after the last sample, and a probe may come in between.
		if all := r.Transport.Rtx() + r.PeerTransport.Rtx(); sum.Rtx > all || sum.Rtx+all/10+5 < all {
			t.Errorf("%s: %d resent, %d in the series", name, all, sum.Rtx)
		}
	}
	// A test that is too short has no series.
	if r := run(t, c, base(traffic.Lat, traffic.TSend, 8)).Run; r.DurationNS < int64(traffic.SampleLeast) && len(r.Series) > 2 {
		t.Errorf("%d samples in %v", len(r.Series), time.Duration(r.DurationNS))
	}
}

func TestServerRefuses(t *testing.T) {
	addr := serve(t, ServerConfig{MaxClients: 1})
	c := dial(t, addr, ClientConfig{})
	_, err := Dial(context.Background(), addr, ClientConfig{})
	if err == nil || !strings.Contains(err.Error(), "the server is busy with 1 client") || errors.Is(err, ErrUnreachable) {
		t.Errorf("second client: %v", err)
	}
	// A test sends data only to the host that asked for it.
	s := base(traffic.BW, traffic.Send, 100)
	if err := c.send(&message{Type: mPrepare, Run: 99, Spec: &s, Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.2:99")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.await(context.Background(), time.Second, mReady); err == nil || !strings.Contains(err.Error(), "is not of the client") {
		t.Errorf("foreign address: %v", err)
	}
	// The client's own check would refuse this specification.
	s.Parallel = 1 << 20
	if err := c.send(&message{Type: mPrepare, Run: 100, Spec: &s}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.await(context.Background(), time.Second, mReady); err == nil || !strings.Contains(err.Error(), "-P ") {
		t.Errorf("absurd specification: %v", err)
	}
	for want, bad := range map[string]traffic.Spec{
		"--rate -1/s is not": exchanging(traffic.Load, traffic.TSend, 8, 8), "incast of 1 senders": incasting(1, 8, time.Second), "--reply ": exchanging(traffic.RR, traffic.TSend, 8, 1<<40), "needs rdm endpoints": incasting(2, 8, time.Second),
		"a sample each": base(traffic.BW, traffic.Send, 8), "test \"soak\" is not one of": base("soak", traffic.Send, 8), "arrivals \"often\"": exchanging(traffic.Load, traffic.TSend, 8, 8),
	} {
		switch {
		case strings.HasPrefix(want, "--rate"):
			bad.Rate = -1
		case strings.HasPrefix(want, "needs"):
			bad.EP = traffic.MSG
		case strings.HasPrefix(want, "a sample"):
			bad.Sample = 1
		case strings.HasPrefix(want, "arrivals"):
			bad.Arrivals = "often"
		}
		if err := c.send(&message{Type: mPrepare, Run: 101, Spec: &bad, Addrs: []netip.AddrPort{c.Local()}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.await(context.Background(), time.Second, mReady); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// Messages about a leg that the run does not have.
	_ = c.send(&message{Type: mSent, Run: 101, Leg: 3, N: 5})
	if r, err := c.Resources(context.Background()); err != nil || r.Heap <= 0 || r.Goroutines <= 0 {
		t.Errorf("resources %+v, %v", r, err)
	}
	// Messages for no session, of no known type, and data that is no message.
	_ = c.send(&message{Type: "nonsense"})
	_ = c.send(&message{Type: mSent, Leg: -5, N: 1 << 60})
	_ = c.ctl.send(c.server, &message{V: ProtocolVersion, Session: c.id + 1, Type: mGo}, false)
	run(t, c, base(traffic.BW, traffic.Send, 100))
}

// A server for one client refuses a second one, whose test would end with the first.
func TestServerOnce(t *testing.T) {
	addr := serve(t, ServerConfig{Once: true})
	c := dial(t, addr, ClientConfig{})
	if _, err := Dial(context.Background(), addr, ClientConfig{}); err == nil || !strings.Contains(err.Error(), "serves one client (--once), and has it") {
		t.Errorf("second client: %v", err)
	}
	run(t, c, base(traffic.Lat, traffic.Send, 8))
}

// F12: a busy host may give a port to a client soon after another had it. To the server
// that is a peer that restarted. Its first answer, be it a refusal or a welcome, must still
// arrive.
func TestDialFromPortUsedBefore(t *testing.T) {
	addr := serve(t, ServerConfig{MaxClients: 1})
	holder := dial(t, addr, ClientConfig{})
	port := freePort(t)
	for range 3 {
		if _, err := Dial(context.Background(), addr, ClientConfig{port: port, Timeout: 3 * time.Second}); err == nil || !strings.Contains(err.Error(), "busy with 1 client") {
			t.Fatalf("busy server: %v", err)
		}
	}
	if err := holder.send(&message{Type: mBye}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var c *Client
		var err error
		for deadline := time.Now().Add(5 * time.Second); ; { // until the server has read the goodbye
			c, err = Dial(context.Background(), addr, ClientConfig{port: port, Timeout: 3 * time.Second})
			if err == nil || !strings.Contains(err.Error(), "busy") || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			t.Fatalf("free server: %v", err)
		}
		run(t, c, base(traffic.Lat, traffic.Send, 8))
		c.Close()
	}
}

// freePort returns a free UDP port of the loopback.
func freePort(t *testing.T) uint16 {
	t.Helper()
	s, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return uint16(s.LocalAddr().(*net.UDPAddr).Port)
}

func TestVersionMismatch(t *testing.T) {
	addr := serve(t, ServerConfig{})
	_, err := dialVersion(context.Background(), addr, ClientConfig{}, ProtocolVersion+1)
	if err == nil || !strings.Contains(err.Error(), "version mismatch: the server (uetperf "+Version+") speaks protocol 1, the client 2") {
		t.Errorf("a client of another version: %v", err)
	}
}

func TestDialNobody(t *testing.T) {
	// Nothing listens there, and the ICMP answer is evidence enough.
	_, err := Dial(context.Background(), netip.MustParseAddrPort("127.0.0.1:9"), ClientConfig{})
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("closed port: %v", err)
	}
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begin := time.Now()
	_, err = Dial(context.Background(), silent.LocalAddr().(*net.UDPAddr).AddrPort(), ClientConfig{Timeout: 300 * time.Millisecond})
	if d := time.Since(begin); !errors.Is(err, ErrUnreachable) || d > 2*time.Second {
		t.Errorf("silent port: %v after %v", err, d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = Dial(ctx, silent.LocalAddr().(*net.UDPAddr).AddrPort(), ClientConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// -n is the number of measured messages, even if some complete together.
func TestRunMeasuresWhatWasAsked(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for name, change := range map[string]func(*traffic.Spec){
		"one way":           func(*traffic.Spec) {},
		"both ways":         func(s *traffic.Spec) { s.Bidir = true },
		"injected":          func(s *traffic.Spec) { s.Op, s.Warmup, s.Parallel = traffic.Inject, 0, 4 },
		"injected, back":    func(s *traffic.Spec) { s.Op, s.Warmup, s.Reverse = traffic.Inject, 0, true },
		"inject complete":   func(s *traffic.Spec) { s.Complete, s.Warmup, s.Reverse = "inject", 2, true },
		"injected, warm-up": func(s *traffic.Spec) { s.Op, s.Bidir = traffic.Inject, true },
	} {
		s := base(traffic.Rate, traffic.Send, 8)
		s.Iters, s.Warmup, s.Window, s.Progress = 10, 10, 512, "manual"
		change(&s)
		want := s.Iters * int64(s.Parallel)
		if s.Bidir {
			want *= 2
		}
		for range 20 {
			r := run(t, c, s).Run
			if r.Msgs != want || r.DurationNS < 1000 || r.MsgsPerS == nil {
				t.Errorf("%s: %d messages in %d ns, want %d", name, r.Msgs, r.DurationNS, want)
				break
			}
		}
	}
}

// A server that answered before is not asked again.
func TestSilentServer(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:4793")
	for open, want := range map[bool]string{
		true:  "no answer from 192.0.2.1:4793 for 7s",
		false: "no answer from 192.0.2.1:4793 within 7s: is `uetperf serve` running there, and UDP port 4793 open in firewalls? `uetperf doctor 192.0.2.1` says which, or that NAT is in between",
	} {
		c := &Client{server: at, svc: services[0], dialed: dialed{open: open}}
		if err := c.silent(7 * time.Second); err.Error() != want || !errors.Is(err, ErrUnreachable) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := &Client{server: netip.MustParseAddrPort("[2001:db8::1]:901"), svc: services[1]}
	if got := c.doctor(); got != "[2001:db8::1]:900" {
		t.Errorf("the doctor is sent to %s", got)
	}
}

// 0.0.0.0 means every IPv4 address and no other.
func TestListenOnIPv4(t *testing.T) {
	s, err := NewServer(ServerConfig{Listen: netip.MustParseAddrPort("0.0.0.0:0"), AnyPort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, a := range s.Addrs() {
		if !a.Addr().Is4() {
			t.Errorf("it serves at %v", a)
		}
	}
}

func TestListenWhereTheInterfaceIsNot(t *testing.T) {
	infos, err := Infos(&uet.Info{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(infos, func(in *uet.Info) bool { return !in.SrcAddr.IP.IsLoopback() })
	if i < 0 {
		t.Skip("there is one interface")
	}
	_, err = NewServer(ServerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), AnyPort: true, Domain: infos[i].Domain.Name})
	if want := "127.0.0.1 is no address of interface \"" + infos[i].Domain.Name + "\", which has: "; !errors.Is(err, ErrUsage) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A link-local address is given with the zone of the host that uses it.
func TestLinkLocal(t *testing.T) {
	t.Parallel()
	infos, err := Infos(&uet.Info{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(infos, func(in *uet.Info) bool { return in.SrcAddr.IP.Is6() && in.SrcAddr.IP.IsLinkLocalUnicast() })
	if i < 0 {
		t.Skip("no link-local address is here")
	}
	at := serve(t, ServerConfig{Listen: netip.AddrPortFrom(infos[i].SrcAddr.IP, 0)})
	c := dial(t, at, ClientConfig{})
	if res := run(t, c, base(traffic.Lat, traffic.Send, 8)); res.Run.Msgs != 200 {
		t.Errorf("%+v", res.Run)
	}
	c = dial(t, at, ClientConfig{EP: traffic.MSG})
	if res := run(t, c, base(traffic.Lat, traffic.Send, 8)); res.Run.Msgs != 200 {
		t.Errorf("a connection: %+v", res.Run)
	}
	c = dial(t, at, ClientConfig{Impair: &relay.Faults{}})
	if res := run(t, c, base(traffic.Lat, traffic.Send, 8)); res.Run.Msgs != 200 {
		t.Errorf("through a relay: %+v", res.Run)
	}
}

func TestResolve(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:4793", "127.0.0.1:99": "127.0.0.1:99", "::1": "[::1]:4793", "[::1]": "[::1]:4793", "[::1]:99": "[::1]:99", "::ffff:127.0.0.1": "127.0.0.1:4793",
		"localhost:99": "127.0.0.1:99",
	} {
		if got, err := Resolve(context.Background(), in, Port, ""); err != nil || got.String() != want {
			t.Errorf("Resolve(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]error{
		"": ErrUsage, "h:0": ErrUsage, "h:x": ErrUsage, "a b": ErrUsage, "1:2:3": ErrUsage, "nosuch.invalid": ErrUnreachable,
		"0.0.0.0": ErrUsage, "[::]:99": ErrUsage, "224.0.0.1": ErrUsage, "255.255.255.255": ErrUsage, "fe80::1": ErrUsage, "[::1": ErrUsage, "::1]": ErrUsage,
	} {
		if got, err := Resolve(context.Background(), in, Port, ""); !errors.Is(err, want) {
			t.Errorf("Resolve(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
}

// An address of a link needs no zone where the interface is named, and keeps the one it has.
func TestResolveOnInterface(t *testing.T) {
	for in, want := range map[string]string{
		"fe80::1": "[fe80::1%eth7]:4793", "[fe80::1]:99": "[fe80::1%eth7]:99", "fe80::1%eth1": "[fe80::1%eth1]:4793", "::1": "[::1]:4793", "127.0.0.1": "127.0.0.1:4793",
	} {
		got, err := Resolve(context.Background(), in, Port, "eth7")
		if err != nil || got.String() != want {
			t.Errorf("Resolve(%q) = %v, %v, want %v", in, got, err, want)
		}
		if all, err := ResolveAll(context.Background(), in, Port, "eth7"); err != nil || len(all) != 1 || all[0] != got {
			t.Errorf("ResolveAll(%q) = %v, %v, want %v", in, all, err, got)
		}
	}
}

// An error explains that a supposed port was read as a part of an IPv6 address.
func TestBracketed(t *testing.T) {
	no := unreachablef("no answer")
	for in, want := range map[string]string{
		"::1:4793": "no answer; if 4793 is the port, write [::1]:4793", "2001:db8::7:99": "no answer; if 99 is the port, write [2001:db8::7]:99",
		"2001:db8::7": "no answer", "::1": "no answer", "[::1:4793]": "no answer", "[::1]:4793": "no answer", "::1:ab": "no answer", "::1:0": "no answer",
		"127.0.0.1:4793": "no answer", "host": "no answer", "1:2:3:4:5:6:7:8": "no answer",
	} {
		if got := Bracketed(in, no); got.Error() != want || !errors.Is(got, ErrUnreachable) {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
	if err := Bracketed("::1:4793", nil); err != nil {
		t.Error(err)
	}
	if _, err := Resolve(context.Background(), "fe80::1:4793", Port, ""); !errors.Is(err, ErrUsage) || !strings.HasSuffix(err.Error(), "; if 4793 is the port, write [fe80::1]:4793") {
		t.Error(err)
	}
}

// Clients that come and go leave a bounded number of addresses, and an address that is in
// use again stays.
func TestAddressesAreBounded(t *testing.T) {
	info, err := infoTo(netip.MustParseAddrPort("127.0.0.1:9"), "", ctlHints(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCtl(services[0], info, netip.AddrPort{}, func(*ctl, netip.AddrPort, *message) {}, func(*ctl, netip.AddrPort, undelivered, error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(1000+i))
	}
	for i := range 3 * restMax {
		h, err := c.end.insert(at(i))
		if err != nil {
			t.Fatal(err)
		}
		p := &ctlPeer{h: h}
		c.peers[at(i)] = p
		c.tidy(at(i), p)
		if i == restMax/2 {
			p.keep, p.resting = true, false
		}
	}
	if n := len(c.peers); n != restMax+1 || len(c.rest) != restMax {
		t.Errorf("%d addresses, %d at rest, want %d of them and one in use", n, len(c.rest), restMax)
	}
	if p := c.peers[at(restMax/2)]; p == nil {
		t.Error("an address in use is gone")
	} else if _, err := c.end.av.Lookup(p.h); err != nil {
		t.Errorf("an address in use: %v", err)
	}
}

func TestOtherPort(t *testing.T) {
	for _, c := range []struct {
		node string
		port uint16
		want string
	}{{"127.0.0.1", 4793, "127.0.0.1:4799"}, {"", 4793, ":4799"}, {"::1", 80, "[::1]:1024"}, {"", 65530, ":0"}} {
		if got := otherPort(c.node, c.port); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	at := netip.MustParseAddrPort("127.0.0.1:80")
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("uet: enable: bind: address already in use: %w", fi.EADDRINUSE), "cannot listen on 127.0.0.1:80: address already in use"},
		{fmt.Errorf("uet: enable: bind: permission denied: %w", fi.EACCES), "cannot listen on 127.0.0.1:80: permission denied: ports below 1024 are of root: take another one by --listen"},
		{errors.New("strange"), "cannot listen on 127.0.0.1:80: strange"},
		{fi.EADDRNOTAVAIL, "cannot listen on 127.0.0.1:80: cannot assign requested address"},
	} {
		if got := noListening(at, c.err); got.Error() != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}

// Streams that measure together lose no messages.
func TestStreamsTogether(t *testing.T) {
	s := base(traffic.BW, traffic.Send, 1000)
	s.Iters, s.Time, s.Parallel = 0, time.Second, 2
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, change := range []func(*traffic.Spec){func(*traffic.Spec) {}, func(s *traffic.Spec) { s.Reverse = true }, func(s *traffic.Spec) { s.Bidir = true }, func(s *traffic.Spec) { s.Test, s.Op, s.Warmup = traffic.Rate, traffic.Inject, 0 }} {
		s := s
		s.Parallel, s.Time = 4, 50*time.Millisecond
		change(&s)
		r := run(t, c, s).Run
		if len(r.Streams) < 4 || r.Msgs == 0 || *r.Lost != 0 || r.DataCheck.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestOneRoundTripIsOneValue(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := base(traffic.Lat, traffic.Send, 64<<10)
	s.Iters, s.Warmup = 1, 0
	if l := run(t, c, s).Run.Latency; l.Min != l.P50 || l.P50 != l.Max || l.Mean != float64(l.Max) {
		t.Errorf("%+v", l)
	}
}

func TestDataPorts(t *testing.T) {
	// All that goes to the server and comes from the client is between ports that a firewall
	// can be told to open, whatever the test.
	sk, ck := testKeys(t)
	here, there := portrange.Range{First: 29100, Last: 29119}, portrange.Range{First: 29120, Last: 29139}
	control := freePort(t)
	cfg := ServerConfig{Listen: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), control), Keys: sk, DataPorts: there}
	addr := serve(t, cfg)
	var mu sync.Mutex
	seen := map[string]int{}
	tap := func(d *uet.Tapped) {
		mu.Lock()
		defer mu.Unlock()
		l, r := d.Local.Port(), d.Remote.Port()
		switch {
		case l < here.First || l > here.Last:
			seen[fmt.Sprintf("local port %d", l)]++
		case r >= there.First && r <= there.Last:
			seen["data"]++
		case r >= control && int(r) < int(control)+Ports:
			seen["control"]++
		default:
			seen[fmt.Sprintf("remote port %d", r)]++
		}
	}
	for _, c := range []ClientConfig{{}, {EP: traffic.MSG}, {EP: traffic.MSG, Sec: traffic.TLS, Keys: ck[traffic.TLS]}, {Sec: traffic.PSK, Keys: ck[traffic.PSK]}, {Impair: &relay.Faults{}}} {
		c.DataPorts, c.Tap = here, tap
		s := base(traffic.BW, traffic.TSend, 600)
		s.EP, s.Sec, s.Paths, s.Parallel, s.Iters = c.EP, c.Sec, 3, 2, 50
		if c.Impair != nil {
			c.Tap, s.Paths = nil, 1 // it sees the relay in place of the server
		}
		cl, err := Dial(context.Background(), addr, c)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, cl, s).Run; r.DataCheck.OK == 0 {
			t.Errorf("%+v: %+v", c, r.DataCheck)
		}
		f, err := cl.Facts(context.Background())
		if err != nil || f.DataPorts != there.String() {
			t.Errorf("%+v: the server says %q of its ports, %v", c, f.DataPorts, err)
		}
		cl.Close()
	}
	for what := range seen {
		if what != "data" && what != "control" {
			t.Errorf("%d datagrams have %s", seen[what], what)
		}
	}
	if seen["data"] == 0 || seen["control"] == 0 {
		t.Errorf("seen: %v", seen)
	}

	// A range that is too small says so.
	c := dial(t, addr, ClientConfig{DataPorts: portrange.Range{First: 29140, Last: 29141}})
	s := base(traffic.BW, traffic.TSend, 600)
	s.Parallel = 4
	if _, err := c.Run(context.Background(), s, Hooks{}); err == nil || !strings.Contains(err.Error(), "29140-29141") {
		t.Errorf("four endpoints and two ports: %v", err)
	}
}

// A server that may take any port takes one whose port for probes is free.
func TestAnyPortHasProbes(t *testing.T) {
	const more = 8
	first := uint16(0)
	for int(first)+more > 1<<16-1-ProbePort || first == 0 {
		taken, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		first = taken.LocalAddr().(*net.UDPAddr).AddrPort().Port() - uint16(ProbePort)
	}
	for range 4 * more {
		s, err := NewServer(ServerConfig{
			Listen: netip.MustParseAddrPort("127.0.0.1:0"), AnyPort: true, DataPorts: portrange.Range{First: first, Last: first + more - 1},
			Warn: func(f string, args ...any) { t.Errorf(f, args...) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

// What a leg of the server failed of tells more than that its connection ended, whichever comes first.
func TestServerSaysWhy(t *testing.T) {
	closed := &OpError{Entry: cq.Error{Err: fi.ESHUTDOWN}}
	why := &message{Type: mFail, Run: 3, Error: "receive failed: because"}
	const want = "at the server: receive failed: because"
	r := &clientRun{c: &Client{svc: service{ep: traffic.MSG}, in: make(chan *message, 3)}, id: 3}
	r.abort(closed)
	if r.told(why); r.err.Error() != want {
		t.Errorf("told during the run: %v", r.err)
	}
	r.c.in <- &message{Type: mSent, Run: 3}
	r.c.in <- &message{Type: mFail, Run: 2, Error: "of a run before"}
	r.c.in <- why
	if err := r.reason(closed); err.Error() != want {
		t.Errorf("told after the run: %v", err)
	}
	if err := r.reason(closed); err != closed {
		t.Errorf("nothing told: %v", err)
	}
}
