package lint

// A Table says who may import whom.
type Table struct {
	// Anywhere are packages that every other may import.
	Anywhere []string
	// Tests are packages that the tests of every package may import, and
	// TestModules the modules of others that they may.
	Tests       []string
	TestModules []string
	Rows        []Row
}

// A Row is one package, or a pattern of them. The first that matches counts.
type Row struct {
	Dir string
	// May are the packages of this module it may import; Foreign the modules of
	// others. The standard library is free but for Core.
	May, Foreign []string
	// TestsMay are further packages that its tests may import.
	TestsMay []string
	// Core packages are state machines: no clock, goroutine, socket, lock or
	// global randomness (see core.go).
	Core bool
	// Std are packages of the standard library that a Core package may import
	// beyond coreStd.
	Std []string
	// Why each arrow that is more than the layering needs.
	Why string
}

func (t *Table) row(dir string) *Row {
	for i := range t.Rows {
		if matchAny([]string{t.Rows[i].Dir}, dir) {
			return &t.Rows[i]
		}
	}
	return nil
}

// House is the table of this module.
var House = Table{
	Anywhere: []string{"internal/invariant", "internal/window", "internal/units"},
	Tests:    []string{"transport/sim", "transport/sim/simtest"},
	TestModules: []string{
		"pgregory.net/rapid",
		"go.uber.org/goleak",
		"github.com/google/go-cmp",
		"github.com/rogpeppe/go-internal",
		"github.com/anishathalye/porcupine",
		"github.com/cockroachdb/datadriven",
		"golang.org/x/net",
		"golang.org/x/sys",
		"go.uber.org/zap",
	},
	Rows: []Row{
		// Leaves.
		{Dir: "fi"},
		{Dir: "transport/wire", Core: true},
		{Dir: "transport/dgram", Core: true},
		{Dir: "internal/invariant"},
		{Dir: "internal/agenda", Core: true},
		{
			Dir: "internal/wait", May: []string{"fi"}, Foreign: []string{"golang.org/x/sys"},
			Why: "the one wait object below every queue and counter; golang.org/x/sys for its descriptor",
		},
		{
			Dir: "internal/page", Foreign: []string{"gonum.org/v1/plot"},
			Why: "the look of offline HTML reports, for uetperf and the testbed",
		},
		{
			Dir: "internal/recview", May: []string{"internal/page", "cmd/uetperf/record"}, Foreign: []string{"github.com/HdrHistogram/hdrhistogram-go"},
			Why: "how records of uetperf look on a page: the reports of uetperf and of the testbed show them alike",
		},
		{
			Dir: "internal/plant", Foreign: []string{"github.com/BurntSushi/toml"},
			Why: "the tables of planted bugs are TOML, as the scenarios are",
		},
		{
			Dir: "internal/door", May: []string{"fi", "internal/wait"},
			Why: "the provider's side of queues, counters and vectors, which their packages hide from users",
		},
		{
			Dir: "internal/*",
			Why: "internal/window imports internal/invariant: a ring that lost count must stop there, not three layers up",
		},

		// The core. The sublayers never import each other: where one needs
		// another's advice it declares the interface, and transport joins them.
		{Dir: "transport/pds", May: []string{"transport/wire"}, Core: true},
		{Dir: "transport/ses", May: []string{"transport/wire"}, Core: true},
		{Dir: "transport/cms", May: []string{"transport/wire"}, Core: true},
		{Dir: "transport/tss", May: []string{"transport/wire"}, Core: true},
		{
			Dir:  "transport",
			May:  []string{"transport/pds", "transport/ses", "transport/cms", "transport/tss", "transport/wire", "transport/dgram"},
			Core: true,
		},

		// Substrates, blind to the protocol.
		{
			Dir: "transport/udp", May: []string{"transport/dgram"},
			Foreign: []string{"golang.org/x/net", "golang.org/x/sys"},
		},
		{Dir: "transport/sim", May: []string{"transport/dgram", "internal/agenda"}, TestsMay: []string{"transport/..."}, Core: true},
		{
			Dir: "transport/sim/simtest", May: []string{"transport/sim", "transport", "transport/ses", "transport/pds", "transport/tss", "transport/wire", "transport/dgram"}, Core: true,
			Std: []string{"runtime/debug"},
			Why: "the harness puts FEPs on the simulator and checks what they promise, and tells of a panic with its stack; " +
				"tests import it, and testbed/simulated",
		},
		{
			Dir: "transport/cm", May: []string{"fi", "transport/wire"},
			Foreign: []string{"github.com/quic-go/quic-go"},
		},

		// The API.
		{Dir: "poll", May: []string{"fi", "internal/wait", "internal/door"}, TestsMay: []string{"cq", "eq", "cntr"}},
		{
			Dir: "cq", May: []string{"fi", "poll", "internal/wait", "internal/door"},
			Why: "poll for the wait set that fi_cq_attr.wait_set names",
		},
		{Dir: "eq", May: []string{"fi", "poll", "internal/wait", "internal/door"}, Why: "as cq"},
		{Dir: "cntr", May: []string{"fi", "poll", "internal/wait", "internal/door"}, Why: "as cq"},
		{Dir: "av", May: []string{"fi", "transport/wire", "internal/door"}},
		{
			Dir: "uet/driver", May: []string{"transport", "transport/dgram"}, TestsMay: []string{"transport/..."},
			Foreign: []string{"golang.org/x/sys", "go.uber.org/zap"},
			Why:     "golang.org/x/sys for sched_yield between empty polls",
		},
		{
			Dir: "uet",
			May: []string{
				"uet/driver", "transport", "transport/udp", "transport/dgram", "transport/wire", "transport/cm",
				"transport/ses", "transport/tss", "cq", "eq", "cntr", "av", "fi", "internal/door",
			},
			Foreign: []string{"go.uber.org/zap"},
			Why: "transport/ses for its Cause alone, which transport passes on in an Event: uet/errmap.go turns it into an Errno, " +
				"and a second enumeration in transport would have to be kept equal to it; transport/tss because a FEP is given its secure domain, " +
				"and the keys come from above",
		},
		{
			Dir: "uet/*", May: []string{"uet", "fi", "transport"}, TestsMay: []string{"cq", "av"}, Foreign: []string{"github.com/prometheus/client_golang"},
			Why: "transport for the names of the drop reasons that uet.Stats counts",
		},
		{Dir: "mp", May: []string{"uet", "cq", "eq", "cntr", "av", "fi"}},

		// Programs.
		{
			Dir: "cmd/uetdump", May: []string{"transport/wire", "transport/tss"},
			Foreign: []string{"github.com/gopacket/gopacket", "github.com/spf13/cobra"},
			Why:     "transport/tss to open captured packets with the keys of a cluster",
		},
		{
			Dir: "cmd/uetperf/internal/relay", May: []string{"transport/udp", "transport/dgram", "transport/wire", "internal/units"},
			Why: "the relay between the two ends loses, delays and repeats packets: it is a wire of its own, below any endpoint",
		},
		{
			Dir: "cmd/uetperf/internal/probe", May: []string{"transport/udp", "transport/dgram"},
			Why: "probes ask what the network does to datagrams of any kind: they are below any endpoint, as the relay is",
		},
		{
			Dir: "cmd/uetperf/traffic", May: []string{"cmd/uetperf/record", "cmd/uetperf/internal/pattern", "internal/units"},
			Foreign: []string{"github.com/HdrHistogram/hdrhistogram-go"}, Core: true, Std: []string{"sync/atomic"},
			Why: "the tests of uetperf are state machines: testbed/simulated plays them, too; sync/atomic for what legs in several goroutines share",
		},
		{
			Dir: "cmd/uetswitch", May: []string{"testbed/..."}, Foreign: []string{"github.com", "golang.org/x", "go.uber.org/zap"},
			Why: "the switch program: a command line over testbed/netswitch",
		},
		{
			Dir: "cmd/testbed", May: []string{"testbed/...", "cmd/uetperf/record", "internal/page"}, Foreign: []string{"github.com", "golang.org/x", "go.uber.org/zap", "charm.land"},
			Why: "the testbed's command line",
		},
		{
			Dir: "cmd/...", May: []string{"internal/page", "internal/recview", "internal/units", "uet", "uet/metrics", "mp", "cq", "eq", "cntr", "av", "fi", "cmd/...", "transport", "transport/udp", "transport/wire"},
			Why: "transport for the counters of uet.Stats, transport/udp for the settings of a socket that uet.Config takes, " +
				"transport/wire for the UDP port",
			Foreign: []string{
				"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/HdrHistogram/hdrhistogram-go", "github.com/jedib0t/go-pretty/v6",
				"github.com/guptarohit/asciigraph", "gonum.org/v1/plot", "charm.land", "github.com/BurntSushi/toml",
				"golang.org/x/sys", "go.uber.org/zap", "github.com/gopacket/gopacket",
				"github.com/prometheus/client_golang",
			},
		},
		{
			Dir: "testbed/fabric", May: []string{"transport/wire", "internal/agenda"}, Core: true,
			Why: "the core of the switch runs in the simulator too: one meaning of a scenario for both",
		},
		{
			Dir: "testbed/simulated", May: []string{"testbed/...", "cmd/uetperf/record", "cmd/uetperf/traffic", "internal/units", "transport", "transport/..."},
			Foreign: []string{"github.com", "golang.org/x"},
			Why:     "it plays scenarios with FEPs on transport/sim, beside the substrates that run binaries",
		},
		{
			Dir: "testbed/...", May: []string{"transport/wire", "transport/dgram", "testbed/...", "cmd/uetperf/record", "internal/page", "internal/recview"},
			Foreign: []string{"github.com", "golang.org/x", "gonum.org/v1/plot"},
			Why:     "cmd/uetperf/record is what the clients of a scenario leave; internal/page draws both reports",
		},
	},
}

// UetReach are the modules of others that importing uet may pull in. A program
// that sends messages builds no command line, plot or table library.
var UetReach = []string{"go.uber.org/zap", "golang.org/x/net", "golang.org/x/sys", "github.com/quic-go/quic-go"}

// ForUsers are the packages whose API is for users.
var ForUsers = []Public{
	{Dir: "fi"},
	{
		Dir: "uet", Shows: []string{"transport", "transport/udp", "transport/ses", "uet/driver"},
		Why: "the settings of sockets in Config, the counters in Stats, and what Diagnose tells: of a FEP, a socket, SES and the driver",
	},
	{Dir: "uet/metrics"},
	{Dir: "cq", Listed: true},
	{Dir: "eq", Listed: true},
	{Dir: "cntr", Listed: true},
	{Dir: "av", Listed: true},
	{Dir: "poll", Listed: true},
	{Dir: "transport/wire"},
}
