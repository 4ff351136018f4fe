package main

import (
	"io"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/ranks"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/portrange"
)

// Config describes one invocation.
type Config struct {
	Command string   // "" means the self-check
	Args    []string // the command line, for the record

	// Tests.

	Target string // HOST[:PORT]
	Sizes  []int64
	Spec   traffic.Spec // everything but Size
	Impair *relay.Faults
	Repeat int // how often all sizes are measured
	// Interval is the time between interval lines. 0 means the default: soakEvery for a soak,
	// else one second on a terminal and none elsewhere. A negative value means none.
	Interval time.Duration
	Watch    bool // a line a second with window, round trip and losses
	Soak     pinned

	// Tests between many hosts.

	Hosts  []string // those that Target does not name
	AtOnce int      // pairs of a mesh that are measured at once; 0 means as many as share no host

	// Tests between ranks.

	Between ranks.Spec
	Local   int  // ranks to start in this process; 0 means those of the launcher, or two
	Clear   bool // messages between hosts are not sealed

	// Tests and serve.

	Keys string // folder made by `uetperf keys`
	As   string // member whose certificate this end uses; "" means the usual one

	// Keys.

	Members []string // "" means server and client
	Rotate  bool
	Remove  string

	// Tests, self-check and info.

	Domain string
	// DataPorts are the UDP ports of tests at this end, also of serve and doctor.
	DataPorts portrange.Range
	Timeout   time.Duration
	Silence   time.Duration // as asked for; 0 means the usual one
	JSON      string        // file for the record; "-" means standard output
	CSV       string
	Pcap      string // file for datagrams, also of serve
	Asserts   []*assert.Assert
	Quiet     bool
	Verbose   bool

	// Serve.

	Listen     string
	Metrics    string // IP:PORT of the HTTP server for Prometheus
	MaxClients int
	Once       bool
	Mesh       bool // tests between servers
	UntilEOF   bool // end when standard input ends
	Stdin      io.Reader

	// Info.

	Explain bool

	// Report and compare.

	Read readConfig

	CPUProfile string // file for a CPU profile, for developers of the stack
}

// writesFiles reports whether results go to a file.
func (c *Config) writesFiles() bool {
	return c.JSON != "" && c.JSON != "-" || c.CSV != "" && c.CSV != "-" || c.Pcap != ""
}
