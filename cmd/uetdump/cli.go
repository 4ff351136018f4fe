package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uetkit/uetkit/internal/cli"
	"github.com/uetkit/uetkit/internal/spelling"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Config is what one call of uetdump does.
type Config struct {
	File     string // - is standard input
	Ports    map[uint16]bool
	AllPorts bool
	Keys     string // cluster key file, empty: none

	Verbose, Hex, Trailers, JSON, UTC bool

	PDC     *pdcName // follow it; nil: none
	Msg     int      // follow this message; -1: none
	Summary bool     // the table of PDCs and no packets
	Explain bool     // what PDCs wait for
	Ops     bool     // operations instead of packets
	At      moment   // when the capture ends for Summary and Explain

	// Filters. Packets that are not printed are analysed all the same.
	Host         netip.Addr // invalid: all
	Types        map[string]bool
	Since, Until moment
	Count        int // 0: no limit
}

// follows reports whether packets are printed as packets of a PDC.
func (c *Config) follows() bool { return c.PDC != nil || c.Msg >= 0 }

// later reports whether something is printed after the last packet.
func (c *Config) later() bool { return c.Summary || c.Explain || c.follows() }

// A moment is a time in a capture, counted from its beginning or as a time of day.
type moment struct {
	set   bool
	rel   bool
	after time.Duration
	at    time.Time
	// clock says that at has only the time of day; the capture determines the day.
	clock bool
}

// in returns the moment as a time, for a capture that begins at first.
func (m *moment) in(first time.Time) time.Time {
	switch {
	case m.rel:
		return first.Add(m.after)
	case m.clock:
		first = first.In(m.at.Location())
		y, mo, d := first.Date()
		t := time.Date(y, mo, d, m.at.Hour(), m.at.Minute(), m.at.Second(), m.at.Nanosecond(), m.at.Location())
		if t.Before(first.Add(-12 * time.Hour)) {
			t = t.AddDate(0, 0, 1) // after midnight
		}
		return t
	}
	return m.at
}

// parseMoment reads "1.5s" from the beginning, "15:04:05.123" or a time of RFC 3339.
func parseMoment(s string, utc bool) (moment, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return moment{set: true, rel: true, after: d}, nil
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil && v > -1e9 && v < 1e9 {
		return moment{set: true, rel: true, after: time.Duration(v * float64(time.Second))}, nil
	}
	loc := time.Local
	if utc {
		loc = time.UTC
	}
	if t, err := time.ParseInLocation("15:04:05", s, loc); err == nil {
		return moment{set: true, clock: true, at: t}, nil
	}
	if t, err := time.ParseInLocation(time.RFC3339, s, loc); err == nil {
		return moment{set: true, at: t}, nil
	}
	return moment{}, fmt.Errorf("%q is no time: give seconds from the beginning (1.5, 20ms), 15:04:05.123 or 2006-01-02T15:04:05Z", s)
}

const rootLong = `uetdump prints the Ultra Ethernet Transport packets of a capture, one a line: time,
seconds since the first one, source > destination, entropy value, headers, and why
it was sent where the capture says so (files of uetperf --pcap do).

  uetdump x.pcapng                     every packet
  tcpdump -i lo -w - udp | uetdump -   while it happens
  uetdump --summary x.pcapng           the table of PDCs
  uetdump --pdc 3 x.pcapng             one of them, PSNs from its first one on
  uetdump --explain x.pcapng           what each one waits for at the end
  uetdump --ops x.pcapng               writes, reads, atomics, messages, one a line

A UDP datagram is UET if one of its ports is, or if its CRC verifies; then all of
its flow is. Trains that the kernel splits or joins (GSO, GRO) are shown as the
packets they are.

Exit status: 0 all well, 1 the capture cannot be read to its end (what could be is
printed), 2 usage.`

// typeNames are the groups that --type knows.
var typeNames = []string{"req", "ack", "nack", "cp", "rudi", "uud", "tss"}

// typeOf returns the group of a packet.
func typeOf(t wire.Type) string {
	switch t {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		return "req"
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		return "ack"
	case wire.TypeNack, wire.TypeNackCCX:
		return "nack"
	case wire.TypeCP:
		return "cp"
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		return "rudi"
	case wire.TypeUUDReq:
		return "uud"
	case wire.TypeTSS:
		return "tss"
	}
	return ""
}

// parse turns a command line into a Config. If it returns none, help was printed or the
// command line is wrong, and the exit code is final.
func parse(args []string, stdout, stderr io.Writer) (*Config, int) {
	cfg := &Config{}
	chosen := false
	root := newCommand(cfg, &chosen)
	cli.Manual(root, args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		text := cli.Usage(err)
		if hint := instead(root, err); hint != "" {
			text += "; " + hint
		}
		fmt.Fprintf(stderr, "uetdump: %s (see uetdump -h)\n", text)
		return nil, exitUsage
	}
	if !chosen {
		return nil, exitOK
	}
	return cfg, exitOK
}

// instead says what there is instead of a flag that other programs have, "" if nothing comes to
// mind.
func instead(cmd *cobra.Command, err error) string {
	var flag *pflag.NotExistError
	if !errors.As(err, &flag) {
		return ""
	}
	name := flag.GetSpecifiedName()
	if s := flag.GetSpecifiedShortnames(); s != "" {
		name = name[:1]
	}
	if text := habits[name]; text != "" || len(name) < 3 {
		return text
	}
	var there []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { there = append(there, f.Name) })
	if near := spelling.Closest(name, there, len(name)/3+1); near != "" {
		return "did you mean --" + near + "?"
	}
	return ""
}

// habits are flags of tcpdump and tshark, and words of our own commands, that uetdump does not
// have.
var habits = map[string]string{
	"i":      "uetdump captures nothing itself: tcpdump -i eth0 -w - udp | uetdump -",
	"w":      "uetdump writes no captures: take tcpdump -w or uetperf --pcap",
	"n":      "names are never looked up: leave it out",
	"Y":      "filters are flags: --host, --port, --type, --pdc, --msg",
	"f":      "filters are flags: --host, --port, --type, --pdc, --msg",
	"follow": "a PDC is followed by --pdc, a message by --msg",
	"filter": "filters are flags: --host, --port, --type, --pdc, --msg",
	"key":    "the cluster key is --keys FILE",
	"output": "the output goes to standard output: uetdump FILE > text",
	"pcap":   "the capture stands alone: uetdump FILE",
	"read":   "the capture stands alone: uetdump FILE",
}

// flags are the options as given on the command line.
type flags struct {
	ports, types       []string
	host, since, until string
	pdc, msg, at       string
}

func newCommand(cfg *Config, chosen *bool) *cobra.Command {
	var of flags
	root := &cobra.Command{
		Use: "uetdump [flags] FILE|-", Short: "captures of Ultra Ethernet Transport as text", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 && strings.Contains(args[0], " ") {
				return fmt.Errorf("%q is a filter of tcpdump: here filters are flags, --host, --port, --type, --pdc, --msg", args[0])
			}
			if len(args) != 1 {
				return fmt.Errorf("give one capture file, or - for standard input, not %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cfg.File = args[0]
			if err := of.fill(cfg); err != nil {
				return err
			}
			*chosen = true
			return nil
		},
	}
	fl := root.Flags()
	fl.SortFlags = false
	fl.BoolVarP(&cfg.Verbose, "verbose", "v", false, "every header on a line of its own, with what follows from its fields")
	fl.BoolVarP(&cfg.Hex, "hex", "x", false, "the bytes of each packet, from the PDS or security header on")
	fl.BoolVarP(&cfg.Trailers, "crc", "r", false, "what is behind each packet: crc=ok, bad, none, cut, icv, ok-aside")
	fl.BoolVarP(&cfg.JSON, "json", "J", false, "one JSON object a line")
	fl.BoolVar(&cfg.UTC, "utc", false, "times in UTC, not of this host's zone")
	fl.StringArrayVar(&of.ports, "port", []string{strconv.Itoa(wire.Port)}, "UDP port that is UET; may be given several times; all: every one")
	fl.StringVar(&cfg.Keys, "keys", "", "cluster key file: opens packets sealed with its keys")
	fl.StringVar(&of.pdc, "pdc", "", "follow one PDC, both directions: its number in the summary, or ADDRESS/PDCID of one end")
	fl.StringVar(&of.msg, "msg", "", "follow the message with this id: its packets and what answers them")
	fl.BoolVar(&cfg.Ops, "ops", false, "operations instead of packets: request, what came back, result and time, one a line, in the order of their ends")
	fl.BoolVar(&cfg.Summary, "summary", false, "print only the table of PDCs, with --ops that of operations by kind")
	fl.BoolVar(&cfg.Explain, "explain", false, "say of each PDC that is owed something at the end what it waits for")
	fl.StringVar(&of.at, "at", "", "the end is this time: as of --since")
	fl.StringVar(&of.host, "host", "", "print only what this IP address sent or received")
	fl.StringSliceVar(&of.types, "type", nil, "print only packets of these types: "+strings.Join(typeNames, ", "))
	fl.StringVar(&of.since, "since", "", "print only what came at or after this time: seconds from the first packet, or a time of day")
	fl.StringVar(&of.until, "until", "", "print only what came before this time")
	fl.IntVarP(&cfg.Count, "count", "c", 0, "stop after so many packets; 0: never")
	cli.Values(root, "type", typeNames...)
	cli.Values(root, "port", strconv.Itoa(wire.Port), "all")
	cli.Files(root, "keys")
	cli.Free(root, "pdc", "msg", "at", "host", "since", "until", "count")
	root.ValidArgsFunction = cli.FilesOf("pcap", "pcapng", "cap")
	cli.Version(root)
	return root
}

// fill checks the options and copies them to cfg.
func (o *flags) fill(cfg *Config) error {
	cfg.Ports = map[uint16]bool{}
	for _, s := range o.ports {
		if s == "all" {
			cfg.AllPorts = true
			continue
		}
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("--port: %q is no UDP port: give 1 to 65535, or all", s)
		}
		cfg.Ports[uint16(n)] = true
	}
	var err error
	if o.pdc != "" {
		if cfg.PDC, err = parsePDC(o.pdc); err != nil {
			return fmt.Errorf("--pdc: %w", err)
		}
	}
	if cfg.Msg = -1; o.msg != "" {
		id, err := strconv.ParseUint(o.msg, 0, 16)
		if err != nil {
			return fmt.Errorf("--msg: %q is no message id: give 0 to 65535, or 0x0 to 0xffff", o.msg)
		}
		cfg.Msg = int(id)
	}
	if o.at != "" {
		if cfg.At, err = parseMoment(o.at, cfg.UTC); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	if o.host != "" {
		if cfg.Host, err = netip.ParseAddr(o.host); err != nil {
			return fmt.Errorf("--host: %q is no IP address, and names are not looked up", o.host)
		}
		cfg.Host = cfg.Host.Unmap()
	}
	for _, s := range o.types {
		ok := false
		for _, n := range typeNames {
			ok = ok || n == s
		}
		if !ok {
			return fmt.Errorf("--type: %q is none of %s", s, strings.Join(typeNames, ", "))
		}
		if cfg.Types == nil {
			cfg.Types = map[string]bool{}
		}
		cfg.Types[s] = true
	}
	if cfg.Ops {
		switch {
		case cfg.Types != nil:
			return errors.New("--type picks packets, and --ops prints operations: leave out one of both")
		case cfg.Verbose || cfg.Hex || cfg.Trailers:
			return errors.New("-v, -x and -r are about packets, and --ops prints operations: leave them out, or --ops")
		}
	}
	if o.since != "" {
		if cfg.Since, err = parseMoment(o.since, cfg.UTC); err != nil {
			return fmt.Errorf("--since: %w", err)
		}
	}
	if o.until != "" {
		if cfg.Until, err = parseMoment(o.until, cfg.UTC); err != nil {
			return fmt.Errorf("--until: %w", err)
		}
	}
	if a, b := cfg.Since, cfg.Until; a.set && b.set && (a.rel && b.rel && a.after >= b.after || !a.rel && !b.rel && !a.clock && !b.clock && !a.at.Before(b.at)) {
		return fmt.Errorf("--until %s is not after --since %s: nothing lies between", o.until, o.since)
	}
	if cfg.Count < 0 {
		return fmt.Errorf("--count: %d packets; give a number from 1", cfg.Count)
	}
	return nil
}
