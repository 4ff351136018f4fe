package lint

// A Table says which package may import which.
type Table struct {
	// Anywhere lists packages that every package may import.
	Anywhere []string
	// Tests lists packages that the tests of every package may import, TestModules the other
	// modules that they may import.
	Tests       []string
	TestModules []string
	Rows        []Row
}

// A Row is a package or a pattern of packages. The first row that matches applies.
type Row struct {
	Dir string
	// May lists the packages of this module that it may import, Foreign the other modules. The
	// standard library is not restricted, except for Core.
	May, Foreign []string
	// TestsMay lists further packages that its tests may import.
	TestsMay []string
	// Core packages are state machines: no clock, goroutine, socket, lock or global randomness
	// (see core.go).
	Core bool
	// Std lists packages of the standard library that a Core package may import beyond
	// coreStd.
	Std []string
	// Why gives the reason for permissions beyond the layering.
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
	Anywhere: []string{"internal/invariant", "internal/window", "internal/units", "internal/spelling"},
	Tests:    []string{"internal/sim", "internal/sim/simtest", "internal/zero", "internal/said", "internal/page/pagetest", "testbed/stranger/commands"},
	TestModules: []string{
		"pgregory.net/rapid",
		"go.uber.org/goleak",
		"github.com/google/go-cmp",
		"github.com/rogpeppe/go-internal",
		"github.com/anishathalye/porcupine",
		"github.com/cockroachdb/datadriven",
		"github.com/santhosh-tekuri/jsonschema/v6",
		"golang.org/x/mod",
		"golang.org/x/net",
		"golang.org/x/sys",
		"go.uber.org/zap",
	},
	Rows: []Row{
		// Leaves.
		{Dir: "fi"},
		{Dir: "transport/wire", Core: true, Foreign: []string{"golang.org/x/sys"}, Why: "golang.org/x/sys/cpu: which instructions the CRC may use"},
		{Dir: "internal/dgram", Core: true},
		{Dir: "internal/invariant"},
		{Dir: "internal/agenda", Core: true},
		{
			Dir: "internal/badnet", Core: true,
			Why: "what becomes of a datagram is decided alike in the simulator, in the switch and in uetperf's relay",
		},
		{Dir: "internal/portrange", Why: "one search for a free port below the sockets of data and of connections and for the port that a sealed rank holds, and the flag of uetperf"},
		{
			Dir: "internal/wait", May: []string{"fi"}, Foreign: []string{"golang.org/x/sys"},
			Why: "the one wait object below every queue and counter; golang.org/x/sys for its descriptor",
		},
		{
			Dir: "internal/page", Foreign: []string{"gonum.org/v1/plot"},
			Why: "the look of offline HTML reports, for uetperf and the testbed",
		},
		{Dir: "internal/page/pagetest"},
		{
			Dir: "internal/report", May: []string{"internal/assert", "internal/page", "cmd/uetperf/record"}, Foreign: []string{"github.com/HdrHistogram/hdrhistogram-go"},
			Why: "how records of uetperf look on a page: the reports of uetperf and of the testbed show them alike",
		},
		{
			Dir: "internal/assert", May: []string{"cmd/uetperf/record"}, Foreign: []string{"github.com/expr-lang/expr"},
			Why: "one language of assertions about records: for uetperf and for the scenarios of the testbed",
		},
		{
			Dir: "internal/cli", May: []string{"internal/version"}, Foreign: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
			Why: "version, completion, manual pages and the nearest word are the same in all programs",
		},
		{Dir: "internal/said", Foreign: []string{"github.com/rogpeppe/go-internal"}, Why: "for the scripts that test programs: what wrong command lines say"},
		{Dir: "internal/release", May: []string{"internal/version"}, Why: "an archive is called as its programs call themselves"},
		{
			Dir: "internal/plant", Foreign: []string{"github.com/BurntSushi/toml"},
			Why: "the tables of planted bugs are TOML, as the scenarios are",
		},
		{
			Dir: "internal/door", May: []string{"fi", "internal/wait"},
			Why: "the provider's side of queues, counters and vectors, which their packages hide from users",
		},

		// The core. The sublayers never import each other. If one needs another's advice it
		// declares an interface, and transport connects them.
		{Dir: "transport/internal/piece", Core: true},
		{
			Dir: "transport/internal/amo", May: []string{"transport/wire"}, Core: true, Std: []string{"sync", "sync/atomic"},
			Why: "memory that peers change by atomics is changed at the same time by the program, which uses sync/atomic",
		},
		{Dir: "transport/internal/pds", May: []string{"transport/wire", "transport/internal/piece"}, Core: true, Why: "a piece of a message is one type for SES, FEP and PDS"},
		{Dir: "transport/internal/ses", May: []string{"transport/wire", "transport/internal/amo", "transport/internal/piece"}, Core: true, Why: "as pds; and what an atomic operation does to memory is arithmetic without messages"},
		{Dir: "transport/internal/rudi", May: []string{"transport/internal/piece"}, Core: true},
		{Dir: "transport/internal/cms", May: []string{"transport/wire"}, Core: true},
		{Dir: "internal/tss", May: []string{"transport/wire"}, Core: true},
		{
			Dir:  "transport",
			May:  []string{"transport/internal/pds", "transport/internal/rudi", "transport/internal/ses", "transport/internal/amo", "transport/internal/cms", "transport/internal/piece", "internal/tss", "transport/wire", "internal/dgram"},
			Core: true,
		},

		// Substrates, which do not know the protocol.
		{
			Dir: "internal/udp", May: []string{"internal/dgram", "internal/portrange"},
			Foreign: []string{"golang.org/x/net", "golang.org/x/sys"},
		},
		{
			Dir: "internal/memnet", May: []string{"internal/udp", "internal/dgram", "internal/agenda", "internal/badnet"},
			Why: "a network below udp.Conn in place of sockets, for worlds of endpoints in one test",
		},
		{Dir: "internal/sim", May: []string{"internal/dgram", "internal/agenda", "internal/badnet"}, TestsMay: []string{"transport", "transport/wire", "internal/..."}, Core: true},
		{
			Dir: "internal/sim/simtest", May: []string{"internal/sim", "transport", "internal/tss", "transport/wire", "internal/dgram"}, Core: true,
			Std: []string{"runtime/debug"},
			Why: "the harness puts FEPs on the simulator and checks what they promise, and tells of a panic with its stack; " +
				"tests import it, and testbed/simulated. It embeds transport as any other program would",
		},
		{
			Dir: "internal/sim/topo", May: []string{"internal/sim", "transport", "transport/wire", "internal/dgram"}, Core: true,
			Why: "it puts FEPs on networks of switches, beside simtest, to see how congestion and paths are dealt with",
		},
		{
			Dir: "internal/cm/contract", May: []string{"fi", "transport/wire", "internal/portrange"},
			Why: "what endpoints know of connection management; the implementation brings QUIC and TLS",
		},
		{
			Dir: "internal/cm", May: []string{"internal/cm/contract", "fi", "transport/wire", "internal/portrange"},
			Foreign: []string{"github.com/quic-go/quic-go", "golang.org/x/net", "golang.org/x/sys"},
			Why:     "golang.org/x/net and x/sys to read the error queue of the socket beside QUIC",
		},

		{
			Dir: "internal/*",
			Why: "internal/window imports internal/invariant: a ring that lost count must stop there, not three layers up",
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
			Dir: "uet/internal/driver", May: []string{"transport", "internal/dgram", "internal/wait"}, TestsMay: []string{"transport", "transport/wire", "internal/..."},
			Foreign: []string{"golang.org/x/sys"},
			Why:     "golang.org/x/sys for sched_yield between empty polls",
		},
		{Dir: "uet/internal/pmem", Foreign: []string{"golang.org/x/sys"}, Why: "golang.org/x/sys for msync"},
		{
			Dir: "uet",
			May: []string{
				"uet/internal/driver", "uet/internal/pmem", "transport", "internal/udp", "internal/dgram", "internal/portrange", "transport/wire", "internal/cm/contract",
				"internal/tss", "cq", "eq", "cntr", "av", "fi", "internal/door",
			},
			TestsMay: []string{"poll", "internal/cm", "uet/msg", "uet/zaplog", "internal/memnet", "internal/badnet"},
			Why:      "internal/tss because a FEP is given its secure domain, and the keys come from above",
		},
		{
			Dir: "uet/msg", May: []string{"uet", "internal/cm", "internal/cm/contract"}, TestsMay: []string{"fi"},
			Why: "importing it puts connection management into a program",
		},
		{Dir: "uet/zaplog", Foreign: []string{"go.uber.org/zap"}, TestsMay: []string{"uet"}, Why: "only programs that log by zap have it"},
		{
			Dir: "uet/*", May: []string{"uet", "fi", "transport", "transport/wire"}, TestsMay: []string{"cq", "av"}, Foreign: []string{"github.com/prometheus/client_golang"},
			Why: "transport for the names of the drop reasons that uet.Stats counts, transport/wire for the delivery modes",
		},
		{Dir: "uetnet/internal/host", May: []string{"uet", "fi", "transport/wire"}},
		{
			Dir: "uetnet/stream", May: []string{"uetnet", "uetnet/internal/host", "uet", "uet/msg", "cq", "eq", "fi", "transport/wire"}, TestsMay: []string{"av"},
			Why: "streams are apart from uetnet because they have connections, which bring QUIC and TLS",
		},
		{
			Dir: "uetnet", May: []string{"uetnet/internal/host", "uet", "cq", "eq", "av", "fi", "transport/wire"},
			Why: "transport/wire for the address type; it is an application of uet as any other, so that nothing in uet knows it",
		},
		{Dir: "mp/internal/boot"},
		{
			Dir: "mp/pmix", May: []string{"mp/internal/boot"}, Foreign: []string{"github.com/ebitengine/purego"},
			Why: "purego opens libpmix without cgo, but links the program dynamically: so it is here alone, and imported by who wants it",
		},
		{Dir: "mp/internal/boot/trial", May: []string{"mp/internal/boot", "mp/pmix"}, Why: "the program that real launchers start"},
		{Dir: "mp", May: []string{"mp/internal/boot", "uet", "cq", "eq", "cntr", "av", "fi", "internal/portrange"}, TestsMay: []string{"mp/mptest"}},
		{Dir: "mp/examples/*", May: []string{"mp"}, TestsMay: []string{"mp/mptest"}, Why: "programs for the launchers that people have"},
		{
			Dir: "mp/mptest", May: []string{"mp", "internal/badnet", "internal/memnet", "internal/door"},
			Why: "worlds of ranks in one test process, for the tests of programs; the model of a bad network for those that lose packets, " +
				"and a network in memory with the door by which an endpoint gets it",
		},

		// Programs.
		{
			Dir: "cmd/uetdump", May: []string{"transport/wire", "internal/tss", "internal/cli"},
			Foreign: []string{"github.com/gopacket/gopacket", "github.com/spf13/cobra", "github.com/spf13/pflag"},
			Why:     "internal/tss to open captured packets with the keys of a cluster",
		},
		{
			Dir: "cmd/uetperf/internal/relay", May: []string{"internal/udp", "internal/dgram", "internal/portrange", "internal/badnet", "transport/wire", "internal/units"},
			Why: "the relay between the two ends loses, delays and repeats packets: it is a wire of its own, below any endpoint",
		},
		{
			Dir: "cmd/uetperf/internal/probe", May: []string{"internal/udp", "internal/dgram", "internal/portrange"},
			Why: "probes ask what the network does to datagrams of any kind: they are below any endpoint, as the relay is",
		},
		{
			Dir: "cmd/uetperf/traffic", May: []string{"cmd/uetperf/record", "cmd/uetperf/internal/pattern", "internal/units"},
			Foreign: []string{"github.com/HdrHistogram/hdrhistogram-go"}, Core: true, Std: []string{"sync", "sync/atomic"},
			Why: "the tests of uetperf are state machines: testbed/simulated plays them, too; sync/atomic for what legs in several goroutines share",
		},
		{
			Dir: "cmd/uetswitch", May: []string{"testbed/...", "internal/cli"}, Foreign: []string{"github.com", "golang.org/x", "go.uber.org/zap"},
			Why: "the switch program: a command line over testbed/netswitch",
		},
		{
			Dir: "cmd/testbed", May: []string{"testbed/...", "cmd/uetperf/record", "internal/page", "internal/cli"}, Foreign: []string{"github.com", "golang.org/x", "go.uber.org/zap", "charm.land"},
			Why: "the testbed's command line",
		},
		{
			Dir: "cmd/...", May: []string{"internal/assert", "internal/cli", "internal/page", "internal/portrange", "internal/report", "internal/units", "internal/version", "uet", "uet/metrics", "uet/msg", "mp", "mp/pmix", "cq", "eq", "cntr", "av", "fi", "cmd/...", "transport", "transport/wire"},
			Why: "transport for the counters of uet.Stats, " +
				"transport/wire for the UDP port",
			Foreign: []string{
				"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/HdrHistogram/hdrhistogram-go", "github.com/jedib0t/go-pretty/v6",
				"github.com/guptarohit/asciigraph", "gonum.org/v1/plot", "charm.land", "github.com/BurntSushi/toml",
				"golang.org/x/sys", "go.uber.org/zap", "github.com/gopacket/gopacket",
				"github.com/prometheus/client_golang",
			},
		},
		{
			Dir: "testbed/fabric", May: []string{"transport/wire", "internal/agenda", "internal/badnet"}, Core: true, Std: []string{"embed"},
			Why: "the core of the switch runs in the simulator too: one meaning of a scenario for both; its source is what testbed explain prints",
		},
		{
			Dir: "testbed/interop", May: []string{"uet", "cq", "av", "fi"},
			Foreign: []string{"github.com", "golang.org/x"},
			Why:     "it plays the public API against another implementation, and knows nothing else of uetkit",
		},
		{
			Dir: "testbed/simulated", May: []string{"testbed/...", "cmd/uetperf/record", "cmd/uetperf/traffic", "internal/units", "transport", "transport/wire", "internal/sim", "internal/sim/simtest"}, TestsMay: []string{"internal/dgram"},
			Foreign: []string{"github.com", "golang.org/x"},
			Why:     "it plays scenarios with FEPs on internal/sim, beside the substrates that run binaries",
		},
		{Dir: "testbed/bars/hub", May: []string{"uet", "cq", "av", "fi"}, Why: "it sends from one endpoint to many, which uetperf does not"},
		{Dir: "testbed/bars/rank", May: []string{"mp"}, Why: "a rank whose loops are those of a C program of MPI"},
		{
			Dir: "testbed/...", May: []string{"transport/wire", "internal/dgram", "testbed/...", "cmd/uetperf/record", "internal/assert", "internal/page", "internal/report"},
			Foreign: []string{"github.com", "golang.org/x", "gonum.org/v1/plot"},
			Why:     "cmd/uetperf/record is what the clients of a scenario leave; internal/page draws both reports",
		},
	},
}

// UetReach lists the other modules that importing uet may pull in. A program that sends
// messages must not have to build libraries for command lines, plots, logs or connections.
var UetReach = []string{"golang.org/x/net", "golang.org/x/sys"}

// ForUsers lists the packages whose API is for users.
var ForUsers = []Public{
	{Dir: "fi"},
	{
		Dir: "uet", Shows: []string{"transport"},
		Why: "the counters in Stats and Load are those of a FEP, the causes of Diagnose are its own",
	},
	{Dir: "uet/metrics"},
	{Dir: "uet/msg"},
	{Dir: "uet/zaplog"},
	{Dir: "uetnet"},
	{Dir: "uetnet/stream"},
	{Dir: "cq", Listed: true},
	{Dir: "eq", Listed: true},
	{Dir: "cntr", Listed: true},
	{Dir: "av", Listed: true},
	{Dir: "poll", Listed: true},
	{Dir: "mp"},
	{Dir: "mp/mptest"},
	{Dir: "transport/wire"},
}
