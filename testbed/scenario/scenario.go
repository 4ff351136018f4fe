// Package scenario reads scenario folders: a README, and scenario.toml with the
// topology, the traffic, the faults and the assertions. The same file runs on
// containers, in network namespaces and in the simulator.
package scenario

import (
	"github.com/uetkit/uetkit/testbed/fabric"
)

// A Scenario is a whole scenario.toml: the question, the hosts and the network between them, what goes
// wrong, what is sent, and what must be true in the end.
type Scenario struct {
	Name string `toml:"-"` // of the folder
	Path string `toml:"-"` // the folder; "" if the program carries it

	// Question is the question that the scenario answers, Expect the expected outcome, a
	// sentence each.
	Question string `toml:"question"`
	Expect   string `toml:"expect"`
	// Tags: "ci" is in the subset that CI runs on containers and namespaces, "long" is left
	// out unless named.
	Tags []string `toml:"tags"`
	// Limit is the longest time of the run, without bringing the lab up and down.
	Limit fabric.Duration `toml:"limit"`
	// Substrates are those that it can run on; none means all.
	Substrates []string `toml:"substrates"`

	Hosts    []Host         `toml:"host"`
	Fabric   Fabric         `toml:"fabric"`   // the network between them
	Events   []fabric.Event `toml:"event"`    // what happens to the network, and when
	Actions  []Action       `toml:"action"`   // what happens to the processes of hosts, and when
	Traffic  []Traffic      `toml:"traffic"`  // what the clients do
	Asserts  []Assert       `toml:"assert"`   // what must be true in the end
	Capture  bool           `toml:"capture"`  // whether clients leave a capture (pcapng)
	Security string         `toml:"security"` // of all traffic: in clear, with a cluster key, with certificates
}

// Fabric is the network between the hosts.
type Fabric struct {
	// Spines are the parallel paths between hosts. A packet's addresses and UDP source port choose its
	// spine (ECMP). Without spines, packets go directly from host to host.
	Spines []fabric.Line `toml:"spine"`
	// Classes are the code points that trimming uses.
	Classes fabric.Classes `toml:"classes"`
	// From and To are the lines of every port, unless the host sets its own.
	From fabric.Line `toml:"from"`
	To   fabric.Line `toml:"to"`
	// MTU is the MTU of the interfaces of hosts and switch, in bytes; 0 means 1500.
	MTU int `toml:"mtu"`
}

// A Host is one host.
type Host struct {
	Name string `toml:"name"` // what other keys and assertions call it
	Role string `toml:"role"` // whether it serves, or does what traffic says
	// Count makes several hosts, named NAME1, NAME2, …; 0 makes one, named NAME.
	Count int `toml:"count"`
	// From and To replace those of [fabric].
	From *fabric.Line `toml:"from"`
	To   *fabric.Line `toml:"to"`
}

// Traffic is the traffic of one client host, or of each of several.
type Traffic struct {
	// From names the client hosts ("c" stands for c1, c2, … too), To the server.
	From string `toml:"from"`
	To   string `toml:"to"`
	// At is when it starts, counted from the start of the host, beside other traffic of the
	// host. Without At it starts when the previous entry without At has ended.
	At fabric.Duration `toml:"at"`
	// Test is a command of uetperf, or tcp: a stream of the kernel's TCP (cubic) for Time, beside UET. It is not for the simulator.
	Test string `toml:"test"`
	Op   string `toml:"op"` // how a message is sent: with a tag or without, or copied at once
	// These are as the flags of uetperf (uetperf bw -h); left out, the flag's default holds. All data
	// is checked unless NoCheck is set.
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
	Rate     string          `toml:"rate"` // of test = "load" alone
	Trim     bool            `toml:"trim"` // packets in the trimmable class
	// BaseRTT is the round trip of the idle path (config_base_rtt of UE); 0 means 150us.
	BaseRTT fabric.Duration `toml:"base_rtt"`
	Churn   bool            `toml:"churn"` // each transaction of test = "rr" has PDCs of its own
	// MayFail says that the client may end in error, for example because its peer is
	// killed.
	MayFail bool `toml:"may_fail"`
}

// An Action acts on a host's process.
type Action struct {
	// At counts from the first packet, as in events. Host is whom it happens to.
	At   fabric.Duration `toml:"at"`
	Host string          `toml:"host"`
	// Do is pause (SIGSTOP, for For), kill (SIGKILL; the host is gone, its address answers
	// nobody), restart (after a kill, at the same address; For later if set), or rekey (a
	// change to the next cluster key in three steps, For apart, 0 means 2 s: the new key is
	// made, then used, then the old one removed).
	Do  string          `toml:"do"`
	For fabric.Duration `toml:"for"`
}

// An Assert is an expression that must be true in the end.
type Assert struct {
	// Expr is an expression of internal/assert over the names of testbed/metrics: c.goodput, c.p99,
	// c.lost and so on of client c, all.lost of all, net.lost_queue of the network,
	// line("s.to").rate of a line, jain, took. Units may follow numbers: c.p99 < 50ms.
	Expr string `toml:"expr"`
	Why  string `toml:"why"` // what it shows; the report has it
	// Timing says that a slow machine can make it false.
	Timing bool `toml:"timing"`
	// On limits it to these substrates; none means all.
	On []string `toml:"on"`
}
