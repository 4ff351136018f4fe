// Command uetswitch is the software Ultra Ethernet switch of the testbed. It forwards
// between the network interfaces of a container or namespace, and makes the faults that
// scenarios ask for.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/internal/cli"
	"github.com/uetkit/uetkit/testbed/netswitch"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// A usage is an error in the command line.
type usage struct{ error }

func (u *usage) Unwrap() error { return u.error }

// run is main with its environment as arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newCommand(stdout, stderr)
	cli.Manual(root, args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil { // whatever failed when everything was stopped
		fmt.Fprintln(stderr, "uetswitch: interrupted")
		return exitInterrupted
	}
	text := cli.Usage(err)
	var u *usage
	if errors.As(err, &u) {
		fmt.Fprintf(stderr, "uetswitch: %s%s (see uetswitch -h)\n", text, cli.MeantFlag(cmd, err))
		return exitUsage
	}
	fmt.Fprintf(stderr, "uetswitch: %s\n", text)
	return exitFailed
}

const rootLong = `uetswitch forwards IP packets between the network interfaces of the container or
network namespace it runs in, through the queues, delays and faults of its configuration.
Hosts have its address as their gateway. It needs Linux and CAP_NET_RAW;
CAP_NET_ADMIN as well to switch segmentation offload off at its interfaces, CAP_SYS_NICE to
be in time on a busy machine.

  uetswitch --config switch.json --http 198.18.16.1:8080 --log decisions.jsonl
  uetswitch bench          what it forwards on this machine

The configuration is JSON: {"fabric": {"seed": 1, "ports": [{"name": "h1", "addrs":
["198.18.16.0/24"], "from": {}, "to": {"rate": "1Gbit/s", "queue": "256KiB"}}, …]},
"interfaces": {"h1": "eth1"}}. A port that is not in "interfaces" takes the one that
has an address within its addrs.

HTTP: GET /healthz, /stats, /series, /config, /metrics; POST /start, /events.

Exit status: 0 ended by SIGINT or SIGTERM, with the log written; 1 it cannot
work here; 2 usage; 130 a benchmark was interrupted.`

// runFlags are the flags of the command run.
type runFlags struct {
	config, http, log string
	logAll, ordinary  bool
	logMax            int64
	seed              uint64
	spin              time.Duration
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var f runFlags
	forward := func(cmd *cobra.Command, _ []string) error {
		seed := &f.seed
		if !cmd.Flags().Changed("seed") {
			seed = nil
		}
		return forward(cmd.Context(), &f, seed, stdout, stderr)
	}
	none := func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &usage{fmt.Errorf("unknown argument %q%s", args[0], cli.Meant(args[0], "run", "bench", "completion"))}
		}
		return nil
	}
	root := &cobra.Command{
		Use: "uetswitch [run] --config FILE [flags]", Short: "the software Ultra Ethernet switch", Long: rootLong,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              none, RunE: forward,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usage{err} })
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	again := &cobra.Command{Use: "run --config FILE [flags]", Short: "forward (what it does without a command)", Args: none, RunE: forward}
	for _, c := range []*cobra.Command{root, again} {
		fl := c.Flags()
		fl.SortFlags = false
		fl.StringVar(&f.config, "config", "", "JSON file with the fabric and its interfaces; -: standard input")
		fl.StringVar(&f.http, "http", "", "address to answer HTTP at, as 198.18.16.1:8080; none: nowhere")
		fl.StringVar(&f.log, "log", "", "file for a JSON line per decision about a packet; -: standard output")
		fl.BoolVar(&f.logAll, "log-all", false, "log packets that nothing happened to as well")
		fl.Int64Var(&f.logMax, "log-max", netswitch.DefaultLogMax, "most bytes of log; what is more is counted in /stats")
		fl.Uint64Var(&f.seed, "seed", 0, "replaces the seed of the configuration")
		fl.BoolVar(&f.ordinary, "no-priority", false, "forward without real-time priority, even if it may have it (CAP_SYS_NICE)")
		fl.DurationVar(&f.spin, "spin", netswitch.DefaultSpin, "how long before a packet is due the switch may stay awake for it; 0: it sleeps")
		cli.Files(c, "config", "json")
		cli.Files(c, "log")
		cli.Free(c, "http", "log-max", "seed", "spin")
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	cli.Version(root)
	root.AddCommand(again, newBench(stdout))
	return root
}

// forward runs the command run.
func forward(ctx context.Context, f *runFlags, seed *uint64, stdout, stderr io.Writer) error {
	switch {
	case f.config == "":
		return &usage{errors.New("--config: give the file with the fabric")}
	case f.logMax <= 0:
		return &usage{fmt.Errorf("--log-max %d: give a number of bytes above 0", f.logMax)}
	case f.spin < 0 || f.spin > time.Second:
		return &usage{fmt.Errorf("--spin %v: give 0 to 1s", f.spin)}
	}
	cfg, err := netswitch.ReadConfig(f.config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if seed != nil {
		cfg.Fabric.Seed = *seed
	}
	o := netswitch.Options{Config: cfg, HTTP: f.http, LogAll: f.logAll, LogMax: f.logMax, Spin: f.spin, NoPriority: f.ordinary}
	if f.spin == 0 {
		o.Spin = -1
	}
	switch f.log {
	case "":
	case "-":
		o.Log = keepOpen{stdout}
	default:
		if o.Log, err = os.Create(f.log); err != nil {
			return fmt.Errorf("--log: %w", err)
		}
	}
	// A garbage collection stops the thread that forwards. Forwarding allocates little, so
	// with more memory there are hardly any collections.
	debug.SetGCPercent(800)
	s, err := netswitch.Open(o)
	if err != nil {
		return err
	}
	where := make([]string, 0, len(cfg.Fabric.Ports))
	devs := s.Interfaces()
	for i := range cfg.Fabric.Ports {
		name := cfg.Fabric.Ports[i].Name
		where = append(where, name+" on "+devs[name])
	}
	if a := s.Addr(); a != nil {
		where = append(where, "http://"+a.String())
	}
	fmt.Fprintf(stderr, "uetswitch: forwarding: %s\n", strings.Join(where, ", "))
	return s.Run(ctx)
}

// keepOpen is an output that Close does not close, because the caller owns it.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// newBench makes the command bench.
func newBench(stdout io.Writer) *cobra.Command {
	var cfg netswitch.BenchConfig
	var quick, asJSON bool
	c := &cobra.Command{
		Use: "bench [flags]", Short: "measure how many packets a second one core forwards here",
		Long: `bench sends UDP packets from one network namespace through the switch to another and
finds the highest rate at which none is lost. The switch runs on one processor, the
sender on another. The namespaces have no name and end with the program.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usage{fmt.Errorf("unknown argument %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quick {
				q := netswitch.Quick
				if cmd.Flags().Changed("size") {
					q.Sizes = cfg.Sizes
				}
				cfg = q
			}
			r, err := netswitch.Bench(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(stdout)
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			return printBench(stdout, r)
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.IntSliceVar(&cfg.Sizes, "size", []int{1400, 100}, "lengths of the IP packets in bytes")
	fl.DurationVar(&cfg.Trial, "trial", time.Second, "how long packets are sent at one rate")
	fl.IntVar(&cfg.Steps, "steps", 8, "how many rates are tried")
	fl.BoolVar(&quick, "quick", false, "less than two seconds per size, 1400 bytes only unless --size is given")
	fl.BoolVarP(&asJSON, "json", "J", false, "print JSON")
	cli.Free(c, "size", "trial", "steps")
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

func printBench(out io.Writer, r *netswitch.BenchResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "bytes\tpackets/s without loss\tGbit/s\toffered/s\tforwarded of it/s\tns/packet\t\n")
	for _, s := range r.Speeds {
		fmt.Fprintf(w, "%d\t%.0f\t%.2f\t%.0f\t%.0f\t%d\t\n", s.Size, s.PPS, s.PPS*float64(s.Size)*8/1e9, s.Offered, s.Overload, s.CPU.Nanoseconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.SwitchCPU == r.LoadCPU {
		_, err := fmt.Fprintln(out, "one processor alone: the rate is what the switch's share of its time allows")
		return err
	}
	return nil
}
