package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/capture"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/mesh"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/ranks"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/units"
)

// A flagRow describes one flag. Help, defaults and refusals all come from rows.
type flagRow struct {
	on          string // the commands that have the flag; a flag that differs between commands has several rows
	name, short string
	unit, help  string   // help contains the unit
	def         string   // the default, as a user would give it
	said        string   // the default in words, if help is to show it that way
	to          any      // where the value goes: a pointer or a pflag.Value
	words       []string // values that the shell offers, for a flag that is no choice
	begins      []string // what values or their parts, which a comma or && divides, may begin with
	hidden      bool
	// check refuses a wrong value and derives what follows from a good one. It runs after all
	// flags are read, in the order of the rows, even if the flag was not given.
	check func() error
}

// Groups of commands.
const (
	selfName  = "selfcheck" // the command without a name
	streams   = traffic.BW + " " + traffic.Rate
	exchanges = traffic.Load + " " + traffic.RR
	windowed  = streams + " " + exchanges + " " + traffic.Incast
	lends     = traffic.Lat + " " + traffic.BW + " " + exchanges + " " + traffic.Soak
	counted   = traffic.Ping + " " + traffic.Lat + " " + streams + " " + exchanges
	warmed    = traffic.Lat + " " + windowed
	single    = traffic.Ping + " " + warmed // tests that are one test
	anyTest   = single + " " + traffic.Soak
	rack      = mesh.Mesh + " " + mesh.Alltoall // tests between many hosts
	remote    = anyTest + " " + rack
	between   = ranks.Coll + " " + ranks.P2P // tests between ranks
	recorded  = anyTest + " " + selfName + " " + between
)

// params are the flags of one command and the Config that they fill.
type params struct {
	command string
	test    testDef // only for commands that run a test
	cfg     Config
	set     *pflag.FlagSet
	rows    []flagRow

	// Values of flags that a check converts into fields of cfg.

	provider      string
	iters, warmup int64
	dur           time.Duration
	seed          uint64
}

// addTo adds the flags of the command to f.
func (p *params) addTo(f *pflag.FlagSet) {
	p.set = f
	f.SortFlags = false
	for _, r := range p.table() {
		if slices.Contains(strings.Fields(r.on), p.command) {
			p.rows = append(p.rows, r)
			r.addTo(f)
		}
	}
}

// addTo adds the flag to f.
func (r *flagRow) addTo(f *pflag.FlagSet) {
	usage := strings.Replace(r.help, r.unit, "`"+r.unit+"`", 1)
	if r.unit == "" {
		usage = r.help
	}
	switch v := r.to.(type) {
	case pflag.Value:
		f.VarP(v, r.name, r.short, usage)
	case *string:
		f.StringVarP(v, r.name, r.short, "", usage)
	case *[]string:
		f.StringArrayVarP(v, r.name, r.short, nil, usage)
	case *bool:
		f.BoolVarP(v, r.name, r.short, false, usage)
	case *int:
		f.IntVarP(v, r.name, r.short, 0, usage)
	case *int64:
		f.Int64VarP(v, r.name, r.short, 0, usage)
	case *uint64:
		f.Uint64VarP(v, r.name, r.short, 0, usage)
	}
	fl := f.Lookup(r.name)
	if r.def != "" {
		if err := fl.Value.Set(r.def); err != nil {
			panic("BUG: --" + r.name + ": " + err.Error())
		}
		fl.DefValue = r.def
	}
	if r.said != "" {
		fl.DefValue = "0" // help does not show a default of 0
		fl.Usage += " (default " + r.said + ")"
	}
	fl.Hidden = r.hidden
}

// given reports whether a flag is on the command line.
func (p *params) given(name string) bool { return p.set.Changed(name) }

// check returns the first error of the flags, in the order of the table.
func (p *params) check() error {
	for _, r := range p.rows {
		if v, ok := r.to.(place); ok && p.given(r.name) && *v.s == "" {
			return fmt.Errorf("--%s is empty: give %s, or leave it out", r.name, r.unit)
		}
	}
	for _, r := range p.rows {
		if r.check == nil {
			continue
		}
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// A place is the name of a file, folder, interface, address or member. An empty one is
// refused: it usually comes from a shell variable that is not set.
type place struct{ s *string }

func (p place) String() string     { return *p.s }
func (p place) Set(s string) error { *p.s = s; return nil }
func (p place) Type() string       { return "string" }

// A choice is one of several words. The words in later are refused as not offered yet.
type choice struct {
	v       *string
	offered []string
	later   []string
}

func oneOf(v *string, offered ...string) *choice { return &choice{v: v, offered: offered} }

func (c *choice) but(later ...string) *choice { c.later = later; return c }

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

// isOn parses "on" or "off".
func isOn(s string) (bool, error) {
	var v string
	err := oneOf(&v, "on", "off").Set(s)
	return v == "on", err
}

// A parsed value is read by a function.
type parsed[T any] struct {
	v    *T
	read func(string) (T, error)
	text string // as given
}

func read[T any](v *T, by func(string) (T, error)) *parsed[T] { return &parsed[T]{v: v, read: by} }

func (p *parsed[T]) Type() string   { return "string" }
func (p *parsed[T]) String() string { return p.text }

func (p *parsed[T]) Set(s string) (err error) {
	p.text = s
	*p.v, err = p.read(s)
	return err
}

// A whole error already says what was given and what is wrong with it.
type whole struct{ error }

// asIs marks the errors of a function as whole.
func asIs[T any](f func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := f(s)
		if err != nil {
			err = whole{err}
		}
		return v, err
	}
}

// quoting is asIs for a function whose errors begin with the quoted value. It puts the flag
// in front.
func quoting[T any](flag string, f func(string) (T, error)) func(string) (T, error) {
	return asIs(func(s string) (T, error) {
		v, err := f(s)
		if err != nil {
			err = fmt.Errorf("%s %w", flag, err)
		}
		return v, err
	})
}

// A list collects one parsed value for each time its flag is given.
type list[T any] struct {
	v    *[]T
	read func(string) (T, error)
}

func (l *list[T]) Type() string   { return "stringArray" }
func (l *list[T]) String() string { return "" }

func (l *list[T]) Set(s string) error {
	v, err := l.read(s)
	*l.v = append(*l.v, v)
	return err
}

// table returns the rows of all flags of uetperf. The rows of tests have the defaults of
// p.test.
func (p *params) table() []flagRow {
	c, s, t, b := &p.cfg, &p.cfg.Spec, &p.test, &p.cfg.Between
	drawn, always := "", ""
	if p.command == traffic.Soak {
		drawn, always = "drawn", ": always on"
	}
	usual := keys.Client
	if p.command == "serve" {
		usual = keys.Server
	}
	const elsewhere = "; - is standard output, then nothing else is written there"
	return []flagRow{
		{on: "serve", name: "listen", unit: "IP:PORT", help: fmt.Sprintf("IP:PORT to listen on, and the %d ports behind it; port 0 takes free ones", perf.ProbePort), said: fmt.Sprintf("every address, port %d", perf.Port), to: place{&c.Listen}},
		{on: "keys", name: "rotate", help: "take the next of three steps to a new cluster key: made and accepted, used, the old one gone", to: &c.Rotate},
		{on: "keys", name: "remove", unit: "NAME", help: "let the member NAME in no more", to: place{&c.Remove}},
		{on: "info", name: "explain", help: "say why each thing that is not offered is not", to: &c.Explain},
		{on: "report", name: "output", short: "o", unit: "FILE", help: "FILE to write; - is standard output", def: "report.html", to: place{&c.Read.Output}},
		{on: "report", name: "title", unit: "TEXT", help: "TEXT above the page", said: "what was measured", to: read(&c.Read.Title, anyText)},
		{on: "compare", name: "base", unit: "FILE", help: "a FILE of the base (repeatable)", to: &c.Read.Base},
		{on: "compare", name: "new", unit: "FILE", help: "a FILE to hold against it (repeatable)", to: &c.Read.New},
		{on: "compare", name: "fail-on", unit: "CHANGE", help: "exit 1 if the median changed by more than CHANGE, e.g. p99>+10%, goodput<-5%, p50>+2us, rtx>+0.1pp (repeatable)", to: &list[*assert.Change]{&c.Read.FailOn, quoting("--fail-on", assert.ParseChange)}, begins: assert.RunNames().Words()},

		{on: single, name: "size", short: "s", unit: "SIZES", help: "message SIZES in bytes: 64, 4K, 1M; a sweep 8:64K:*2 or 0:1K:+64; a list 8,64,1K", def: t.Size, to: read(&c.Sizes, asIs(units.ParseSizes))},
		{on: traffic.Soak, name: "size", short: "s", unit: "SIZES", help: "message SIZES to draw from, in bytes: 64, 4K, 1M; a sweep 8:64K:*2 or 0:1K:+64; a list 8,64,1K", def: t.Size, to: read(&c.Sizes, asIs(units.ParseSizes)), check: p.checkMixed},
		{on: rack, name: "size", short: "s", unit: "SIZE", help: "SIZE of the messages whose bandwidth is measured", def: t.Size, to: read(&c.Sizes, asIs(units.ParseSizes))},
		{on: rack, name: "time", short: "t", unit: "TIME", help: "TIME of each test, e.g. 10s", said: shownTime(t.Time), to: read(&p.dur, units.ParseDuration), check: p.checkTime},
		{on: rack, name: "window", short: "W", unit: "N", help: "N messages under way to each receiver", def: fmt.Sprint(t.Window), to: &s.Window},
		{on: mesh.Mesh, name: "at-once", unit: "N", help: "measure N pairs at once, which share no host", said: "as many as there are", to: &c.AtOnce, check: p.checkAtOnce},
		{on: rack, name: "mode", unit: "MODE", help: "MODE: rud (unordered) or rod (ordered)", def: traffic.RUD, to: oneOf(&s.Mode, traffic.RUD, traffic.ROD)},
		{on: rack, name: "complete", unit: "LEVEL", help: "completion LEVEL: inject, transmit, delivery or match", def: "transmit", to: oneOf(&s.Complete, "inject", "transmit", "delivery", "match")},
		{on: traffic.Incast, name: "from", unit: "HOSTS", help: "these HOSTS send, H1,H2,H3, not this process; all run `uetperf serve --mesh`", to: read(&c.Hosts, quoting("--from", splitHosts)), check: p.checkFrom},
		{on: between, name: "ranks", unit: "N", help: "start N ranks in this process; not below a launcher, which starts them", said: "2, without a launcher", to: &c.Local, check: p.checkLocal},
		{on: between, name: "size", short: "s", unit: "SIZES", help: "SIZES in bytes: 64, 4K, 1M; a sweep 8:64K:*2 or 0:1K:+64; a list 8,64,1K" + t.sized, def: t.Size, to: read(&b.Sizes, asIs(units.ParseSizes))},
		{on: ranks.Coll, name: "type", unit: "TYPE", help: "TYPE of the elements: " + strings.Join(ranks.Types, ", "), def: ranks.Types[0], to: oneOf(&b.Type, ranks.Types...)},
		{on: ranks.Coll, name: "redop", unit: "OP", help: "OP of allreduce, reduce, reducescatter, scan: " + strings.Join(ranks.Reductions, ", "), said: ranks.Reductions[0], to: oneOf(&b.Reduction, ranks.Reductions...)},
		{on: ranks.Coll, name: "root", unit: "RANK", help: "RANK that has, or gets, all in bcast, reduce, gather, scatter", said: "0", to: &b.Root},
		{on: between, name: "iters", short: "n", unit: "N", help: "N " + t.counted, said: t.often, to: &p.iters},
		{on: between, name: "warmup", short: "w", unit: "N", help: "N of them before the clock starts", said: t.warmed, to: &p.warmup},
		{on: ranks.P2P, name: "window", short: "W", unit: "N", help: "N messages in a window", def: fmt.Sprint(t.Window), to: &b.Window},
		{on: between, name: "check", short: "c", help: "verify every operation; each begins behind a barrier then. Without it one before and one after the measured ones is", to: &b.Check, check: p.checkBetween},
		{on: between, name: "sec", unit: "SECURITY", help: "SECURITY: auto seals what leaves this host, with a key of rank 0; off leaves it in clear", def: "auto", to: read(&c.Clear, isClear), words: []string{"auto", "off"}},
		{on: between, name: "timeout", unit: "TIME", help: "TIME that the ranks may take to meet", said: "MP_TIMEOUT, or 2m", to: read(&c.Timeout, units.ParseDuration)},
		{on: counted, name: "iters", short: "n", unit: "N", help: "N " + t.counted, said: shownIf(t.Iters), to: &p.iters, check: p.checkIters},
		{on: single, name: "time", short: "t", unit: "TIME", help: "TIME per size, e.g. 10s", said: shownTime(t.Time), to: read(&p.dur, units.ParseDuration), check: p.checkTime},
		{on: traffic.Soak, name: "time", short: "t", unit: "TIME", help: "TIME of it all, e.g. 1h", said: shownTime(t.Time), to: read(&p.dur, units.ParseDuration), check: p.checkTime},
		{on: traffic.Load, name: "rate", unit: "RATE", help: "RATE of requests, those that all streams begin in a second, e.g. 20k/s", to: read(&s.Rate, units.ParseRate), check: p.checkRate},
		{on: traffic.Load, name: "arrivals", unit: "HOW", help: "gaps between them: HOW constant, poisson (exponential), uniform (0 to twice the mean); drawn by --seed", def: traffic.Constant, to: oneOf(&s.Arrivals, traffic.Constant, traffic.Poisson, traffic.Uniform)},
		{on: traffic.RR, name: "churn", help: "open and close a packet delivery context, with -e msg a connection, for each transaction", to: &s.Churn, check: p.checkChurn},
		{on: traffic.Incast, name: "within", unit: "PART", help: "a sender has converged when it stays within ± this PART of its share", def: "25%", to: read(&s.Within, units.ParseShare)},
		{on: exchanges, name: "reply", unit: "SIZE", help: "SIZE of a reply", def: t.Reply, to: read(&s.Reply, units.ParseSize)},
		{on: warmed, name: "sample", unit: "TIME", help: "TIME between samples of the series in the record", said: "a hundredth of the time, at least 100ms", to: read(&s.Sample, units.ParseDuration), check: p.checkSample},
		{on: warmed, name: "warmup", short: "w", unit: "N", help: "N messages before the clock starts", said: t.warmed, to: &p.warmup, check: p.checkWarmup},
		{on: single + " " + between + " " + rack, name: "repeat", unit: "N", help: "measure all sizes N times in turn, and say the medians", said: "1", to: &c.Repeat, check: p.checkRepeat},
		{on: traffic.Soak, name: "repeat", unit: "N", help: "do it all N times in turn, each for --time and with the same tests, and say the medians", said: "1", to: &c.Repeat, check: p.checkRepeat},
		{on: windowed, name: "window", short: "W", unit: "N", help: "N messages under way per stream", def: fmt.Sprint(t.Window), to: &s.Window},
		{on: windowed, name: "parallel", short: "P", unit: "N", help: "N streams, each with endpoints of its own", def: fmt.Sprint(max(1, t.Parallel)), to: &s.Parallel},
		{on: windowed, name: "one-queue", help: fmt.Sprintf("all streams of bw and rate share a completion queue and a thread at each end, as more than %d always do", traffic.FewParallel), to: &s.OneQueue},
		{on: windowed, name: "share-port", help: "all streams of bw, rate, load and rr share one UDP port at each end, with its sockets, congestion control and packet delivery contexts", to: &s.SharePort},
		{on: traffic.Soak, name: "share-port", help: "the streams of a test share one UDP port at each end, where they can", to: &s.SharePort},
		{on: streams, name: "reverse", short: "R", help: "the server sends", to: &s.Reverse},
		{on: streams, name: "bidir", help: "both send", to: &s.Bidir},
		{on: remote, name: "check", short: "c", help: "fill messages and verify every byte" + always, to: &s.Check, check: p.checkData},
		{on: single, name: "mode", unit: "MODE", help: "MODE: rud (unordered), rod (ordered), rudi (write and read, without a PDC), or uud (datagrams, which may be lost)", def: traffic.RUD, to: oneOf(&s.Mode, traffic.RUD, traffic.ROD, traffic.RUDI, traffic.UUD)},
		{on: traffic.Soak, name: "mode", unit: "MODE", help: "MODE: rud (unordered), rod (ordered), rudi (write and read), or uud (datagrams)", def: traffic.RUD, said: drawn, to: oneOf(&s.Mode, traffic.RUD, traffic.ROD, traffic.RUDI, traffic.UUD)},
		{on: anyTest, name: "complete", unit: "LEVEL", help: "completion LEVEL: inject, transmit, delivery, match, or commit (write)", def: "transmit", said: drawn, to: oneOf(&s.Complete, "inject", "transmit", "delivery", "match", "commit")},
		{on: remote, name: "progress", unit: "HOW", help: "HOW completions are waited for: manual polls, auto blocks", def: t.Progress, said: drawn, to: oneOf(&s.Progress, "manual", "auto")},
		{on: anyTest + " info doctor", name: "provider", short: "p", unit: "PROVIDER", help: "libfabric PROVIDER", def: "uet", to: &p.provider, words: []string{"uet"}, check: p.checkProvider},
		{on: single, name: "ep", short: "e", unit: "TYPE", help: "endpoint TYPE: rdm; msg, which has connections; or dgram, whose mode is uud", def: traffic.RDM, to: oneOf(&s.EP, traffic.RDM, traffic.MSG, traffic.Dgram), check: p.checkDatagrams},
		{on: traffic.Soak, name: "ep", short: "e", unit: "TYPE", help: "endpoint TYPE: rdm, or msg, which has connections", def: traffic.RDM, to: oneOf(&s.EP, traffic.RDM, traffic.MSG)},
		{on: "info", name: "ep", short: "e", unit: "TYPE", help: "endpoint TYPE: rdm; msg, which has connections; or dgram", to: oneOf(&s.EP, traffic.RDM, traffic.MSG, traffic.Dgram)},
		{on: "doctor", name: "ep", short: "e", unit: "TYPE", help: "endpoint TYPE: rdm, or msg, which has connections", to: oneOf(&s.EP, traffic.RDM, traffic.MSG)},
		{on: remote, name: "domain", short: "d", unit: "INTERFACE", help: "local INTERFACE", said: "the one that leads to HOST", to: place{&c.Domain}},
		{on: "serve", name: "domain", short: "d", unit: "INTERFACE", help: "listen on the addresses of this INTERFACE only", to: place{&c.Domain}},
		{on: "info", name: "domain", short: "d", unit: "INTERFACE", help: "this INTERFACE only", to: place{&c.Domain}},
		{on: "doctor", name: "domain", short: "d", unit: "INTERFACE", help: "this INTERFACE", said: "all, or the one that leads to HOST", to: place{&c.Domain}},
		{on: remote + " doctor", name: "data-ports", unit: "A-B", help: "UDP ports that this end takes, for a narrow firewall: A-B, or one", said: "any free ones", to: read(&c.DataPorts, portrange.Parse)},
		{on: between, name: "domain", short: "d", unit: "INTERFACE", help: "local INTERFACE of the ranks, whose first address they take; it must have the same name at all hosts", said: "MP_ADDRESS, or the first one", to: place{&c.Domain}},
		{on: between, name: "data-ports", unit: "A-B", help: "UDP ports that the ranks of a host take, for a narrow firewall: A-B, one for each", said: "any free ones", to: read(&c.DataPorts, portrange.Parse)},
		{on: "serve", name: "data-ports", unit: "A-B", help: "UDP ports that tests take here, for a narrow firewall: A-B, or one", said: "any free ones", to: read(&c.DataPorts, portrange.Parse)},
		{on: "serve", name: "max-clients", unit: "N", help: "serve at most N clients at once", def: "64", to: &c.MaxClients, check: p.checkClients},
		{on: "serve", name: "once", help: "end when the first client is gone", to: &c.Once},
		{on: "serve", name: "mesh", help: "take part in tests between servers (mesh, alltoall, incast --from), which any client may ask for; under --sec psk they need no --mesh", to: &c.Mesh},
		{on: "serve", name: "metrics", unit: "IP:PORT", help: "IP:PORT where Prometheus finds /metrics (HTTP); port 0 takes a free one", to: place{&c.Metrics}},
		{on: remote, name: "cc", unit: "CONTROL", help: "congestion CONTROL: nscc (the sender decides), rccc (the receiver grants credit), both", def: "nscc", to: oneOf(&s.CC, traffic.NSCC, traffic.RCCC, traffic.BothCC).but("none")},
		{on: anyTest, name: "paths", unit: "N", help: "N UDP source ports (entropy values) per endpoint", def: "1", said: drawn, to: &s.Paths, check: p.checkPaths},
		{on: single, name: "path-choice", unit: "HOW", help: "HOW packets choose among --paths: mixed (by which packets arrived lately, or else any that is not bad), bitmap, list, reps, oblivious", def: traffic.Mixed, to: oneOf(&s.PathChoice, traffic.Mixed, traffic.Bitmap, traffic.List, traffic.REPS, traffic.Oblivious)},
		{on: single, name: "encapsulation", unit: "HOW", help: "HOW packets are addressed: symmetric, from and to any port; standard, to port 4793, so that each end needs an address of its own", def: traffic.Symmetric, to: oneOf(&s.Encapsulation, traffic.Symmetric, traffic.Standard)},
		{on: rack, name: "sec", unit: "SECURITY", help: "SECURITY of the tests and of all control exchanges: off, or psk (a cluster key)", def: traffic.Off, to: oneOf(&s.Sec, traffic.Off, traffic.PSK), check: p.checkSecurity},
		{on: anyTest, name: "sec", unit: "SECURITY", help: "SECURITY of the test and of its control exchange: off, psk (a cluster key), or, with -e msg, tls (certificates)", def: traffic.Off, to: oneOf(&s.Sec, traffic.Off, traffic.PSK, traffic.TLS)},
		{on: "doctor", name: "sec", unit: "SECURITY", help: "SECURITY that tests are to have: off, psk (a cluster key), or, with -e msg, tls (certificates)", def: traffic.Off, to: oneOf(&s.Sec, traffic.Off, traffic.PSK, traffic.TLS), check: p.checkDoctor},
		{on: remote + " serve doctor", name: "keys", unit: "FOLDER", help: "FOLDER of keys, made by uetperf keys", to: place{&c.Keys}},
		{on: anyTest + " serve doctor", name: "as", unit: "NAME", help: "with --sec tls, the NAME whose certificate this end has", said: usual + ", or the only one in the folder", to: place{&c.As}},
		{on: remote, name: "crc", unit: "on|off", help: "CRC-32C trailer on|off", def: "on", to: read(&s.CRC, isOn)},
		{on: remote, name: "base-rtt", unit: "TIME", help: "round trip TIME of the idle path, hosts included (config_base_rtt of UE): what takes longer is taken for congestion", said: "150us", to: read(&s.BaseRTT, units.ParseDuration)},
		{on: lends, name: "rendezvous", unit: "SIZE", help: "announce messages of SIZE or more, which their receiver reads when a receive has them (rendezvous sends of UE)", said: "none", to: read(&s.Rendezvous, units.ParseSize), check: p.checkRendezvous},
		{on: anyTest, name: "trim", help: "offer packets to switches that trim (DSCP 10, resent 12; control 46), and refuse what arrives cut (DSCP 26, 28)", to: &s.Trim, check: p.checkSecurity},
		{on: remote, name: "gso", unit: "auto|on|off", help: "segmentation offload auto|on|off at both ends", def: "auto", said: drawn, to: oneOf(&s.GSO, "auto", "on", "off")},
		{on: "doctor", name: "gso", unit: "auto|off", help: "segmentation offload auto|off", def: "auto", to: oneOf(&s.GSO, "auto", "off")},
		{on: remote, name: "mtu", unit: "BYTES", help: "payload BYTES per packet: 1024, 2048, 4096, 8192", said: "what fits", to: &s.MTU, words: []string{"1024", "2048", "4096", "8192"}},
		{on: anyTest, name: "impair", unit: "FAULTS", help: "put a bad network in between: FAULTS like loss=1%,burst=3,reorder=1%,dup=1%,corrupt=0.1%", to: read(&c.Impair, faults), begins: []string{"loss=", "burst=", "reorder=", "dup=", "corrupt="}, check: p.checkImpair},
		{on: recorded + " " + rack, name: "seed", unit: "N", help: "N that makes message contents and injected faults repeatable", said: "random", to: &p.seed, check: p.checkSeed},
		{on: traffic.Ping, name: "interval", short: "i", unit: "TIME", help: "TIME between pings", def: "1s", to: read(&s.Interval, parseInterval)},
		{on: traffic.Soak, name: "interval", short: "i", unit: "TIME", help: "say how it stands every TIME", said: soakEvery.String() + "; 0: never", to: read(&c.Interval, parseInterval), check: p.checkInterval},
		{on: warmed, name: "interval", short: "i", unit: "TIME", help: "with -t, print what passed every TIME", said: "1s on a terminal; 0: never", to: read(&c.Interval, parseInterval), check: p.checkInterval},
		{on: rack, name: "interval", short: "i", unit: "TIME", help: "with --watch, say what goes on every TIME", said: "1s", to: read(&c.Interval, parseInterval), check: p.checkInterval},
		{on: rack, name: "watch", help: "say every second, or every --interval, how many pairs are done and which measure what now; one live line on a terminal, else plain lines", to: &c.Watch, check: p.checkWatch},
		{on: between, name: "interval", short: "i", unit: "TIME", help: "say how far it is every TIME, on a terminal or with --watch", said: "1s; 0: never", to: read(&c.Interval, parseInterval), check: p.checkInterval},
		{on: between, name: "watch", help: "say every second, or every --interval, how far rank 0 is with a size, at what rate, and how long a call or a round trip takes; one live line on a terminal, else plain lines", to: &c.Watch, check: p.checkWatch},
		{on: warmed + " " + traffic.Soak, name: "watch", help: "say every second, or every --interval, what goes on: rate, latency or round trip, congestion window, and what was sent again, marked and thrown away; one live line on a terminal, else plain lines", to: &c.Watch, check: p.checkWatch},
		{on: recorded + " " + rack, name: "json", short: "J", unit: "FILE", help: "write the record (JSON, schema uetperf/1) to FILE" + elsewhere, to: place{&c.JSON}},
		{on: "info", name: "json", short: "J", unit: "FILE", help: "write JSON to FILE" + elsewhere, to: place{&c.JSON}},
		{on: "doctor", name: "json", short: "J", unit: "FILE", help: "write the report (JSON, schema uetperf-doctor/1) to FILE" + elsewhere, to: place{&c.JSON}},
		{on: "compare", name: "json", short: "J", unit: "FILE", help: "write the comparison (JSON) to FILE" + elsewhere, to: place{&c.JSON}},
		{on: recorded, name: "csv", unit: "FILE", help: "write one line per size to FILE", to: place{&c.CSV}, check: p.checkFiles},
		{on: recorded + " " + rack, name: "assert", unit: "EXPR", help: "fail unless EXPR holds for every size, e.g. p99<200us, loss==0, rtx<0.1%, goodput>10Gb/s (repeatable)", to: &list[*assert.Assert]{&c.Asserts, quoting("--assert", assert.Parse)}, begins: assert.RunNames().Words(), check: p.checkAsserts},
		{on: recorded + " " + rack, name: "quiet", short: "q", help: "results only: no header, no progress", to: &c.Quiet},
		{on: "serve keys report", name: "quiet", short: "q", help: "say nothing but errors", to: &c.Quiet},
		{on: "doctor", name: "quiet", short: "q", help: "what is not ok only", to: &c.Quiet},
		{on: between, name: "verbose", short: "v", help: "times of calls and counters of all ranks below each result", to: &c.Verbose},
		{on: anyTest + " " + selfName, name: "verbose", short: "v", help: "counters of both ends below each result", to: &c.Verbose},
		{on: "serve", name: "verbose", short: "v", help: "say who runs what", to: &c.Verbose},
		{on: "info", name: "verbose", short: "v", help: "one block per address, as fi_info prints them", to: &c.Verbose},
		{on: "compare", name: "verbose", short: "v", help: "all metrics", to: &c.Verbose},
		{on: anyTest + " serve", name: "pcap", unit: "FILE", help: fmt.Sprintf("write the datagrams of this end to FILE (pcapng, %d bytes of each, at most %s), sealed ones opened; slows the test down", capture.SnapLen, units.Bytes(capture.MaxBytes)), to: place{&c.Pcap}},
		{on: remote, name: "timeout", unit: "TIME", help: "TIME that the server may take to answer", def: "10s", to: read(&c.Timeout, units.ParseDuration), check: p.checkTimeout},
		{on: "doctor", name: "timeout", unit: "TIME", help: "TIME that the server may take to answer", def: "5s", to: read(&c.Timeout, units.ParseDuration), check: p.checkTimeout},
		{on: remote, name: "silence", unit: "TIME", help: "end a test when nothing was heard of the server for TIME: it was stopped, or cut off", said: perf.Silence.String() + ", or --timeout if that is less", to: read(&c.Silence, units.ParseDuration), check: p.checkSilence},
		{on: "serve", name: "until-eof", help: "end when standard input ends", to: &c.UntilEOF, hidden: true},
	}
}

func anyText(s string) (string, error) { return s, nil }

func faults(s string) (*relay.Faults, error) {
	f, err := relay.ParseFaults(s)
	return &f, err
}

// shownIf is the text of a default for help: "" for zero.
func shownIf(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func shownTime(d time.Duration) string {
	if d == 0 {
		return ""
	}
	if s, ok := strings.CutSuffix(d.String(), "m0s"); ok {
		return s + "m"
	}
	return d.String()
}

// The checks of the table, in its order.

func (p *params) checkMixed() error {
	for _, n := range p.cfg.Sizes {
		if n > 32<<20 {
			return fmt.Errorf("size %s is more than the 32 MiB that a soak mixes", units.Size(n))
		}
	}
	return nil
}

func (p *params) checkLocal() error {
	if n := p.cfg.Local; p.given("ranks") && (n < 1 || n > ranks.MaxLocal) {
		return fmt.Errorf("--ranks %d is not 1 to %d: more of them want a launcher and more hosts", n, ranks.MaxLocal)
	}
	return nil
}

// checkBetween completes and checks a test between ranks.
func (p *params) checkBetween() error {
	b, s := &p.cfg.Between, &p.cfg.Spec
	if b.Iters = int(min(p.iters, math.MaxInt)); !p.given("iters") {
		b.Iters = 100
		if b.Op == ranks.Latency {
			b.Iters = 1000
		}
	}
	if b.Warmup = int(min(p.warmup, math.MaxInt)); !p.given("warmup") {
		b.Warmup = max(1, b.Iters/10)
	}
	if b.Op == ranks.Barrier {
		if p.given("size") || p.given("type") {
			return errors.New("a barrier moves no data: leave --size and --type out")
		}
		b.Type = ""
	}
	if p.given("window") && !b.Windowed() {
		return fmt.Errorf("%s has one message at a time: leave -W out, or take %s, %s or %s", b.Op, ranks.BW, ranks.BiBW, ranks.MBWMR)
	}
	if err := b.Validate(); err != nil {
		return err
	}
	if b.Reduces() {
		b.Reduction = cmp.Or(b.Reduction, ranks.Reductions[0])
	}
	s.Check = b.Checked()
	return nil
}

// isClear reads the security of a test between ranks.
func isClear(s string) (bool, error) {
	var v string
	err := oneOf(&v, "auto", "off").Set(s)
	return v == "off", err
}

func (p *params) checkIters() error {
	s := &p.cfg.Spec
	switch {
	case !p.given("iters"):
		s.Iters = p.test.Iters
	case p.given("time"):
		return errors.New("-n and -t are two ways to say how long: give one")
	case p.iters < 1:
		return fmt.Errorf("-n %d is not at least 1", p.iters)
	default:
		s.Iters = p.iters
	}
	return nil
}

func (p *params) checkTime() error {
	s := &p.cfg.Spec
	switch {
	case p.given("time") && p.dur <= 0:
		return errors.New("-t must be more than 0")
	case p.given("time"):
		s.Iters, s.Time = 0, p.dur
	case !p.given("iters"):
		s.Time = p.test.Time
	}
	return nil
}

func (p *params) checkRepeat() error {
	if n := p.cfg.Repeat; p.given("repeat") && (n < 1 || n > maxRepeat) {
		return fmt.Errorf("--repeat %d is not 1 to %d", n, maxRepeat)
	}
	return nil
}

// parseInterval reads -i. Where perftest and sockperf have an interface or an address behind it, the
// error says what has them here.
func parseInterval(text string) (time.Duration, error) {
	d, err := units.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, no := netip.ParseAddr(text); no == nil || text != "" && (text[0] < '0' || text[0] > '9') {
		return 0, fmt.Errorf("%w: -i is the time between lines, the interface is -d NAME, the address that of HOST", err)
	}
	return 0, err
}

// maxRepeat bounds the runs of a record.
const maxRepeat = 1000

func (p *params) checkRate() error {
	s := &p.cfg.Spec
	if s.Rate == 0 {
		return errors.New("load needs --rate: how many requests begin in a second, e.g. --rate 20k/s")
	}
	if s.Iters > 0 { // the rate fixes when requests begin, so a number of them is a time
		s.Time, s.Iters = max(time.Duration(float64(s.Iters)/eachRate(s)*1e9), 1), 0
	}
	return nil
}

// eachRate is how many requests one stream of a load begins in a second.
func eachRate(s *traffic.Spec) float64 { return s.Rate / float64(max(1, s.Parallel)) }

func (p *params) checkRendezvous() error {
	if n := p.cfg.Spec.Rendezvous; p.given("rendezvous") && n < 1 {
		return errors.New("--rendezvous 0 is not at least 1: leave it out for none")
	}
	return nil
}

func (p *params) checkChurn() error {
	if s := &p.cfg.Spec; s.Churn && s.EP == traffic.MSG && !p.given("progress") {
		// Goroutines make the connections, and polling would keep them from running.
		s.Progress = "auto"
	}
	return nil
}

func (p *params) checkAtOnce() error {
	if n := p.cfg.AtOnce; p.given("at-once") && n < 1 {
		return fmt.Errorf("--at-once %d is not at least 1", n)
	}
	return nil
}

func (p *params) checkSample() error {
	if d := p.cfg.Spec.Sample; p.given("sample") && d < 10*time.Millisecond {
		return fmt.Errorf("--sample %v is not at least 10ms", d)
	}
	return nil
}

func (p *params) checkWarmup() error {
	s := &p.cfg.Spec
	switch {
	case slices.Contains(strings.Fields(windowed), p.command) && (s.Window < 1 || s.Window > traffic.MaxWindow):
		return fmt.Errorf("-W %d is not 1 to %d", s.Window, traffic.MaxWindow)
	case !p.given("warmup"):
		s.Warmup = p.test.warmup(s)
	case p.warmup < 0:
		return fmt.Errorf("-w %d is negative", p.warmup)
	default:
		s.Warmup = p.warmup
	}
	return nil
}

func (p *params) checkData() error {
	if p.command == traffic.Soak {
		p.cfg.Spec.Check = true
	}
	return nil
}

func (p *params) checkProvider() error {
	switch n := p.provider; {
	case n == "uet":
		return nil
	case isNumber(n): // users of other tools know -p as the port
		return fmt.Errorf("-p %s is a libfabric provider; the port goes behind the host: HOST:%s", n, n)
	default:
		return fmt.Errorf("provider %q is not uet, the only one here", n)
	}
}

func (p *params) checkClients() error {
	if n := p.cfg.MaxClients; n < 1 {
		return fmt.Errorf("--max-clients %d is not at least 1", n)
	}
	return nil
}

func (p *params) checkPaths() error {
	if n := p.cfg.Spec.Paths; n < 1 {
		return fmt.Errorf("--paths %d is not at least 1", n)
	}
	return nil
}

func (p *params) checkSecurity() error {
	c, s := &p.cfg, &p.cfg.Spec
	switch sealed := s.Sec != traffic.Off; {
	case s.Sec == traffic.TLS && s.EP != traffic.MSG:
		return errors.New("--sec tls needs -e msg: certificates secure connections; rdm endpoints take --sec psk")
	case sealed && c.Keys == "":
		return fmt.Errorf("--sec %s needs --keys FOLDER: make one by `uetperf keys FOLDER`", s.Sec)
	case !sealed && c.Keys != "":
		return errors.New("--keys is of no use without --sec psk or --sec tls")
	case s.Sec != traffic.TLS && c.As != "":
		return errors.New("--as names a certificate: it needs --sec tls")
	case sealed && p.given("crc"):
		return errors.New("--crc is of no use with --sec: sealed packets are protected by more than a CRC")
	case sealed && s.Trim:
		return errors.New("--trim is of no use with --sec: of a sealed packet switches leave nothing that could be read")
	case sealed:
		s.CRC = false
	case s.Trim && !s.CRC:
		return errors.New("--trim needs the CRC, which tells a whole packet from one that was cut: leave out --crc off")
	}
	return nil
}

func (p *params) checkDoctor() error {
	c, s := &p.cfg, &p.cfg.Spec
	switch {
	case c.Target == "" && (s.Sec != traffic.Off || c.Keys != ""):
		return errors.New("--sec and --keys are about a server: name its host")
	case s.Sec == traffic.TLS && s.EP != traffic.MSG:
		return errors.New("--sec tls is for connections: add -e msg")
	case s.Sec != traffic.Off && c.Keys == "":
		return fmt.Errorf("--sec %s needs --keys FOLDER, made by uetperf keys", s.Sec)
	case s.Sec == traffic.Off && c.Keys != "":
		return errors.New("--keys needs --sec psk or --sec tls")
	}
	return nil
}

// checkDatagrams lets --ep dgram mean --mode uud, and the other way round.
func (p *params) checkDatagrams() error {
	switch s := &p.cfg.Spec; {
	case s.EP == traffic.Dgram && !p.given("mode"):
		s.Mode = traffic.UUD
	case s.Mode == traffic.UUD && !p.given("ep"):
		s.EP = traffic.Dgram
	case s.EP == traffic.Dgram && s.Mode != traffic.UUD:
		return fmt.Errorf("endpoints of type dgram have mode uud alone: leave out --mode %s, or -e dgram", s.Mode)
	case s.Mode == traffic.UUD && s.EP != traffic.Dgram:
		return fmt.Errorf("mode uud is of endpoints of type dgram: leave out -e %s, or --mode uud", s.EP)
	}
	return nil
}

func (p *params) checkImpair() error {
	switch s := &p.cfg.Spec; {
	case p.cfg.Impair == nil:
	case s.EP == traffic.MSG || s.Sec != traffic.Off:
		return errors.New("--impair relays packets from other addresses, which only unsecured rdm and dgram endpoints let pass: leave out -e msg and --sec")
	case s.Encapsulation == traffic.Standard:
		return errors.New("--impair relays from other ports than 4793: leave out --encapsulation standard")
	case s.Paths > 1:
		return errors.New("--impair relays one path: leave --paths out")
	}
	return nil
}

// checkSeed draws a seed for contents and faults if none was given.
func (p *params) checkSeed() error {
	s := &p.cfg.Spec
	switch {
	case !p.given("seed"):
		s.Seed = uint64(rand.Uint32()) + 1
	case p.seed == 0:
		return errors.New("--seed 0 is not at least 1: leave it out for a random one")
	default:
		s.Seed = p.seed
	}
	p.cfg.Between.Seed, p.cfg.Between.Repeat = s.Seed, p.cfg.Repeat
	if p.cfg.Impair != nil {
		p.cfg.Impair.Seed = s.Seed
	}
	return nil
}

func (p *params) checkInterval() error {
	if c := &p.cfg; p.given("interval") && c.Interval == 0 {
		c.Interval = -1
	}
	return nil
}

func (p *params) checkWatch() error {
	switch c := &p.cfg; {
	case !c.Watch:
	case c.Quiet:
		return errors.New("--watch says what goes on and -q nothing: leave one out")
	case c.Interval < 0:
		return errors.New("--watch says what goes on and -i 0 never does: leave one out")
	case c.Spec.Time == 0 && c.Between.Test == "":
		return errors.New("--watch is for tests of some time: give -t in place of -n")
	case c.Interval == 0:
		c.Interval = time.Second
	}
	return nil
}

func (p *params) checkAsserts() error {
	for _, a := range p.cfg.Asserts {
		if p.command == selfName {
			break
		}
		if err := a.For(p.measures(), p.cfg.Spec.Check); err != nil {
			return fmt.Errorf("--assert %w", err)
		}
	}
	return nil
}

// measures names the test for assertions: what measures the same.
func (p *params) measures() string {
	switch b := &p.cfg.Between; {
	case p.command != ranks.P2P:
		return p.command
	case b.Windowed():
		return ranks.P2P + " " + b.Op
	}
	return traffic.Lat
}

func (p *params) checkFiles() error {
	switch c := &p.cfg; {
	case c.CSV == "-" && c.JSON == "-":
		return errors.New("--json - and --csv - cannot both have standard output")
	case c.CSV != "" && (c.CSV == c.JSON || c.CSV == c.Pcap) || c.JSON != "" && c.JSON == c.Pcap:
		return errors.New("-J, --csv and --pcap need files of their own")
	}
	return nil
}

func (p *params) checkTimeout() error {
	if p.cfg.Timeout <= 0 {
		return errors.New("--timeout must be more than 0")
	}
	return nil
}

func (p *params) checkSilence() error {
	c := &p.cfg
	switch {
	case !p.given("silence"):
		c.Spec.PeerTimeout = min(c.Timeout, perf.Silence)
	case c.Silence <= 0 || c.Silence > time.Hour:
		return fmt.Errorf("--silence %v is not more than 0 and at most 1h", c.Silence)
	default:
		c.Spec.PeerTimeout = c.Silence
	}
	return nil
}
