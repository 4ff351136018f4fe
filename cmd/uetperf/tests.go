package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// A testDef is what distinguishes the commands that run a test: their help, their
// operations with the usual one first, and the defaults of their flags.
type testDef struct {
	name, short, long, example string
	ops                        []string
	traffic.Usual
	// counted names in help what -n counts.
	counted string
	// warmup computes the number of unmeasured messages if -w is not given; nil means that the
	// test has no warm-up. warmed describes that number in help.
	warmup func(*traffic.Spec) int64
	warmed string
	// sized and often complete the help of -s and -n in tests between ranks.
	sized, often string
}

var tests = []testDef{
	{
		name: traffic.Ping, short: "is a host there, and how far is it",
		long: `ping tells how long it takes to reach a host: the control exchange, the opening of
both endpoints, the first round trip (which opens the packet delivery context
with the data in its first packet), and round trips after it.`,
		example: "  uetperf ping 192.0.2.7\n  uetperf ping [2001:db8::7]:4793 -n 100 -i 10ms --assert 'p99<1ms'",
		ops:     []string{traffic.Send, traffic.TSend, traffic.Inject}, counted: "round trips per size",
	},
	{
		name: traffic.Lat, short: "latency: round trips of one message at a time",
		long: `lat sends a message back and forth and measures each round trip; what it prints is
half of it, one way. A round trip ends when the answer is there and the message
before it has completed, whose acknowledgement comes behind its answer: a
completion level that takes longer than a round trip counts. Up to 8 KiB and with
inject or transmit complete, where one acknowledgement may tell of several
messages, it is the message fifteen round trips before that has to be complete. With --mode uud an answer
that does not come within 100 ms is lost, and so is its round trip.

write, read, fadd (fetch-and-add), swap (atomic write) and cas (compare-and-swap) access
memory of the server, whose application takes no part: one at a time, from the call to
the completion. That is not halved. fadd, swap and cas return the old values. writedata
is a write with remote CQ data: the application there gets a completion for each.`,
		example: "  uetperf lat HOST tsend -s 8:64K:*2\n  uetperf lat HOST -s 64 --progress auto --assert 'p99<100us'\n  uetperf lat HOST read -s 4K",
		ops:     []string{traffic.Send, traffic.TSend, traffic.Inject, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS}, counted: "round trips per size",
		warmup: func(s *traffic.Spec) int64 { return atMostIters(latWarmup, s) }, warmed: fmt.Sprintf("%d, at most as many as -n", latWarmup),
	},
	{
		name: traffic.BW, short: "bandwidth: a window of messages under way",
		long: `bw keeps a window of messages under way and measures what arrives. The clock runs
from the end of the warm-up to the end of the time, at the sender, by
completions; with inject complete, which says nothing of arrival, at the receiver.
Below the line of a size stand the slowest interval (of --sample), and how long single
messages took from the call to the completion, others being under way: each from
64 KiB on, one in 17 smaller ones.

write and read access memory of the server. With -c it looks at what was written when
the test is over; what was read is verified at once. With --mode rudi they go by RUDI,
but for the first ones, during which a packet delivery context opens.

With --mode uud messages are datagrams, which are not sent again: what the receiver
got is measured, and the last line says what was lost. So that a sender does not drown
its receiver, that one says with datagrams of its own how far it is, four times a
window; after 20 ms without such a word the sender goes on.`,
		example: "  uetperf bw HOST -s 1M -t 10s\n  uetperf bw HOST tsend -s 64K -P 4 --bidir -c\n  uetperf bw HOST write -s 1M\n  uetperf bw HOST --impair loss=1%,reorder=1%",
		ops:     []string{traffic.Send, traffic.TSend, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS}, counted: perStream,
		warmup: twoWindows, warmed: "twice the window",
	},
	{
		name: traffic.Rate, short: "message rate: many small messages under way",
		long:    `rate is bw for small messages, which share trains of packets: messages per second.`,
		example: "  uetperf rate HOST -s 8 -W 512\n  uetperf rate HOST inject -s 8 -t 5s --assert 'rate>2M/s'",
		ops:     []string{traffic.Send, traffic.TSend, traffic.Inject, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS}, counted: perStream,
		warmup: twoWindows, warmed: "twice the window",
	},
	loadTest, rrTest, incastTest, soakTest,
}

// datagramSize is the default size of datagrams, which fit into one packet everywhere.
const datagramSize = 1024

// The largest default warm-ups, in messages.
const loadWarmup, rrWarmup, latWarmup = 1000, 100, 1000

const perStream = "messages per size and stream"

func twoWindows(s *traffic.Spec) int64 { return int64(2 * s.Window) }

func atMostIters(n int64, s *traffic.Spec) int64 {
	if s.Iters > 0 {
		return min(n, s.Iters)
	}
	return n
}

var loadTest = testDef{
	name: traffic.Load, short: "latency under load: requests at intended times, whatever becomes of those before",
	long: `load is an open loop: requests begin at a rate, and what is printed is the time from
when a request was MEANT to begin to when the application here had its reply. The
server's application answers each. A round trip is measured because it needs one
clock and ends with what the other application did; it is not halved.

Requests that cannot begin in time, because the window is full or this host is too
slow, wait their turn and are never left out: a stall shows in every request that
it delayed. "late%" are those that began more than ` + traffic.LateAfter.String() + ` late.

When requests pile up to the end of the time, host and path are overloaded: those
that wait get another 1 s at most, the rest is given up and counts with the time it
waited, and the last line says how much the path carries at most.

write, writedata, read, fadd, swap and cas access memory of the server: such a request
ends with its completion, and nobody replies. With --mode uud requests and replies are
datagrams: a reply that does not come within 100 ms is lost, and the last line says
how many are.`,
	example: "  uetperf load HOST --rate 20k/s -s 4K -t 30s\n  uetperf load HOST --rate 100k/s -s 64 --arrivals poisson --assert 'p99<200us' --assert 'late<1%'\n  uetperf load HOST read --rate 20k/s -s 4K --mode rudi",
	ops:     []string{traffic.TSend, traffic.Send, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS}, counted: "requests per size and stream",
	warmup: func(s *traffic.Spec) int64 { return int64(min(loadWarmup, eachRate(s)*s.Time.Seconds()/20)) },
	warmed: fmt.Sprintf("what is meant to begin in a twentieth of the time, at most %d", loadWarmup),
}

var rrTest = testDef{
	name: traffic.RR, short: "transactions: a request, its reply, the next request",
	long: `rr counts transactions: a request and its reply, one at a time per stream (-P), or a
window of them (-W). Times are whole round trips.

With --churn each transaction opens what carries it and closes it again. With rdm
that are the packet delivery contexts of both ends: data opens them, so the
transaction includes it; "open" is until the request was acknowledged, "close" the
orderly end of both. With -e msg it is an endpoint with its connection each time:
"open" is endpoint and connection, "close" the end of both, the transaction what is
in between. Transactions that fail are counted, and the test goes on; five in a row
end it.`,
	example: "  uetperf rr HOST -t 10s -P 4\n  uetperf rr HOST -s 100 --reply 10K --assert 'rate>20k/s'\n  uetperf rr HOST --churn\n  uetperf rr HOST --churn -e msg --sec tls --keys KEYS --assert errors==0",
	ops:     []string{traffic.TSend, traffic.Send}, counted: "transactions per size and stream",
	warmup: func(s *traffic.Spec) int64 { return atMostIters(rrWarmup, s) }, warmed: fmt.Sprintf("%d, at most as many as -n", rrWarmup),
}

var incastTest = testDef{
	name: traffic.Incast, short: "many senders at once to one receiver: fairness, convergence, slowest block",
	long: `incast has -P senders here, each an endpoint of its own, and one receiver, an endpoint
at the server. Half of the time the senders stream blocks, -W each under way:

  jain       fairness of the second half of the streams: 1 if all got the same,
             1/P if one got all
  converged  from when on each sender stayed within ±25 % (--within) of its share,
             the mean of all, in intervals of 1/50 of the time of the streams

Then come rounds: all senders send one block at once, and the next round begins when
all are complete. A round takes as long as its slowest sender; who waits for all
ranks of a job waits that long.

A line per sender follows: what it streamed, and over all the packets that it sent
again (rtx, and for nothing: spur), that were marked (ecn) and that switches cut (trim). What the receiver threw
away is in the line of all.`,
	example: "  uetperf incast HOST -P 8 -s 256K -t 10s\n  uetperf incast HOST -P 32 -s 64K -c --assert 'jain>0.9' --assert 'tail<20ms'",
	ops:     []string{traffic.TSend},
	warmup:  twoWindows, warmed: "twice the window",
}

var soakTest = testDef{
	name: traffic.Soak, short: "everything mixed, for a long time: data verified, leaks looked for",
	long: `soak runs one test after the other, drawn by the seed: ping, lat, bw, rate, load, rr,
rr --churn and, with rdm, incast; sizes (-s, a list), operations, also those on memory of
the server (write, writedata, read, fadd, swap, cas), modes, also rudi for write and read and,
with rdm and without --impair, uud (datagrams), completion levels, windows, streams,
directions, paths, GSO on and off. What is given (--mode, --complete, --progress, --gso,
--paths, the operation) is not drawn. Beside them a
load of 200 requests a second never pauses. Every byte is verified; -c is always on.
The record (-J) has for each test the command that repeats it.

Between tests both processes are asked for their memory (heap in use, resident set),
goroutines and file descriptors, after garbage was collected. At the end a line is
fitted to each, by least squares, without the first quarter of the time. It leaks if
the line grew more than its bound and is no chance (3 standard errors, 8 samples):

  heap 4 MiB or 10 %, resident set 32 MiB or 20 %, goroutines 8 or 10 %,
  file descriptors 4 or 10 % of the mean, over the time that is judged

What both ends threw away (dropped) is listed with its reason: harmless is what every
long test has, as acknowledgements that newer ones overtook; look says what to look
at. Neither is a lost message: data is verified, and what is missing is sent again.

The server's process is judged as a whole: let nobody else use it. A test that fails
is told, and the soak goes on; five in a row end it. Exit status 0: no test failed,
no byte was wrong, nothing leaks.`,
	example: "  uetperf soak HOST -t 1h --check\n  uetperf soak HOST -e msg --sec tls --keys KEYS -t 10m -J soak.json\n  uetperf soak HOST -t 5m --impair loss=1%,reorder=1% --assert leaks==0",
	ops:     []string{traffic.TSend, traffic.Send, traffic.Inject, traffic.Write, traffic.WriteData, traffic.Read, traffic.FAdd, traffic.Swap, traffic.CAS},
}

// test makes the command of a test.
func (l *line) test(t testDef) *cobra.Command {
	return l.command(&cobra.Command{
		Use: t.name + " HOST[:PORT] [" + strings.Join(t.ops, "|") + "]", Short: t.short, Long: t.long, Example: t.example,
		DisableFlagsInUseLine: true,
		Args:                  func(_ *cobra.Command, args []string) error { return t.arguments(args) },
	}, t.name, t, func(p *params, args []string) error {
		s := &p.cfg.Spec
		p.cfg.Target, s.Test, s.Op = args[0], t.name, t.ops[0]
		if len(args) > 1 {
			s.Op, p.cfg.Soak.op = args[1], args[1]
		}
		if t.Window == 0 {
			s.Parallel = 1
		}
		return nil
	}, func(p *params) error {
		if t.name == traffic.Soak { // a soak draws its tests
			p.pin()
			m := p.cfg.mix()
			return m.Check()
		}
		if p.cfg.Spec.Atomic() && !p.given("size") {
			p.cfg.Sizes = []int64{8}
		}
		if p.cfg.Spec.OneSided() && !p.given("reply") {
			p.cfg.Spec.Reply = 0
		}
		if p.cfg.Spec.Lossy() && p.cfg.Spec.Exchanges() && p.cfg.Soak.op == "" { // the usual one of others is tagged
			p.cfg.Spec.Op = traffic.Send
		}
		if p.cfg.Spec.Lossy() && !p.given("size") {
			p.cfg.Sizes = slices.DeleteFunc(p.cfg.Sizes, func(n int64) bool { return n > datagramSize })
			if len(p.cfg.Sizes) == 0 {
				p.cfg.Sizes = []int64{datagramSize}
			}
		}
		if p.cfg.Hosts != nil {
			s := bulkOf(&p.cfg)
			return s.Validate()
		}
		for _, n := range p.cfg.Sizes {
			s := p.cfg.Spec
			if s.Size = n; s.Validate() != nil {
				return s.Validate()
			}
		}
		return nil
	})
}

// streams says how many streams are asked for, if the test may have several.
func (t *testDef) streams(n string) string {
	if !slices.Contains(strings.Fields(windowed), t.name) {
		return ""
	}
	return " messages, -P " + n + " how many streams"
}

// arguments refuses anything but a host and an operation.
func (t *testDef) arguments(args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("%s needs a host, where `uetperf serve` runs", t.name)
	case len(args) > 2:
		return fmt.Errorf("unexpected %q after the operation", args[2])
	case len(args) == 2 && isNumber(args[0]): // as in ping -c 5 HOST
		return fmt.Errorf("%q in the place of the host: -n %s says how many", args[0], args[0])
	case len(args) == 2 && isNumber(args[1]) && strings.Contains(args[0], ":"): // the host has a port
		return fmt.Errorf("unexpected %q: -n %s says how many%s", args[1], args[1], t.streams(args[1]))
	case len(args) == 2 && isNumber(args[1]): // as in ping HOST -c 5
		return fmt.Errorf("unexpected %q: -n %s says how many%s, %s:%s which port", args[1], args[1], t.streams(args[1]), args[0], args[1])
	case len(args) == 2 && slices.Contains(t.ops, args[0]) && !slices.Contains(t.ops, args[1]):
		return fmt.Errorf("the host comes before the operation: uetperf %s %s %s", t.name, args[1], args[0])
	case len(args) == 2 && args[1] == "atomic" && slices.Contains(t.ops, traffic.FAdd):
		return fmt.Errorf("operation atomic is not one of %s: fadd is fetch-and-add, swap an atomic write, cas compare-and-swap", strings.Join(t.ops, ", "))
	case len(args) == 2 && !slices.Contains(t.ops, args[1]):
		return fmt.Errorf("operation %q of %s is not one of %s", args[1], t.name, strings.Join(t.ops, ", "))
	}
	return nil
}

// pinned holds what a soak must not draw. "" and 0 mean that it is drawn.
type pinned struct {
	op, mode, complete, progress, gso string

	paths int
	// common are the given flags that apply to all tests of the soak.
	common []string
}

// pin records which flags of a soak were given.
func (p *params) pin() {
	s, pins := &p.cfg.Spec, &p.cfg.Soak
	for name, v := range map[string]struct {
		to *string
		is string
	}{"mode": {&pins.mode, s.Mode}, "complete": {&pins.complete, s.Complete}, "progress": {&pins.progress, s.Progress}, "gso": {&pins.gso, s.GSO}} {
		if p.given(name) {
			*v.to = v.is
		}
	}
	if p.given("paths") {
		pins.paths = s.Paths
	}
	// The following flags are neither drawn nor special to the soak.
	for _, name := range []string{"provider", "ep", "domain", "cc", "sec", "keys", "as", "crc", "base-rtt", "rendezvous", "trim", "mtu", "impair", "timeout", "silence"} {
		if name == "ep" && s.EP == traffic.RDM { // the usual one, and datagrams have another
			continue
		}
		if p.given(name) {
			pins.common = append(pins.common, "--"+name+"="+p.set.Lookup(name).Value.String())
		}
	}
}
