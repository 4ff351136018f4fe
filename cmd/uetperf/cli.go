package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/assert"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/capture"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/units"
	"github.com/uetkit/uetkit/transport/wire"
)

// parse turns a command line into a Config. Without one there is nothing to run
// (help was printed, or the command line is wrong) and the exit code is final.
func parse(args []string, stdout, stderr io.Writer) (*Config, int) {
	cfg := &Config{Args: append([]string{"uetperf"}, args...), Stdin: os.Stdin}
	chosen := false
	root := newCommand(cfg, &chosen)
	root.SetArgs(args)
	said := &watched{w: stdout}
	root.SetOut(said)
	root.SetErr(stderr)
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// Help of what is no command is no help: cobra shows that of the command above.
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			to, _, _ := cmd.Find(words)
			if to == nil || to == cmd {
				unknown = notThere(cmd, words[0])
				return
			}
			cmd = to // -h was in front of it
			cmd.InitDefaultHelpFlag()
		}
		help(cmd, args)
	})
	cmd, err := root.ExecuteC()
	if err := said.lost(); err != nil {
		return nil, report(err, stderr)
	}
	if err = cmp.Or(err, unknown); err != nil {
		if cmd.Name() == "help" {
			cmd = root
		}
		fmt.Fprintf(stderr, "uetperf: %s (see %s -h)\n", usageText(err), cmd.CommandPath())
		return nil, exitUsage
	}
	if !chosen {
		return nil, exitOK
	}
	return cfg, exitOK
}

// usageText makes an error of cobra or pflag one line: the option, the value and
// what is wrong with it.
func usageText(err error) string {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		why := bad.Unwrap().Error()
		var num *strconv.NumError
		if errors.As(err, &num) {
			why = fmt.Sprintf("%q is not a whole number", bad.GetValue())
			if errors.Is(err, strconv.ErrRange) {
				why = bad.GetValue() + " is out of range"
			}
		}
		return "--" + bad.GetFlag().Name + ": " + why
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSpace(text)
}

const rootLong = `uetperf measures and checks Ultra Ethernet Transport (UET) over UDP.

Without arguments it checks this host in less than a minute: two processes, real
UDP sockets, every byte verified, also through a network that loses packets.

Between two hosts, start "uetperf serve" on one; it needs no options. The other
carries the whole test:

  uetperf ping HOST
  uetperf lat  HOST tsend -s 8:64K:*2
  uetperf bw   HOST -s 1M -t 10s
  uetperf rate HOST -s 8 -W 512
  uetperf load HOST --rate 20k/s -s 4K
  uetperf rr   HOST -P 4
  uetperf incast HOST -P 8 -s 256K
  uetperf soak HOST -t 1h

Secured, with connections and certificates (the folder goes to both hosts):

  uetperf keys  FOLDER
  uetperf serve --keys FOLDER
  uetperf lat   HOST -e msg --sec tls --keys FOLDER

Exit status: 0 all well, 1 a test or an assertion failed, 2 usage, 3 the host
could not be reached, 130 interrupted.`

// notEmpty refuses names of files and places that are given and empty, as those of a
// variable that is not set: what nobody named would be taken, or nothing written.
func notEmpty(f *pflag.FlagSet) error {
	for _, name := range []string{"json", "csv", "pcap", "output", "listen", "metrics", "domain", "keys", "as", "remove"} {
		if fl := f.Lookup(name); fl != nil && fl.Changed && fl.Value.String() == "" {
			what, _ := pflag.UnquoteUsage(fl)
			return fmt.Errorf("--%s is empty: give %s, or leave it out", name, what)
		}
	}
	return nil
}

// laterCommands have a name already and nothing behind it.
var laterCommands = []string{"coll"}

// notThere says what there is instead of a command that is not.
func notThere(cmd *cobra.Command, name string) error {
	there := "there are serve, ping, lat, bw, rate, load, rr, incast, soak, report, compare, keys, info, doctor"
	if cmd.HasParent() {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		there = "there are " + strings.Join(names, ", ")
	} else if slices.Contains(laterCommands, name) {
		return fmt.Errorf("command %s is not offered yet: %s", name, there)
	}
	return fmt.Errorf("unknown command %q: %s", name, there)
}

// helpCommand is cobra's, but for names that are no commands.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "what a command does and which flags it has", DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			to, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0 && to.HasSubCommands():
				return notThere(to, rest[0])
			case len(rest) > 0:
				return fmt.Errorf("unexpected %q", rest[0])
			}
			to.InitDefaultHelpFlag()
			return to.Help()
		},
	}
}

func newCommand(cfg *Config, chosen *bool) *cobra.Command {
	choose := func(name string) { cfg.Command, *chosen = name, true }
	root := &cobra.Command{
		Use: "uetperf", Short: "performance of Ultra Ethernet Transport over UDP", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true, Version: versionLine(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return notThere(cmd, args[0])
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return notEmpty(cmd.Flags()) }
	root.Flags().SortFlags = false
	of := &outputFlags{}
	of.add(root.Flags(), cfg)
	self := &seedFlag{}
	self.add(root.Flags())
	root.RunE = func(*cobra.Command, []string) error {
		choose("")
		cfg.Timeout = 10 * time.Second
		if err := self.check(root.Flags()); err != nil {
			return err
		}
		cfg.Spec.Seed, cfg.Spec.EndpointSeed = self.values()
		return of.finish(cfg, "")
	}
	root.PersistentFlags().StringVar(&cfg.CPUProfile, "cpuprofile", "", "write a CPU profile to `FILE`")
	_ = root.PersistentFlags().MarkHidden("cpuprofile")
	root.AddCommand(serveCommand(cfg, choose), keysCommand(cfg, choose), infoCommand(cfg, choose), doctorCommand(cfg, choose))
	root.AddCommand(reportCommand(cfg, choose), compareCommand(cfg, choose))
	for _, t := range tests {
		root.AddCommand(testCommand(cfg, choose, t))
	}
	root.SetHelpCommand(helpCommand())
	return root
}

// outputFlags are where results go.
type outputFlags struct{ asserts []string }

func (o *outputFlags) add(f *pflag.FlagSet, cfg *Config) {
	f.StringVarP(&cfg.JSON, "json", "J", "", "write the record (JSON, schema uetperf/1) to `FILE`; - is standard output, then nothing else is written there")
	f.StringVar(&cfg.CSV, "csv", "", "write one line per size to `FILE`")
	f.StringArrayVar(&o.asserts, "assert", nil, "fail unless `EXPR` holds for every size, e.g. p99<200us, loss==0, rtx<0.1%, goodput>10Gb/s (repeatable)")
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "results only: no header, no progress")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "counters of both ends below each result")
}

func (o *outputFlags) finish(cfg *Config, test string) error {
	for _, s := range o.asserts {
		a, err := assert.Parse(s)
		if err != nil {
			return err
		}
		if test != "" {
			if err := a.For(test, cfg.Spec.Check); err != nil {
				return err
			}
		}
		cfg.Asserts = append(cfg.Asserts, a)
	}
	switch {
	case cfg.CSV == "-" && cfg.JSON == "-":
		return errors.New("--json - and --csv - cannot both have standard output")
	case cfg.CSV != "" && (cfg.CSV == cfg.JSON || cfg.CSV == cfg.Pcap) || cfg.JSON != "" && cfg.JSON == cfg.Pcap:
		return errors.New("-J, --csv and --pcap need files of their own")
	}
	return nil
}

// seedFlag is --seed.
type seedFlag struct{ v uint64 }

func (s *seedFlag) add(f *pflag.FlagSet) {
	f.Uint64Var(&s.v, "seed", 0, "`N` that makes message contents, packet numbers and injected faults repeatable (default random)")
}

func (s *seedFlag) check(f *pflag.FlagSet) error {
	if f.Changed("seed") && s.v == 0 {
		return errors.New("--seed 0 is not at least 1: leave it out for a random one")
	}
	return nil
}

// values returns the seed of contents, which always is one, and that of the
// endpoints, 0 unless it was asked for: foreseeable packet numbers are for tests.
func (s *seedFlag) values() (contents, endpoints uint64) {
	if s.v != 0 {
		return s.v, s.v
	}
	return uint64(rand.Uint32()) + 1, 0
}

func serveCommand(cfg *Config, choose func(string)) *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "be the other end of tests",
		Long: `serve is the other end of tests. It needs no options: clients say what to run, and
many may do so at once, each with endpoints of its own.

It listens on every IP address of the host, UDP port ` + strconv.Itoa(wire.Port) + ` and the ones behind it; the
endpoints of tests have ports of their own. Clients name the first:

  ` + portTable() + `

Those with --sec are open with --keys; the last one answers what uetperf doctor sends,
with no more than it got. Whoever reaches the first two can run tests:
do not leave them open to networks that you do not trust.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error {
			choose("serve")
			if cfg.MaxClients < 1 {
				return fmt.Errorf("--max-clients %d is not at least 1", cfg.MaxClients)
			}
			return nil
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.Listen, "listen", "", fmt.Sprintf("`IP:PORT` to listen on, and the %d ports behind it; port 0 takes free ones (default every address, port %d)", perf.ProbePort, wire.Port))
	f.StringVarP(&cfg.Domain, "domain", "d", "", "listen on the addresses of this `INTERFACE` only")
	f.IntVar(&cfg.MaxClients, "max-clients", 64, "serve at most `N` clients at once")
	f.BoolVar(&cfg.Once, "once", false, "end when the first client is gone")
	f.StringVar(&cfg.Metrics, "metrics", "", "`IP:PORT` where Prometheus finds /metrics (HTTP); port 0 takes a free one")
	addKeys(f, cfg, keys.Server)
	addPcap(f, cfg)
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "say nothing but errors")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "say who runs what")
	f.BoolVar(&cfg.UntilEOF, "until-eof", false, "end when standard input ends")
	_ = f.MarkHidden("until-eof")
	return c
}

func infoCommand(cfg *Config, choose func(string)) *cobra.Command {
	var provider string
	c := &cobra.Command{
		Use: "info", Short: "what this host offers, as fi_info shows it",
		Long: `info shows what uet.GetInfo finds on this host, one entry per address of an
interface, and what the system gave when a socket was opened there: GSO, GRO,
ECN, buffers. With --explain it also says what is not offered, and why.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error {
			choose("info")
			return checkProvider(provider)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.BoolVar(&cfg.Explain, "explain", false, "say why each thing that is not offered is not")
	addProvider(f, &provider, &cfg.Spec.EP)
	f.StringVarP(&cfg.Domain, "domain", "d", "", "this `INTERFACE` only")
	f.StringVarP(&cfg.JSON, "json", "J", "", "write JSON to `FILE`; - is standard output, then nothing else is written there")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "one block per address, as fi_info prints them")
	return c
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// atMost refuses what is more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("unexpected %q", args[n])
		}
		return nil
	}
}

// portTable says what there is at which port, a line each.
func portTable() string {
	var b []string
	for i, s := range perf.Services() {
		b = append(b, fmt.Sprintf("%d  %s", wire.Port+i, s))
	}
	b = append(b, fmt.Sprintf("%d  probes", wire.Port+perf.ProbePort))
	return strings.Join(b, "\n  ")
}

func keysCommand(cfg *Config, choose func(string)) *cobra.Command {
	c := &cobra.Command{
		Use: "keys FOLDER [NAME...]", Short: "make keys for secured tests",
		Long: `keys makes a folder with all that secured tests need: an authority for tests, a
certificate it signed for each NAME (server and client if none is given), and a
cluster key. All files can be read by their owner alone; nothing is overwritten.

A host needs ca.pem, cluster.key, and NAME.pem and NAME.key of itself. For a test
the whole folder may go to both hosts; ca.key, which makes more certificates,
needs to go nowhere.

Servers and clients that run hear of --rotate and --remove within seconds when
their folder changes.`,
		Example:               "  uetperf keys FOLDER\n  uetperf keys FOLDER --rotate\n  uetperf keys FOLDER --remove client",
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("keys needs a folder to make")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			choose("keys")
			cfg.Keys, cfg.Members = args[0], args[1:]
			switch {
			case cfg.Rotate && cfg.Remove != "":
				return errors.New("--rotate and --remove are two things: do one after the other")
			case (cfg.Rotate || cfg.Remove != "") && len(cfg.Members) > 0:
				return fmt.Errorf("unexpected %q: new members need a new folder", cfg.Members[0])
			}
			return nil
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.BoolVar(&cfg.Rotate, "rotate", false, "take the next of three steps to a new cluster key: made and accepted, used, the old one gone")
	f.StringVar(&cfg.Remove, "remove", "", "let the member `NAME` in no more")
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "say nothing but errors")
	return c
}

func addPcap(f *pflag.FlagSet, cfg *Config) {
	f.StringVar(&cfg.Pcap, "pcap", "", fmt.Sprintf("write the datagrams of this end to `FILE` (pcapng, %d bytes of each, at most %s), sealed ones opened; slows the test down", capture.SnapLen, units.Bytes(capture.MaxBytes)))
}

func addProvider(f *pflag.FlagSet, provider, ep *string) {
	f.StringVarP(provider, "provider", "p", "uet", "libfabric `PROVIDER`")
	f.VarP(&choice{ep, []string{perf.RDM, perf.MSG}, []string{"dgram"}}, "ep", "e", "endpoint `TYPE`: rdm, or msg, which has connections")
}

func checkProvider(provider string) error {
	if isNumber(provider) { // of those who know -p as a port
		return fmt.Errorf("-p %s is a libfabric provider; the port goes behind the host: HOST:%s", provider, provider)
	}
	if provider != "uet" {
		return fmt.Errorf("provider %q is not uet, the only one here", provider)
	}
	return nil
}

// addKeys adds the flags that say where keys are.
func addKeys(f *pflag.FlagSet, cfg *Config, usual string) {
	f.StringVar(&cfg.Keys, "keys", "", "`FOLDER` of keys, made by uetperf keys")
	f.StringVar(&cfg.As, "as", "", "with --sec tls, the `NAME` whose certificate this end has (default "+usual+", or the only one in the folder)")
}

// A testDef is what distinguishes the commands that run a test.
type testDef struct {
	name, short, long, example string
	ops                        []string
	size                       string
	iters, warmup              int64
	time                       time.Duration
	window                     int
	progress                   string
	parallel                   int    // default of -P; 0: 1
	reply                      string // default of --reply; "": there are no replies
}

// stream reports whether a test is of messages that go one way, or both.
func (t *testDef) stream() bool { return t.name == perf.BW || t.name == perf.Rate }

var tests = []testDef{
	{
		name: perf.Ping, short: "is a host there, and how far is it",
		long: `ping tells how long it takes to reach a host: the control exchange, the opening of
both endpoints, the first round trip (which opens the packet delivery context
with the data in its first packet), and round trips after it.`,
		example: "  uetperf ping 192.0.2.7\n  uetperf ping [2001:db8::7]:4793 -n 100 -i 10ms --assert 'p99<1ms'",
		ops:     []string{perf.Send, perf.TSend, perf.Inject}, size: "64", iters: 5, progress: "auto",
	},
	{
		name: perf.Lat, short: "latency: round trips of one message at a time",
		long: `lat sends a message back and forth and measures each round trip; what it prints is
half of it, one way. A round trip ends when the answer is there and the message
before it has completed, whose acknowledgement comes behind its answer: a
completion level that takes longer than a round trip counts. Up to 8 KiB and with
inject or transmit complete, where one acknowledgement may tell of several
messages, it is the message fifteen round trips before that has to be complete.`,
		example: "  uetperf lat HOST tsend -s 8:64K:*2\n  uetperf lat HOST -s 64 --progress auto --assert 'p99<100us'",
		ops:     []string{perf.Send, perf.TSend, perf.Inject}, size: "8:64K:*2", iters: 10000, warmup: 1000, progress: "manual",
	},
	{
		name: perf.BW, short: "bandwidth: a window of messages under way",
		long: `bw keeps a window of messages under way and measures what arrives. The clock runs
from the end of the warm-up to the end of the time, at the sender, by
completions; with inject complete, which says nothing of arrival, at the receiver.`,
		example: "  uetperf bw HOST -s 1M -t 10s\n  uetperf bw HOST tsend -s 64K -P 4 --bidir -c\n  uetperf bw HOST --impair loss=1%,reorder=1%",
		ops:     []string{perf.Send, perf.TSend}, size: "1M", time: 10 * time.Second, window: 64, progress: "auto",
	},
	{
		name: perf.Rate, short: "message rate: many small messages under way",
		long:    `rate is bw for small messages, which share trains of packets: messages per second.`,
		example: "  uetperf rate HOST -s 8 -W 512\n  uetperf rate HOST inject -s 8 -t 5s --assert 'rate>2M/s'",
		ops:     []string{perf.Send, perf.TSend, perf.Inject}, size: "8", time: 5 * time.Second, window: 512, progress: "manual",
	},
	loadTest, rrTest, incastTest, soakTest,
}

// counted says what -n counts.
func (t *testDef) counted() string {
	switch t.name {
	case perf.Ping, perf.Lat:
		return "round trips per size"
	case perf.RR:
		return "transactions per size and stream"
	case perf.Load:
		return "requests per size and stream"
	}
	return "messages per size and stream"
}

// warmups says how many messages of a test are not measured.
func (t *testDef) warmups() string {
	switch t.name {
	case perf.Lat:
		return fmt.Sprintf("(default %d, at most as many as -n)", t.warmup)
	case perf.RR:
		return fmt.Sprintf("(default %d, at most as many as -n)", rrWarmup)
	case perf.Load:
		return fmt.Sprintf("(default what is meant to begin in a twentieth of the time, at most %d)", loadWarmup)
	}
	return "(default twice the window)"
}

// choice is a flag whose values are known: what is not offered yet is refused
// with a word about it.
type choice struct {
	v       *string
	offered []string
	later   []string
}

func (c *choice) String() string { return *c.v }
func (c *choice) Type() string   { return "string" }

func (c *choice) Set(s string) error {
	switch {
	case slices.Contains(c.offered, s):
		*c.v = s
		return nil
	case slices.Contains(c.later, s):
		return fmt.Errorf("%s is not offered yet; there is %s", s, strings.Join(c.offered, ", "))
	}
	return fmt.Errorf("%q is not one of %s", s, strings.Join(c.offered, ", "))
}

// durationFlag is a time as units reads it.
type durationFlag struct{ d *time.Duration }

func (d durationFlag) Type() string { return "string" }

func (d durationFlag) String() string {
	if *d.d == 0 {
		return ""
	}
	return d.d.String()
}

func (d durationFlag) Set(s string) (err error) {
	*d.d, err = units.ParseDuration(s)
	return err
}

func testCommand(cfg *Config, choose func(string), t testDef) *cobra.Command {
	s := perf.Spec{
		Test: t.name, Op: t.ops[0], EP: perf.RDM, Sec: perf.Off, Mode: "rud", Complete: "transmit", Progress: t.progress, CC: "nscc", GSO: "auto", Parallel: 1,
		Warmup: t.warmup, Iters: t.iters, Time: t.time, Window: t.window,
	}
	more := moreFlags{t: &t, s: &s, cfg: cfg}
	var (
		o             outputFlags
		seed          seedFlag
		sizes         string
		provider      string
		crc           = "on"
		impair        string
		timeout       = 10 * time.Second
		silence       time.Duration
		mtu, paths    int
		iters, warmup int64
		dur, interval time.Duration
	)
	c := &cobra.Command{
		Use: t.name + " HOST[:PORT] [" + strings.Join(t.ops, "|") + "]", Short: t.short, Long: t.long, Example: t.example,
		DisableFlagsInUseLine: true,
	}
	f := c.Flags()
	f.SortFlags = false
	pick := func(v *string, name, short, usage string, offered, later []string) {
		f.VarP(&choice{v, offered, later}, name, short, usage)
	}
	stream := t.stream()
	drawn := ""
	if t.name == soakName {
		drawn = "to draw from, "
	}
	f.StringVarP(&sizes, "size", "s", t.size, "message `SIZES` "+drawn+"in bytes: 64, 4K, 1M; a sweep 8:64K:*2 or 0:1K:+64; a list 8,64,1K")
	if t.name != perf.Incast && t.name != soakName {
		f.Int64VarP(&iters, "iters", "n", 0, fmt.Sprintf("`N` %s%s", t.counted(), defaultIf(t.iters)))
	}
	per := " per size, e.g. 10s"
	if t.name == soakName {
		per = " of it all, e.g. 1h"
	}
	f.VarP(durationFlag{&dur}, "time", "t", "`TIME`"+per+defaultDur(t.time))
	more.add(f)
	if t.name != perf.Ping && t.name != soakName {
		f.Int64VarP(&warmup, "warmup", "w", -1, "`N` messages before the clock starts "+t.warmups())
		f.Lookup("warmup").DefValue = "0" // do not show it
	}
	if t.window > 0 {
		f.IntVarP(&s.Window, "window", "W", t.window, "`N` messages under way per stream")
		f.IntVarP(&s.Parallel, "parallel", "P", max(1, t.parallel), "`N` streams, each with endpoints of its own")
	}
	if stream {
		f.BoolVarP(&s.Reverse, "reverse", "R", false, "the server sends")
		f.BoolVar(&s.Bidir, "bidir", false, "both send")
	}
	always := ""
	if t.name == soakName {
		always = ": always on"
	}
	f.BoolVarP(&s.Check, "check", "c", false, "fill messages and verify every byte"+always)
	pick(&s.Mode, "mode", "", "`MODE`: rud (unordered) or rod (ordered)", []string{"rud", "rod"}, []string{"rudi", "uud"})
	pick(&s.Complete, "complete", "", "completion `LEVEL`: inject, transmit or delivery", []string{"inject", "transmit", "delivery"}, []string{"match", "commit"})
	pick(&s.Progress, "progress", "", "`HOW` completions are waited for: manual polls, auto blocks", []string{"manual", "auto"}, nil)
	addProvider(f, &provider, &s.EP)
	f.StringVarP(&cfg.Domain, "domain", "d", "", "local `INTERFACE` (default the one that leads to HOST)")
	pick(&s.CC, "cc", "", "congestion `CONTROL`: nscc", []string{"nscc"}, []string{"rccc", "none"})
	f.IntVar(&paths, "paths", 1, "`N` UDP source ports (entropy values) per endpoint")
	pick(&s.Sec, "sec", "", "`SECURITY` of the test and of its control exchange: off, psk (a cluster key), or, with -e msg, tls (certificates)", []string{perf.Off, perf.PSK, perf.TLS}, nil)
	addKeys(f, cfg, keys.Client)
	pick(&crc, "crc", "", "CRC-32C trailer `on|off`", []string{"on", "off"}, nil)
	f.Var(durationFlag{&s.BaseRTT}, "base-rtt", "round trip `TIME` of the idle path, hosts included (config_base_rtt of UE): what takes longer is taken for congestion (default 150us)")
	f.BoolVar(&s.Trim, "trim", false, "offer packets to switches that trim (DSCP 10, resent 12; control 46), and refuse what arrives cut (DSCP 26, 28)")
	pick(&s.GSO, "gso", "", "segmentation offload `auto|on|off` at both ends", []string{"auto", "on", "off"}, nil)
	if t.name == soakName {
		for _, name := range []string{"mode", "complete", "progress", "gso", "paths"} {
			fl := f.Lookup(name)
			fl.DefValue = "0" // do not show it
			fl.Usage += " (default drawn)"
		}
	}
	f.IntVar(&mtu, "mtu", 0, "payload `BYTES` per packet: 1024, 2048, 4096, 8192 (default what fits)")
	f.StringVar(&impair, "impair", "", "put a bad network in between: `FAULTS` like loss=1%,burst=3,reorder=1%,dup=1%,corrupt=0.1%")
	seed.add(f)
	switch t.name {
	case perf.Ping:
		interval = time.Second
		f.VarP(durationFlag{&interval}, "interval", "i", "`TIME` between pings")
	case soakName:
		f.VarP(durationFlag{&interval}, "interval", "i", "say how it stands every `TIME` (default "+soakEvery.String()+"; 0: never)")
	default:
		f.VarP(durationFlag{&interval}, "interval", "i", "with -t, print what passed every `TIME` (default 1s on a terminal; 0: never)")
	}
	o.add(f, cfg)
	addPcap(f, cfg)
	f.Var(durationFlag{&timeout}, "timeout", "`TIME` that the server may take to answer")
	f.Var(durationFlag{&silence}, "silence", "end a test when nothing was heard of the server for `TIME`: it was stopped, or cut off (default "+perf.Silence.String()+", or --timeout if that is less)")

	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s needs a host, where `uetperf serve` runs", t.name)
		case len(args) > 2:
			return fmt.Errorf("unexpected %q after the operation", args[2])
		case len(args) == 2 && isNumber(args[0]): // ping -c 5 HOST
			return fmt.Errorf("%q in the place of the host: -n %s says how many", args[0], args[0])
		case len(args) == 2 && isNumber(args[1]) && strings.Contains(args[0], ":"): // it has a port
			return fmt.Errorf("unexpected %q: -n %s says how many", args[1], args[1])
		case len(args) == 2 && isNumber(args[1]): // ping HOST -c 5
			return fmt.Errorf("unexpected %q: -n %s says how many, %s:%s which port", args[1], args[1], args[0], args[1])
		case len(args) == 2 && slices.Contains([]string{"write", "read", "atomic"}, args[1]):
			return fmt.Errorf("operation %s is not offered yet; there is %s", args[1], strings.Join(t.ops, ", "))
		case len(args) == 2 && !slices.Contains(t.ops, args[1]):
			return fmt.Errorf("operation %q of %s is not one of %s", args[1], t.name, strings.Join(t.ops, ", "))
		}
		return nil
	}
	c.RunE = func(_ *cobra.Command, args []string) (err error) {
		choose(t.name)
		cfg.Target = args[0]
		if len(args) > 1 {
			s.Op = args[1]
			cfg.Soak.op = args[1]
		}
		if err := checkProvider(provider); err != nil {
			return err
		}
		switch sealed := s.Sec != perf.Off; {
		case s.Sec == perf.TLS && s.EP != perf.MSG:
			return errors.New("--sec tls needs -e msg: certificates secure connections; rdm endpoints take --sec psk")
		case sealed && cfg.Keys == "":
			return fmt.Errorf("--sec %s needs --keys FOLDER: make one by `uetperf keys FOLDER`", s.Sec)
		case !sealed && cfg.Keys != "":
			return errors.New("--keys is of no use without --sec psk or --sec tls")
		case s.Sec != perf.TLS && cfg.As != "":
			return errors.New("--as names a certificate: it needs --sec tls")
		case sealed && f.Changed("crc"):
			return errors.New("--crc is of no use with --sec: sealed packets are protected by more than a CRC")
		case sealed && s.Trim:
			return errors.New("--trim is of no use with --sec: of a sealed packet switches leave nothing that could be read")
		case sealed:
			crc = "off"
		case s.Trim && crc == "off":
			return errors.New("--trim needs the CRC, which tells a whole packet from one that was cut: leave out --crc off")
		}
		if cfg.Sizes, err = units.ParseSizes(sizes); err != nil {
			return err
		}
		given := f.Changed
		switch {
		case given("iters") && given("time"):
			return errors.New("-n and -t are two ways to say how long: give one")
		case given("iters") && iters < 1:
			return fmt.Errorf("-n %d is not at least 1", iters)
		case given("iters"):
			s.Iters, s.Time = iters, 0
		case given("time") && dur <= 0:
			return errors.New("-t must be more than 0")
		case given("time"):
			s.Iters, s.Time = 0, dur
		}
		switch {
		case t.window > 0 && (s.Window < 1 || s.Window > perf.MaxWindow):
			return fmt.Errorf("-W %d is not 1 to %d", s.Window, perf.MaxWindow)
		case given("warmup") && warmup < 0:
			return fmt.Errorf("-w %d is negative", warmup)
		case given("warmup"):
			s.Warmup = warmup
		case stream:
			s.Warmup = int64(2 * s.Window)
		case s.Iters > 0:
			s.Warmup = min(s.Warmup, s.Iters)
		}
		if given("paths") && paths < 1 {
			return fmt.Errorf("--paths %d is not at least 1", paths)
		}
		s.CRC, s.MTU, s.Paths = crc == "on", mtu, paths
		if err := seed.check(f); err != nil {
			return err
		}
		s.Seed, s.EndpointSeed = seed.values()
		if timeout <= 0 {
			return errors.New("--timeout must be more than 0")
		}
		cfg.Timeout = timeout
		switch {
		case !given("silence"):
			silence = min(timeout, perf.Silence)
		case silence <= 0 || silence > time.Hour:
			return fmt.Errorf("--silence %v is not more than 0 and at most 1h", silence)
		default:
			cfg.Silence = silence
		}
		s.PeerTimeout = silence
		if t.name == perf.Ping {
			s.Interval = interval
		} else {
			if cfg.Interval = interval; given("interval") && interval == 0 {
				cfg.Interval = -1
			}
		}
		if given("impair") {
			fl, err := relay.ParseFaults(impair)
			if err != nil {
				return fmt.Errorf("--impair: %w", err)
			}
			if s.EP != perf.RDM || s.Sec != perf.Off {
				return errors.New("--impair relays packets from other addresses, which only unsecured rdm endpoints let pass: leave out -e msg and --sec")
			}
			if paths > 1 {
				return errors.New("--impair relays one path: leave --paths out")
			}
			fl.Seed = s.Seed
			cfg.Impair = &fl
		}
		if err := more.finish(f); err != nil {
			return err
		}
		for _, n := range cfg.Sizes {
			s.Size = n
			if t.name == soakName {
				continue // it draws its tests
			}
			if err := s.Validate(); err != nil {
				return err
			}
		}
		cfg.Spec = s
		return o.finish(cfg, t.name)
	}
	return c
}

func defaultIf(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (default %d)", n)
}

func defaultDur(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := strings.TrimSuffix(d.String(), "m0s")
	if s != d.String() {
		s += "m"
	}
	return " (default " + s + ")"
}

func versionLine() string {
	t := perf.ThisTool()
	s := "uetperf " + t.Version
	if t.Commit != "" {
		s += " " + t.Commit[:min(12, len(t.Commit))]
	}
	return s + " " + t.Go
}
