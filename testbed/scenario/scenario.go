// Package scenario reads scenario folders: a README, and scenario.toml with the
// topology, the traffic, the faults and the assertions. The same file runs on
// containers, in network namespaces and in the simulator.
package scenario

import (
	"github.com/uetkit/uetkit/testbed/fabric"
)

// A Scenario is one scenario.toml.
type Scenario struct {
	Name string `toml:"-"` // of the folder
	Path string `toml:"-"` // the folder; "" if the program carries it

	// Question is what it answers, Expect the expected outcome, a sentence each.
	Question string `toml:"question"`
	Expect   string `toml:"expect"`
	// Tags: "ci" is in the subset that CI runs on containers and namespaces, "long" is left
	// out unless named.
	Tags []string `toml:"tags"`
	// Limit is the longest the run may take, up and down not counted.
	Limit fabric.Duration `toml:"limit"`
	// Substrates it can run on; none: all.
	Substrates []string `toml:"substrates"`

	Hosts    []Host         `toml:"host"`
	Fabric   Fabric         `toml:"fabric"`
	Events   []fabric.Event `toml:"event"`   // of the network
	Actions  []Action       `toml:"action"`  // on processes
	Traffic  []Traffic      `toml:"traffic"` // what the clients do
	Asserts  []Assert       `toml:"assert"`
	Capture  bool           `toml:"capture"`  // pcapng at the clients
	Security string         `toml:"security"` // off, psk, tls: of all traffic
}

// Fabric is the network between the hosts.
type Fabric struct {
	Spines  []fabric.Line  `toml:"spine"`
	Classes fabric.Classes `toml:"classes"`
	// Edge is what every port is unless the host says otherwise: From and To.
	From fabric.Line `toml:"from"`
	To   fabric.Line `toml:"to"`
	// MTU of the interfaces of hosts and switch, in bytes; 0: 1500.
	MTU int `toml:"mtu"`
}

// A Host is one host.
type Host struct {
	Name string `toml:"name"`
	Role string `toml:"role"` // server, client
	// Count makes several, named NAME1, NAME2, …; 0: one, named NAME.
	Count int `toml:"count"`
	// From and To replace those of the Fabric.
	From *fabric.Line `toml:"from"`
	To   *fabric.Line `toml:"to"`
}

// Traffic is what one client host, or each of several, does.
type Traffic struct {
	// From names the client hosts ("c" stands for c1, c2, … too), To the server.
	From string `toml:"from"`
	To   string `toml:"to"`
	// At is when it starts, after the start of the host, beside whatever else the host
	// does. Without it, it starts when the entry before it (of those without At) is done.
	At fabric.Duration `toml:"at"`
	// Test: ping, lat, bw, rate, load, rr, soak, as the commands of uetperf.
	Test string `toml:"test"`
	Op   string `toml:"op"` // send, tsend, inject
	// As the flags of uetperf; zero: its default, but Check is on unless NoCheck.
	Size     string          `toml:"size"`
	Iters    int64           `toml:"iters"`
	Time     fabric.Duration `toml:"time"`
	Window   int             `toml:"window"`
	Parallel int             `toml:"parallel"`
	Mode     string          `toml:"mode"`
	Complete string          `toml:"complete"`
	Reverse  bool            `toml:"reverse"`
	Bidir    bool            `toml:"bidir"`
	NoCheck  bool            `toml:"no_check"`
	Paths    int             `toml:"paths"`
	CC       string          `toml:"cc"`
	MTU      int             `toml:"mtu"`
	Rate     string          `toml:"rate"` // of load
	Trim     bool            `toml:"trim"` // packets in the trimmable class
	// BaseRTT is config_base_rtt, the round trip of the idle path; 0: 150us.
	BaseRTT fabric.Duration `toml:"base_rtt"`
	Churn   bool            `toml:"churn"`
	// MayFail says that the client may end in error (its peer is killed).
	MayFail bool `toml:"may_fail"`
}

// An Action is done to a host's process.
type Action struct {
	At   fabric.Duration `toml:"at"`
	Host string          `toml:"host"`
	// Do: pause (SIGSTOP, for For), kill (SIGKILL; the host is gone, its address answers
	// nobody), restart (after a kill, at the same address; For later if set), rekey (a step
	// to the next cluster key: made, used, the old one gone; three of them, For apart, 0:
	// 2 s).
	Do  string          `toml:"do"`
	For fabric.Duration `toml:"for"`
}

// An Assert is an expression over Metrics that must be true.
type Assert struct {
	Expr string `toml:"expr"`
	Why  string `toml:"why"`
	// Timing says that a slow machine can make it false.
	Timing bool `toml:"timing"`
	// On limits it to these substrates; none: all.
	On []string `toml:"on"`
}
