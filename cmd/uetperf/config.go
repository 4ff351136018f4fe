package main

import (
	"io"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/assert"
)

// Config is one invocation.
type Config struct {
	Command string   // "" is the self-check
	Args    []string // the command line, for the record

	// Tests.

	Target string // HOST[:PORT]
	Sizes  []int64
	Spec   traffic.Spec // all but Size
	Impair *relay.Faults
	// Interval is the time between interval lines; 0: none unless standard
	// output is a terminal; negative: none.
	Interval time.Duration
	Soak     pinned

	// Tests and serve.

	Keys string // folder made by `uetperf keys`
	As   string // member whose certificate this end has; "": the usual one

	// Keys.

	Members []string // "": server and client
	Rotate  bool
	Remove  string

	// Tests, self-check and info.

	Domain  string
	Timeout time.Duration
	Silence time.Duration // that was asked for; 0: the usual one
	JSON    string        // file for the record, "-": standard output
	CSV     string
	Pcap    string // file for datagrams, also of serve
	Asserts []*assert.Assert
	Quiet   bool
	Verbose bool

	// Serve.

	Listen     string
	Metrics    string // IP:PORT of the HTTP server for Prometheus
	MaxClients int
	Once       bool
	UntilEOF   bool // end when standard input ends
	Stdin      io.Reader

	// Info.

	Explain bool

	// Report and compare.

	Read readConfig

	CPUProfile string // file, for those who work on the stack
}

// writesFiles reports whether results go elsewhere than to standard output.
func (c *Config) writesFiles() bool {
	return c.JSON != "" && c.JSON != "-" || c.CSV != "" && c.CSV != "-" || c.Pcap != ""
}
