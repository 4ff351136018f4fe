package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/cli"
)

// parse turns a command line into a Config. It returns nil when there is nothing to run,
// because help was printed or the command line is wrong; the exit code is then final.
func parse(args []string, stdout, stderr io.Writer) (*Config, int) {
	l := &line{base: Config{Args: append([]string{"uetperf"}, args...), Stdin: os.Stdin}}
	root := l.root()
	cli.Manual(root, args)
	root.SetArgs(args)
	said := &watched{w: stdout}
	root.SetOut(said)
	root.SetErr(stderr)
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// cobra answers a request for help on an unknown word with the help of the command above
		// it. That is an error here.
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
			to, _, _ := cmd.Find(words)
			if to == nil || to == cmd {
				unknown = notThere(cmd, words[0])
				return
			}
			cmd = to // -h stood in front of it
			cmd.InitDefaultHelpFlag()
		}
		help(cmd, args)
	})
	cmd, err := root.ExecuteC()
	if err := said.lost(); err != nil {
		return nil, complain(err, stderr)
	}
	if err = cmp.Or(err, unknown); err != nil {
		if cmd.Name() == "help" {
			cmd = root
		}
		if silent(cmd.Name()) {
			return nil, exitUsage
		}
		text := usageText(err)
		if hint := instead(cmd, err); hint != "" {
			text += "; " + hint
		}
		fmt.Fprintf(stderr, "uetperf: %s (see %s -h)\n", text, cmd.CommandPath())
		return nil, exitUsage
	}
	return l.chosen, exitOK
}

// usageText turns an error of cobra or pflag into one line: the option, the value and what
// is wrong with it.
func usageText(err error) string {
	if all := (whole{}); errors.As(err, &all) {
		err = all
	}
	return cli.Usage(err)
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

Between many hosts, each with "uetperf serve --mesh":

  uetperf mesh     HOST HOST HOST
  uetperf alltoall HOST HOST HOST
  uetperf incast   HOST --from HOST,HOST

Between ranks, below mpiexec, srun or mpirun, or by itself:

  mpiexec -n 4 uetperf coll allreduce
  uetperf p2p latency

Secured, with connections and certificates (the folder goes to both hosts):

  uetperf keys  FOLDER
  uetperf serve --keys FOLDER
  uetperf lat   HOST -e msg --sec tls --keys FOLDER

Exit status: 0 all well, 1 a test or an assertion failed, 2 usage, 3 the host
could not be reached, 130 interrupted.`

// notThere is the error for a command that does not exist. It lists those that do.
func notThere(cmd *cobra.Command, name string) error {
	there := "there are serve, ping, lat, bw, rate, load, rr, incast, soak, mesh, alltoall, coll, p2p, report, compare, keys, info, doctor"
	if cmd.HasParent() {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		there = "there are " + strings.Join(names, ", ")
	}
	_, names, _ := strings.Cut(there, "there are ")
	if hint := insteadOf(name, strings.Split(names, ", ")); hint != "" {
		there = hint + " " + strings.ToUpper(there[:1]) + there[1:]
	}
	return fmt.Errorf("unknown command %q: %s", name, there)
}

// helpCommand is cobra's help command, except that it refuses names that are not commands.
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

// A line is a command line while it is read.
type line struct {
	base   Config  // what all commands share
	chosen *Config // the Config of the command; nil until the command line is read
}

// command adds the flags that the table has for c. When all flags are read, take, if not
// nil, consumes the arguments; then the flags are checked; then after, if not nil, does the
// rest.
func (l *line) command(c *cobra.Command, name string, t testDef, take func(p *params, args []string) error, after func(*params) error) *cobra.Command {
	p := &params{command: name, test: t, cfg: l.base}
	if p.cfg.Command = name; name == selfName {
		p.cfg.Command = ""
	}
	p.addTo(c.Flags())
	p.completeFlags(c)
	completeArgs(c, t)
	c.RunE = func(_ *cobra.Command, args []string) (err error) {
		p.cfg.CPUProfile = l.base.CPUProfile
		if take != nil {
			err = take(p, args)
		}
		if err == nil {
			err = p.check()
		}
		if err == nil && after != nil {
			err = after(p)
		}
		if err == nil {
			l.chosen = &p.cfg
		}
		return err
	}
	return c
}

// root makes the command line with all commands.
func (l *line) root() *cobra.Command {
	root := l.command(&cobra.Command{
		Use: "uetperf", Short: "performance of Ultra Ethernet Transport over UDP", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return notThere(cmd, args[0])
		},
	}, selfName, testDef{}, nil, func(p *params) error {
		p.cfg.Timeout = 10 * time.Second
		return nil
	})
	cli.Version(root)
	root.PersistentFlags().StringVar(&l.base.CPUProfile, "cpuprofile", "", "write a CPU profile to `FILE`")
	_ = root.PersistentFlags().MarkHidden("cpuprofile")
	root.AddCommand(l.serve(), l.keys(), l.info(), l.doctor(), l.report(), l.compare())
	for _, t := range rackTests {
		root.AddCommand(l.rack(t))
	}
	for _, t := range betweenTests {
		root.AddCommand(l.between(t))
	}
	for _, t := range tests {
		t.Usual, _ = traffic.UsualOf(t.name)
		root.AddCommand(l.test(t))
	}
	root.SetHelpCommand(helpCommand())
	return root
}

func (l *line) serve() *cobra.Command {
	return l.command(&cobra.Command{
		Use: "serve", Short: "be the other end of tests",
		Long: `serve is the other end of tests. It needs no options: clients say what to run, and
many may do so at once, each with endpoints of its own.

It listens on every IP address of the host, UDP port ` + strconv.Itoa(perf.Port) + ` and the ones behind it; the
endpoints of tests have ports of their own. Clients name the first:

  ` + portTable() + `

Those with --sec are open with --keys; the last one answers what uetperf doctor sends,
with no more than it got. Whoever reaches the first two can run tests:
do not leave them open to networks that you do not trust.`,
		Args: atMost(0),
	}, "serve", testDef{}, nil, nil)
}

func (l *line) info() *cobra.Command {
	return l.command(&cobra.Command{
		Use: "info", Short: "what this host offers, as fi_info shows it",
		Long: `info shows what uet.GetInfo finds on this host, one entry per address of an
interface, and what the system gave when a socket was opened there: GSO, GRO,
ECN, buffers. With --explain it also says what is not offered, and why.`,
		Args: atMost(0),
	}, "info", testDef{}, nil, nil)
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// atMost refuses more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return fmt.Errorf("unexpected %q", args[n])
		}
		return nil
	}
}

// portTable says which service has which port, one line each.
func portTable() string {
	var b []string
	for i, s := range perf.Services() {
		b = append(b, fmt.Sprintf("%d  %s", perf.Port+i, s))
	}
	b = append(b, fmt.Sprintf("%d  probes", perf.Port+perf.ProbePort))
	return strings.Join(b, "\n  ")
}

func (l *line) keys() *cobra.Command {
	return l.command(&cobra.Command{
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
	}, "keys", testDef{}, func(p *params, args []string) error {
		c := &p.cfg
		c.Keys, c.Members = args[0], args[1:]
		switch {
		case c.Rotate && c.Remove != "":
			return errors.New("--rotate and --remove are two things: do one after the other")
		case (c.Rotate || c.Remove != "") && len(c.Members) > 0:
			return fmt.Errorf("unexpected %q: new members need a new folder", c.Members[0])
		}
		return nil
	}, nil)
}

func versionLine() string {
	t := perf.ThisTool()
	s := "uetperf " + t.Version
	if t.Commit != "" {
		s += " " + t.Commit[:min(12, len(t.Commit))]
	}
	return s + " " + t.Go
}
