package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/internal/cli"
	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// config is one invocation.
type config struct {
	substrate string
	seed      uint64
	only      []string
	keep      bool
	parallel  int
	out       string
	switchLog bool
	quiet     bool
	images    []string
	bin       string
	noBench   bool

	// Of all commands.
	prefix string
	base   string

	stdout, stderr io.Writer
}

// An exit is an exit status whose reason has been printed.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// A failure is an error that is not a mistake in the command line.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// run runs a command line and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := &config{stdout: stdout, stderr: stderr}
	root := newCommand(cfg)
	cli.Manual(root, args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// Help for an unknown command is an error: cobra would show the help of the parent
		// command.
		if words := cmd.Flags().Args(); cmd == root && len(words) > 0 {
			if cmd, _, _ = root.Find(words); cmd == nil || cmd == root {
				unknown = root.Args(root, words)
				return
			}
			cmd.InitDefaultHelpFlag()
		}
		help(cmd, args)
	})
	cmd, err := root.ExecuteContextC(ctx)
	err = cmp.Or(err, unknown)
	var code exit
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "testbed: interrupted")
		return exitInterrupted
	case errors.As(err, &f):
		fmt.Fprintf(stderr, "testbed: %s\n", oneLine(err))
		return exitFailed
	}
	fmt.Fprintf(stderr, "testbed: %s%s (see %s -h)\n", oneLine(err), cli.MeantFlag(cmd, err), cmd.CommandPath())
	return exitUsage
}

func oneLine(err error) string { return cli.Usage(err) }

const rootLong = `testbed plays scenarios: hosts that talk Ultra Ethernet Transport over a software switch
that loses, delays, trims and breaks what the scenario says, and judges what came of it.

  testbed list
  testbed run clean loss-1
  testbed run --only ci --substrate netns
  testbed new ./mine && testbed run ./mine --substrate sim --seed 7

The same scenario runs on containers (docker), in network namespaces (netns, as root),
and in the simulator (sim). auto takes the first of these that can be used here, and says
why it passes one over.

Results go to a folder: result.json, logs, captures and the switch's decisions of each
run, report.html for people, junit.xml for CI.

Exit status: 0 all passed (inconclusive runs, on a machine that was too slow to tell, are
shown), 1 one failed or could not be run, 2 usage, 127 none is supported here, 130
interrupted.`

// commands are those that people use.
var commands = []string{"list", "new", "explain", "up", "run", "watch", "report", "down"}

// substrates are the values of --substrate.
var substrates = []string{"docker", "netns", "sim", "auto"}

func newCommand(cfg *config) *cobra.Command {
	root := &cobra.Command{
		Use: "testbed", Short: "Ultra Ethernet Transport on a bad network", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q: there are %s%s", args[0], strings.Join(commands, ", "), cli.Meant(args[0], commands...))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&cfg.prefix, "prefix", lab.DefaultPrefix, "`NAME` that begins the names of containers, networks and namespaces")
	f.StringVar(&cfg.base, "base", scenario.Base.Addr().String(), "`ADDRESS` of the first network of the first lab; there must be room behind it")
	cli.Version(root)
	cli.Free(root, "prefix", "base")
	root.AddCommand(listCommand(cfg), newScenarioCommand(cfg), explainCommand(cfg), upCommand(cfg), runCommand(cfg), watchCommand(cfg), reportCommand(cfg), downCommand(cfg), agentCommand(cfg))
	return root
}

// registry opens the registry of the labs of this machine.
func (cfg *config) registry() (*lab.Registry, error) {
	a, err := netip.ParseAddr(cfg.base)
	if err != nil {
		return nil, fmt.Errorf("--base %q is no address, such as %s", cfg.base, scenario.Base.Addr())
	}
	base, err := a.Prefix(24)
	if err != nil {
		return nil, fmt.Errorf("--base %q is no address, such as %s", cfg.base, scenario.Base.Addr())
	}
	return lab.Open(cfg.prefix, base, "")
}

func (cfg *config) addLab(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.substrate, "substrate", "auto", "`KIND` of lab: docker, netns, sim, or auto, the first that can be used here")
	f.Uint64Var(&cfg.seed, "seed", 0, "`N` that decides everything random (default random; it is printed)")
	f.StringSliceVar(&cfg.images, "image", nil, "containers of another implementation: `ROLE=IMAGE`, role server or client (repeatable; testbed/README.md has the contract)")
	f.StringVar(&cfg.bin, "bin", "", "`FOLDER` with the programs testbed, uetperf and uetswitch (default: beside this program, or built here)")
	f.BoolVarP(&cfg.quiet, "quiet", "q", false, "no progress")
	cli.Values(c, "substrate", substrates...)
	cli.Values(c, "image", "server=", "client=")
	cli.Folders(c, "bin")
	cli.Free(c, "seed")
}

// checkImages reads --image.
func (cfg *config) checkImages() (map[string]string, error) {
	m := map[string]string{}
	for _, s := range cfg.images {
		role, image, ok := strings.Cut(s, "=")
		if !ok || image == "" || role != "server" && role != "client" {
			return nil, fmt.Errorf("--image %q is not server=IMAGE or client=IMAGE", s)
		}
		m[role] = image
	}
	if len(m) > 0 && cfg.substrate != "docker" && cfg.substrate != "auto" {
		return nil, fmt.Errorf("--image needs --substrate docker, not %s", cfg.substrate)
	}
	if len(m) > 0 {
		cfg.substrate = "docker"
	}
	return m, nil
}

func (cfg *config) checkSubstrate() error {
	if slices.Contains(substrates, cfg.substrate) {
		return nil
	}
	return fmt.Errorf("--substrate %q is not docker, netns, sim or auto%s", cfg.substrate, cli.Meant(cfg.substrate, substrates...))
}

func runCommand(cfg *config) *cobra.Command {
	c := &cobra.Command{
		Use: "run [SCENARIO...]", Short: "play scenarios and judge them",
		Long: `run plays scenarios: the named ones, or all but those tagged "long". A scenario is the
name of one that the program carries, or the path of a folder with a scenario.toml.`,
		Example: "  testbed run clean\n  testbed run --only 'ci,loss-*' --parallel 2\n  testbed run loss-1 --substrate netns --seed 42 --keep",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cfg.checkSubstrate(); err != nil {
				return err
			}
			if cfg.parallel < 1 || cfg.parallel > lab.Max {
				return fmt.Errorf("--parallel %d is not 1 to %d", cfg.parallel, lab.Max)
			}
			if cmd.Flags().Changed("seed") && cfg.seed == 0 {
				return errors.New("--seed 0 is not at least 1: leave it out for a random one")
			}
			if cfg.keep && cfg.substrate == "sim" {
				return errors.New("--keep: the simulator leaves nothing to keep")
			}
			return cfg.runScenarios(cmd.Context(), args)
		},
	}
	cfg.addLab(c)
	f := c.Flags()
	f.StringSliceVar(&cfg.only, "only", nil, "`TAGS` or names (with * and ?), by comma: only scenarios that have one")
	f.IntVar(&cfg.parallel, "parallel", 1, "play `N` scenarios at once, each in a lab of its own")
	f.StringVar(&cfg.out, "out", "testbed-results", "`FOLDER` for results")
	f.BoolVar(&cfg.keep, "keep", false, "leave labs up; \"testbed down\" takes them down")
	f.BoolVar(&cfg.switchLog, "switch-log", false, "log every packet that passes the switch, not only what happened to some")
	f.BoolVar(&cfg.noBench, "no-bench", false, "do not measure what the switch forwards here")
	cli.Folders(c, "out")
	cli.Free(c, "parallel")
	cli.Lazy(c, "only", tagsAndNames)
	c.ValidArgsFunction = scenarioArgs
	return c
}

func listCommand(cfg *config) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "show the scenarios, one a line", Args: none,
		RunE: func(*cobra.Command, []string) error { return cfg.list() },
	}
	c.Flags().StringSliceVar(&cfg.only, "only", nil, "`TAGS` or names (with * and ?), by comma")
	cli.Lazy(c, "only", tagsAndNames)
	return c
}

func upCommand(cfg *config) *cobra.Command {
	c := &cobra.Command{
		Use: "up SCENARIO", Short: "bring the lab of a scenario up and leave it",
		Long: `up brings up the switch and the hosts of a scenario, with servers running and clients
idle, and leaves them: to try commands by hand. watch shows what goes on, down takes all
down.`,
		Args: one("SCENARIO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cfg.checkSubstrate(); err != nil {
				return err
			}
			return cfg.up(cmd.Context(), args[0])
		},
	}
	cfg.addLab(c)
	c.ValidArgsFunction = scenarioArgs
	return c
}

// scenarioArgs completes names of scenarios; folders are left to the shell.
func scenarioArgs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return scenario.Names(), cobra.ShellCompDirectiveDefault
}

// tagsAndNames are the words that --only takes.
func tagsAndNames() []string {
	words := scenario.Names()
	for _, name := range words {
		if sc, err := scenario.Load(name); err == nil {
			for _, t := range sc.Tags {
				if !slices.Contains(words, t) {
					words = append(words, t)
				}
			}
		}
	}
	return words
}

func none(_ *cobra.Command, args []string) error { return cli.None(args) }

func one(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s, not %d", c.Name(), what, len(args))
		}
		return nil
	}
}

func downCommand(cfg *config) *cobra.Command {
	var images bool
	c := &cobra.Command{
		Use: "down", Short: "take down labs that were left up, and what killed runs left", Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return cfg.down(cmd.Context(), images) },
	}
	c.Flags().BoolVar(&images, "images", false, "remove the images that were built for labs, too")
	return c
}

func watchCommand(cfg *config) *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "watch", Short: "show what goes on in the labs that are up", Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return cfg.watch(cmd.Context(), once) },
	}
	c.Flags().BoolVar(&once, "once", false, "print it once and end")
	return c
}

func reportCommand(cfg *config) *cobra.Command {
	return &cobra.Command{
		Use: "report FOLDER", Short: "make report.html and junit.xml of results again", Args: one("FOLDER"),
		RunE: func(_ *cobra.Command, args []string) error { return cfg.report(args[0]) },
	}
}

// agentCommand is the command that runs inside labs.
func agentCommand(cfg *config) *cobra.Command {
	c := &cobra.Command{Use: "agent", Hidden: true, Args: none, RunE: func(*cobra.Command, []string) error {
		return errors.New("agent runs inside labs: host, switch, enter")
	}}
	beside := func(name string) string {
		self, err := os.Executable()
		if err != nil {
			return name
		}
		return filepath.Join(filepath.Dir(self), name)
	}
	code := func(n int) error {
		if n == 0 {
			return nil
		}
		return exit(n)
	}
	var socket string
	host := &cobra.Command{Use: "host", Args: none, RunE: func(cmd *cobra.Command, _ []string) error {
		return code(agent.Host(cmd.Context(), os.Getenv, beside("uetperf"), cfg.stdout, cfg.stderr))
	}}
	sw := &cobra.Command{Use: "switch -- ARGUMENT...", RunE: func(cmd *cobra.Command, args []string) error {
		return code(agent.Switch(cmd.Context(), beside("uetswitch"), socket, args, cfg.stdout, cfg.stderr))
	}}
	sw.Flags().StringVar(&socket, "socket", "/out/http.sock", "unix socket for HTTP")
	enter := &cobra.Command{Use: "enter NAMESPACE -- ARGUMENT...", Args: cobra.MinimumNArgs(2), RunE: func(_ *cobra.Command, args []string) error {
		return &failure{agent.Enter(args[0], args[1:])}
	}}
	c.AddCommand(host, sw, enter)
	return c
}
