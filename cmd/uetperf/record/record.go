// Package record defines the JSON record of uetperf, schema "uetperf/1": one object per
// invocation.
//
// Numbers are integers or floats in the unit that their key names. A number that is absent
// was not measured; a zero was measured. Fields may be added; renaming or removing one
// requires a new schema.
package record

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"
)

// Schema is the name of this version of the record.
const Schema = "uetperf/1"

// A Record describes one invocation.
type Record struct {
	Schema  string    `json:"schema"`
	Tool    Tool      `json:"tool"`
	Started time.Time `json:"started"` // RFC 3339
	Command []string  `json:"command"`
	Seed    uint64    `json:"seed"`
	Host    Host      `json:"host"`
	Peer    *Host     `json:"peer,omitempty"`
	// PeerTool is the program that ran at the server.
	PeerTool *Tool  `json:"peer_tool,omitempty"`
	Config   Config `json:"config"`
	Path     *Path  `json:"path,omitempty"`
	// World is set for tests between ranks. They have no peer: the counters of a run are those of
	// all ranks.
	World   *World    `json:"world,omitempty"`
	Runs    []Run     `json:"runs"`
	Verdict []Verdict `json:"verdict"`
	// Error is the error that ended the invocation early.
	Error string `json:"error,omitempty"`
	// OK is true if everything was measured, all data was right and every assertion held. The
	// exit status is then 0.
	OK bool `json:"ok"`
}

// Write writes r as one indented JSON object.
func (r *Record) Write(w io.Writer) error {
	c := *r
	if c.Runs == nil {
		c.Runs = []Run{}
	}
	if c.Verdict == nil {
		c.Verdict = []Verdict{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(&c)
}

// Tool describes the program that measured.
type Tool struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Host describes one of the two ends.
type Host struct {
	Name   string `json:"name"`
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"` // processors that the process may use
	// CPU is the model of the processors.
	CPU string `json:"cpu,omitempty"`
	// Governor is what sets the clock of the processors.
	Governor string `json:"governor,omitempty"`
	// Virtual says that the host is a virtual machine or a container, and whose.
	Virtual string `json:"virtual,omitempty"`
}

// Config is what the user asked for.
type Config struct {
	Test     string `json:"test"`
	Op       string `json:"op"`
	EP       string `json:"ep"`
	Mode     string `json:"mode"`
	Complete string `json:"complete"`
	CC       string `json:"cc"`
	Sec      string `json:"sec"`
	CRC      bool   `json:"crc"`
	// BaseRTTNS is config_base_rtt, if it was given.
	BaseRTTNS int64 `json:"base_rtt_ns,omitempty"`
	Trimming  bool  `json:"trimming,omitempty"` // packets were offered to switches that trim
	MTU       int   `json:"mtu,omitempty"`      // payload bytes per packet
	// Rendezvous is the length from which on messages were announced, for their receiver to read, if any were.
	Rendezvous int64 `json:"rendezvous,omitempty"`
	Paths      int   `json:"paths"`
	// PathChoice is how packets chose among several paths.
	PathChoice string `json:"path_choice,omitempty"`
	// Encapsulation is "standard", or "" for symmetric.
	Encapsulation string `json:"encapsulation,omitempty"`
	Window        int    `json:"window,omitempty"` // messages outstanding per stream
	Parallel      int    `json:"parallel"`
	// SharePort says that the endpoints of all streams shared a port at each end.
	SharePort bool `json:"share_port,omitempty"`
	// Rate is the number of requests a second that load was to make. Arrivals is the
	// distribution of their intended times: "constant", "poisson" or "uniform".
	Rate     float64 `json:"rate,omitempty"`
	Arrivals string  `json:"arrivals,omitempty"`
	// Reply is the size in bytes of the replies of load and rr.
	Reply    int64  `json:"reply,omitempty"`
	Churn    bool   `json:"churn,omitempty"` // rr opened and closed what carries each transaction
	Progress string `json:"progress"`
	// Direction is "forward" (client to server), "reverse" or "both".
	Direction string `json:"direction"`
	// Ranks is how many ranks a test between ranks had, Type the type of the elements, Reduction
	// what was computed, and Root the rank that has or gets all.
	Ranks     int    `json:"ranks,omitempty"`
	Type      string `json:"type,omitempty"`
	Reduction string `json:"reduction,omitempty"`
	Root      *int   `json:"root,omitempty"`
	// Repeat is how often all sizes were measured, one after the other each time; 0 is once.
	Repeat int `json:"repeat,omitempty"`
	// Impair describes the bad network that the client put in between, if any.
	Impair string `json:"impair,omitempty"`
}

// Trip says what the latency of a run is of: "half" a round trip, a "whole" one, which an operation
// always takes from its call to its completion, or a "call" of a collective; "" without latency.
func (r *Record) Trip(run *Run) string {
	switch {
	case run.Latency == nil:
		return ""
	case run.Coll != nil:
		return "call"
	case run.Latency.RTT || r.Completes(run):
		return "whole"
	}
	return "half"
}

// ToCompletion says of what the latency is if Completes says so.
const ToCompletion = "from the call to the completion"

// Completes reports whether the latency of a run is that of single operations, from the call to the
// completion.
func (r *Record) Completes(run *Run) bool {
	return run.Latency != nil && (run.Latency.Completion || OneSided(cmp.Or(run.Op, r.Config.Op)))
}

// OneSided reports whether an operation accesses memory of the server, whose application takes no
// part.
func OneSided(op string) bool {
	switch op {
	case "write", "writedata", "read", "fadd", "swap", "cas":
		return true
	}
	return false
}

// World says between which ranks a test was.
type World struct {
	Ranks    int       `json:"ranks"`
	Launcher string    `json:"launcher"` // what started them; "uetperf" if they share its process
	Hosts    []RanksOn `json:"hosts"`    // in the order of their first ranks
	Sealed   bool      `json:"sealed"`   // packets were encrypted and authenticated
}

// RanksOn says how many ranks are on a host.
type RanksOn struct {
	Name  string `json:"name"`
	Ranks int    `json:"ranks"`
}

// Path describes the way between the ends, as the client's socket sees it.
type Path struct {
	Local     string  `json:"local"`
	Remote    string  `json:"remote"`
	Interface string  `json:"interface"`
	Driver    string  `json:"driver,omitempty"` // of the interface
	MTU       int     `json:"mtu"`              // largest IP packet in bytes
	GSO       Feature `json:"gso"`
	GRO       Feature `json:"gro"`
	// Rcvbuf and Sndbuf are the buffer sizes that the system gave; RcvbufAsked and SndbufAsked
	// are those that were asked for.
	Rcvbuf      int  `json:"rcvbuf"`
	Sndbuf      int  `json:"sndbuf"`
	RcvbufAsked int  `json:"rcvbuf_asked"`
	SndbufAsked int  `json:"sndbuf_asked"`
	ECN         bool `json:"ecn"`
}

// Feature is something that a system may lack.
type Feature struct {
	On  bool   `json:"on"`
	Why string `json:"why"` // why it is off
}

// A Run has the measurements of one message size.
type Run struct {
	Name  string `json:"name,omitempty"` // of a step of the self-check
	Op    string `json:"op,omitempty"`   // if it differs from Config.Op
	Size  int64  `json:"size"`
	Iters int64  `json:"iters"` // round trips, or messages per stream
	Msgs  int64  `json:"msgs"`
	Bytes int64  `json:"bytes"`
	// DurationNS is the time that Msgs took, without warm-up and drain.
	DurationNS int64 `json:"duration_ns"`
	// SetupNS is the time to open both endpoints and exchange their addresses, FirstNS the
	// first round trip after that.
	SetupNS int64 `json:"setup_ns,omitempty"`
	FirstNS int64 `json:"first_ns,omitempty"`
	// ConnectNS is the part of SetupNS that connections took, from request to answer; of
	// several the slowest.
	ConnectNS int64 `json:"connect_ns,omitempty"`

	Latency    *Latency `json:"latency_ns,omitempty"`
	GoodputBPS *float64 `json:"goodput_bps,omitempty"` // bits of messages per second
	// Slowest is the interval of bw in which the least went, of the whole ones that were measured.
	Slowest  *Slowest `json:"slowest,omitempty"`
	MsgsPerS *float64 `json:"msgs_per_s,omitempty"`
	Lost     *int64   `json:"msgs_lost,omitempty"` // sent but not received
	// Sent is how many datagrams were sent, or round trips with them begun, warm-up included.
	Sent *int64 `json:"msgs_sent,omitempty"`
	// MeasuredAt is the end whose clock was used, "sender" or "receiver".
	MeasuredAt string   `json:"measured_at,omitempty"`
	Streams    []Stream `json:"streams,omitempty"` // if there is more than one

	Transport     Counters  `json:"transport"`                // of the client's endpoints
	PeerTransport *Counters `json:"peer_transport,omitempty"` // of the server's endpoints
	CPU           *CPU      `json:"cpu,omitempty"`
	DataCheck     *Check    `json:"data_check,omitempty"`
	// Load is set for load, Churn for rr with --churn, Incast and Soak for these tests.
	Load   *Load   `json:"load,omitempty"`
	Churn  *Churn  `json:"churn,omitempty"`
	Incast *Incast `json:"incast,omitempty"`
	Soak   *Soak   `json:"soak,omitempty"`
	// Coll is set for collectives.
	Coll *Coll `json:"coll,omitempty"`
	// Mesh is set for tests between many hosts. Goodput of the run is then that of all pairs
	// together, of mesh that of the slowest; the latency of mesh is that of the pair with the
	// longest p50.
	Mesh *Mesh `json:"mesh,omitempty"`
	// Errors is the number of transactions of rr that failed, LastError the last of their
	// errors. No latency includes them.
	Errors    *int64 `json:"errors,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// Series tells how the run went over time, oldest sample first.
	Series []Sample `json:"series,omitempty"`
	// Error is why the run ended early; the other fields were measured before.
	Error string `json:"error,omitempty"`
}

// A Sample describes an interval of a run. Counts are those since the previous sample and
// add up both ends. CwndBytes and RTTNS are values at the end of the interval, of the
// busiest packet delivery context of the sending end.
type Sample struct {
	AtNS      int64  `json:"t_ns"` // end of the interval, since both ends were told to go, warm-up included
	Bytes     int64  `json:"bytes"`
	Msgs      int64  `json:"msgs"`
	CwndBytes int64  `json:"cwnd_bytes,omitempty"` // congestion window
	RTTNS     int64  `json:"rtt_ns,omitempty"`     // smoothed round-trip time
	Rtx       uint64 `json:"rtx"`                  // retransmissions
	ECN       uint64 `json:"ecn"`                  // packets marked "congestion experienced"
	Trimmed   uint64 `json:"trimmed"`
	Drops     uint64 `json:"drops"` // datagrams thrown away
}

// Plus adds the counts of another sample.
func (s *Sample) Plus(o *Sample) {
	s.Bytes += o.Bytes
	s.Msgs += o.Msgs
	s.Rtx += o.Rtx
	s.ECN += o.ECN
	s.Trimmed += o.Trimmed
	s.Drops += o.Drops
}

// A Stream is one of several concurrent streams.
type Stream struct {
	Direction  string  `json:"direction"` // "forward" or "reverse"
	Msgs       int64   `json:"msgs"`
	Bytes      int64   `json:"bytes"`
	DurationNS int64   `json:"duration_ns"`
	GoodputBPS float64 `json:"goodput_bps"`
	// These describe the sender's endpoint over the whole run, if each stream has one sender:
	// retransmissions, those of them that the sender found to be for nothing, congestion marks on
	// its packets, and packets trimmed by a switch, both as the receiver reported them.
	Rtx      *uint64 `json:"rtx,omitempty"`
	Spurious *uint64 `json:"spurious,omitempty"`
	ECN      *uint64 `json:"ecn,omitempty"`
	Trimmed  *uint64 `json:"trimmed,omitempty"`
}

// Load describes an open loop: each request has an intended time, and its latency counts
// from there. All numbers exclude the warm-up.
type Load struct {
	Offered    int64   `json:"offered"` // requests that were meant to begin
	OfferedPer float64 `json:"offered_per_s"`
	// Late is how many of them began more than LateAfterNS after their time, MaxLagNS the
	// longest such delay. Unsent is how many never began: they count as late, and enter the
	// latencies with the time that they waited.
	Late        int64 `json:"late"`
	LateAfterNS int64 `json:"late_after_ns"`
	MaxLagNS    int64 `json:"max_lag_ns"`
	Unsent      int64 `json:"unsent"`
	// Overloaded means that requests piled up until the end. The latencies then depend on how
	// long the test was, and msgs_per_s is the most that host and path can carry.
	Overloaded bool `json:"overloaded"`
}

// Churn is the time that opening and closing took. With rdm, data opens the packet delivery
// context: Open lasts until the request was acknowledged and is part of the transaction.
// With msg, Open is the time for endpoint and connection before the transaction.
type Churn struct {
	Open  *Latency `json:"open_ns,omitempty"`
	Close *Latency `json:"close_ns,omitempty"`
}

// Incast describes many senders to one receiver, first as streams, then in rounds.
type Incast struct {
	// Jain is the fairness index of the second half of the streams: 1 if all senders got the
	// same, 1/n if one got all.
	Jain *float64 `json:"jain,omitempty"`
	// ConvergenceNS is the time since the begin after which each sender stayed within Within
	// of its share. It is absent if a sender was outside at the end.
	ConvergenceNS *int64  `json:"convergence_ns,omitempty"`
	Within        float64 `json:"within"`
	// Rounds is the number of rounds, Round the time of a round: until the block of the
	// slowest sender was complete.
	Rounds int64    `json:"rounds"`
	Round  *Latency `json:"round_ns,omitempty"`
}

// Coll describes a collective as nccl-tests do. Size of the run is that of the larger buffer of a
// rank, GoodputBPS what nccl-tests call algbw: this size over the time. Latency has each call at
// each rank.
type Coll struct {
	Count int64 `json:"count"` // elements of a block
	// TimeNS is the time of one operation at the slowest rank, LeastNS at the fastest, MeanNS the
	// mean of all ranks: means over all measured operations.
	TimeNS  float64 `json:"time_ns"`
	LeastNS float64 `json:"least_ns"`
	MeanNS  float64 `json:"mean_ns"`
	// BusBPS is what nccl-tests call busbw: the bandwidth of the algorithm times what the busiest
	// link of a good algorithm carries of the size. Absent of a barrier.
	BusBPS *float64 `json:"bus_bps,omitempty"`
	// Wrong is how many elements of those that were verified were wrong.
	Wrong int64 `json:"wrong"`
	// Algorithm is what mp chose, empty if there is one only.
	Algorithm string `json:"algorithm,omitempty"`
}

// Mesh describes a test between many hosts.
type Mesh struct {
	Hosts []MeshHost `json:"hosts"`
	Pairs []MeshPair `json:"pairs"` // by sender, then receiver
	// MedianBPS and MedianNS are the medians of the pairs' goodput and p50; 0 if not measured.
	MedianBPS float64 `json:"median_bps,omitempty"`
	MedianNS  float64 `json:"median_ns,omitempty"`
	// Jain is the fairness index of the pairs' goodput: 1 if all had the same.
	Jain *float64 `json:"jain,omitempty"`
	// ApartNS is how far apart tests began that were to begin at once, by the clocks compared.
	ApartNS int64 `json:"apart_ns,omitempty"`
}

// MeshLatencySize is the bytes of the messages whose latency a mesh measures.
const MeshLatencySize = 8

// Failed reports whether a host took no part or a pair failed.
func (m *Mesh) Failed() bool {
	return slices.ContainsFunc(m.Hosts, func(h MeshHost) bool { return h.Error != "" }) ||
		slices.ContainsFunc(m.Pairs, func(p MeshPair) bool { return p.Error != "" })
}

// Worst returns the host that most of its pairs are slow with, or failed, and how many of how
// many. bad is 0 if there is none that stands out, with more than half of its pairs and more of
// them than any other.
func (m *Mesh) Worst() (host, bad, of int) {
	count := make([][2]int, len(m.Hosts))
	for i := range m.Pairs {
		p := &m.Pairs[i]
		for _, h := range []int{p.From, p.To} {
			if count[h][1]++; p.Slow || p.Far || p.Error != "" {
				count[h][0]++
			}
		}
	}
	next := 0
	for h, n := range count {
		if n[0] > bad {
			host, next, bad, of = h, bad, n[0], n[1]
		} else {
			next = max(next, n[0])
		}
	}
	if bad == next || 2*bad <= of {
		return 0, 0, 0
	}
	return host, bad, of
}

// A MeshHost is a server that was to take part.
type MeshHost struct {
	Name string `json:"name"` // as the user gave it
	Addr string `json:"addr"`
	Host *Host  `json:"host,omitempty"`
	// AheadNS is by how much its clock is ahead of the coordinator's, WithinNS how exact that is.
	AheadNS  int64  `json:"ahead_ns"`
	WithinNS int64  `json:"within_ns"`
	Error    string `json:"error,omitempty"` // why it took no part; its pairs have failed then
}

// A MeshPair is what was measured from one host to another. From and To are indexes of Hosts.
type MeshPair struct {
	From       int      `json:"from"`
	To         int      `json:"to"`
	Latency    *Latency `json:"latency_ns,omitempty"` // half of round trips
	GoodputBPS *float64 `json:"goodput_bps,omitempty"`
	Rtx        uint64   `json:"rtx"`
	Wrong      int64    `json:"wrong,omitempty"` // messages with wrong data
	// Slow and Far say that it carried much less, and that its round trip was much longer, than
	// the medians of all pairs.
	Slow  bool   `json:"slow,omitempty"`
	Far   bool   `json:"far,omitempty"`
	Error string `json:"error,omitempty"`
}

// Soak describes a long test of everything.
type Soak struct {
	Episodes int64 `json:"episodes"` // tests that ran, one after another
	Failed   int64 `json:"failed"`   // episodes that failed
	// Kinds counts the episodes by kind.
	Kinds map[string]int64 `json:"kinds"`
	// Leaks has a verdict for each resource of both ends. Leaking is the number of those that
	// grow.
	Leaks   []Leak `json:"leaks"`
	Leaking int64  `json:"leaking"`
	// Rounds are the episodes, at most 2000. Episodes that passed are dropped before those
	// that failed.
	Rounds []Round `json:"rounds,omitempty"`
}

// A Round is one episode of a soak.
type Round struct {
	N          int64 `json:"n"`    // from 1
	AtNS       int64 `json:"t_ns"` // its begin, since the begin of the soak
	DurationNS int64 `json:"duration_ns"`
	// Command is the shell command that repeats the episode alone, with everything that was
	// drawn for it. Only the faults of --impair are drawn anew.
	Command string `json:"command"`
	Error   string `json:"error,omitempty"` // why it failed
}

// A Leak describes a resource over the time of a soak without its warm-up, as a line fitted
// to all samples by least squares.
type Leak struct {
	End  string `json:"end"`  // "client" or "server"
	What string `json:"what"` // "rss" and "heap" in bytes, "goroutines", "fds"
	// Mean is the mean of the samples, Slope the growth per hour, Growth the growth of the
	// line from the first sample to the last, Bound the most that Growth may be.
	Mean    float64 `json:"mean"`
	Slope   float64 `json:"slope_per_h"`
	Growth  float64 `json:"growth"`
	Bound   float64 `json:"bound"`
	Samples int     `json:"samples"`
	Leaks   bool    `json:"leaks"`
}

// Latency is a distribution in nanoseconds: half a round trip, or the whole one if RTT is
// true. If Completion is true, it is from the call of an operation to its completion, while others
// are under way: of bw, which takes the time of each message from 64 KiB on, and of one in 17
// smaller ones.
type Latency struct {
	Min    int64   `json:"min"`
	P50    int64   `json:"p50"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	P999   int64   `json:"p999"`
	Max    int64   `json:"max"`
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"`
	// HDR is the whole histogram in nanoseconds: HdrHistogram V2, compressed, base64.
	HDR string `json:"hdr"`
	RTT bool   `json:"rtt,omitempty"`

	Completion bool `json:"completion,omitempty"`
}

// Counters are those of the endpoints of one end over the whole run, warm-up included.
type Counters struct {
	TxPkts         uint64            `json:"tx_pkts"`
	RxPkts         uint64            `json:"rx_pkts"`
	TxBytes        uint64            `json:"tx_bytes"` // UDP payload
	RxBytes        uint64            `json:"rx_bytes"`
	RtxRTO         uint64            `json:"rtx_rto"`
	RtxSACK        uint64            `json:"rtx_sack"`
	RtxNack        uint64            `json:"rtx_nack"`
	RtxProbe       uint64            `json:"rtx_probe"` // tail probes
	Dup            uint64            `json:"dup"`
	OOO            uint64            `json:"ooo"`
	Trimmed        uint64            `json:"trimmed"` // received after a switch had cut the payload
	ECNCE          uint64            `json:"ecn_ce"`
	AcksTx         uint64            `json:"acks_tx"`
	AcksRx         uint64            `json:"acks_rx"`
	OpsRUD         uint64            `json:"ops_rud,omitempty"`         // operations of this end that succeeded and went by RUD (unordered)
	OpsROD         uint64            `json:"ops_rod,omitempty"`         // those that went by ROD (ordered)
	OpsRUDI        uint64            `json:"ops_rudi,omitempty"`        // those that went by RUDI (writes and reads without a context)
	OpsUUD         uint64            `json:"ops_uud,omitempty"`         // those that went by UUD (datagrams)
	RdvTx          uint64            `json:"rdv_tx,omitempty"`          // messages announced instead of sent (`--rendezvous`)
	RdvRx          uint64            `json:"rdv_rx,omitempty"`          // announced messages of the other end of which all was read
	CreditsGranted uint64            `json:"credits_granted,omitempty"` // grants of receiver credit that this end made (`--cc rccc`)
	CreditsUsed    uint64            `json:"credits_used,omitempty"`    // grants of the other end that let this one send
	CreditWaitNS   uint64            `json:"credit_wait_ns,omitempty"`  // how long packets of this end waited for credit
	Drops          map[string]uint64 `json:"drops"`                     // datagrams thrown away, by reason
}

// Rtx is the number of retransmissions.
func (c *Counters) Rtx() uint64 { return c.RtxRTO + c.RtxSACK + c.RtxNack + c.RtxProbe }

// Spurious is how many retransmissions of the counters of both ends were for nothing: the other
// end had the packet. The others replace lost packets. A network that duplicates packets makes it
// too large.
func (c *Counters) Spurious() uint64 { return min(c.Dup, c.Rtx()) }

// Add adds the counters of another endpoint.
func (c *Counters) Add(d *Counters) {
	c.TxPkts += d.TxPkts
	c.RxPkts += d.RxPkts
	c.TxBytes += d.TxBytes
	c.RxBytes += d.RxBytes
	c.RtxRTO += d.RtxRTO
	c.RtxSACK += d.RtxSACK
	c.RtxNack += d.RtxNack
	c.RtxProbe += d.RtxProbe
	c.Dup += d.Dup
	c.OOO += d.OOO
	c.Trimmed += d.Trimmed
	c.ECNCE += d.ECNCE
	c.AcksTx += d.AcksTx
	c.AcksRx += d.AcksRx
	c.OpsRUD += d.OpsRUD
	c.OpsROD += d.OpsROD
	c.OpsRUDI += d.OpsRUDI
	c.OpsUUD += d.OpsUUD
	c.RdvTx += d.RdvTx
	c.RdvRx += d.RdvRx
	c.CreditsGranted += d.CreditsGranted
	c.CreditsUsed += d.CreditsUsed
	c.CreditWaitNS += d.CreditWaitNS
	if c.Drops == nil {
		c.Drops = map[string]uint64{}
	}
	for k, n := range d.Drops {
		c.Drops[k] += n
	}
}

// Sub takes off the counters that an endpoint had before.
func (c *Counters) Sub(before *Counters) {
	c.TxPkts -= before.TxPkts
	c.RxPkts -= before.RxPkts
	c.TxBytes -= before.TxBytes
	c.RxBytes -= before.RxBytes
	c.RtxRTO -= before.RtxRTO
	c.RtxSACK -= before.RtxSACK
	c.RtxNack -= before.RtxNack
	c.RtxProbe -= before.RtxProbe
	c.Dup -= before.Dup
	c.OOO -= before.OOO
	c.Trimmed -= before.Trimmed
	c.ECNCE -= before.ECNCE
	c.AcksTx -= before.AcksTx
	c.AcksRx -= before.AcksRx
	c.OpsRUD -= before.OpsRUD
	c.OpsROD -= before.OpsROD
	c.OpsRUDI -= before.OpsRUDI
	c.OpsUUD -= before.OpsUUD
	c.RdvTx -= before.RdvTx
	c.RdvRx -= before.RdvRx
	c.CreditsGranted -= before.CreditsGranted
	c.CreditsUsed -= before.CreditsUsed
	c.CreditWaitNS -= before.CreditWaitNS
	for k, n := range before.Drops {
		if c.Drops[k] -= n; c.Drops[k] == 0 {
			delete(c.Drops, k)
		}
	}
}

// CPU is the processor time of both processes during the measurement.
type CPU struct {
	UserNS     int64 `json:"user_ns"`
	SysNS      int64 `json:"sys_ns"`
	PeerUserNS int64 `json:"peer_user_ns,omitempty"` // not measured if both are 0
	PeerSysNS  int64 `json:"peer_sys_ns,omitempty"`
}

// MarshalJSON writes both values of the peer or none, because one of them may be 0.
func (c CPU) MarshalJSON() ([]byte, error) {
	if c.PeerUserNS+c.PeerSysNS == 0 {
		type mine CPU
		return json.Marshal(mine(c))
	}
	return json.Marshal(struct {
		UserNS     int64 `json:"user_ns"`
		SysNS      int64 `json:"sys_ns"`
		PeerUserNS int64 `json:"peer_user_ns"`
		PeerSysNS  int64 `json:"peer_sys_ns"`
	}(c))
}

// Check is the result of verifying data, in messages.
type Check struct {
	OK    int64 `json:"ok"`
	Wrong int64 `json:"wrong"`
	// WrongBytes is the number of bytes that differ from what was sent.
	WrongBytes int64 `json:"wrong_bytes"`
	// Dup is how many of the wrong messages came more than once, or out of order where order
	// was required.
	Dup int64 `json:"dup"`
}

// Add adds another check.
func (c *Check) Add(o *Check) {
	c.OK += o.OK
	c.Wrong += o.Wrong
	c.WrongBytes += o.WrongBytes
	c.Dup += o.Dup
}

// A Verdict is the result of one assertion.
type Verdict struct {
	Assert string `json:"assert"`
	// Value is what the worst run measured, in the unit of its field, shares as parts of 1.
	// Size is the message size of that run. nil means that the run did not measure it.
	Value *float64 `json:"value,omitempty"`
	Size  int64    `json:"size"`
	Pass  bool     `json:"pass"`
}

// Sum returns a Run to which others can be added.
func Sum() Run {
	return Run{
		Transport: Counters{Drops: map[string]uint64{}}, PeerTransport: &Counters{Drops: map[string]uint64{}}, DataCheck: &Check{}, Lost: new(int64),
	}
}

// Add adds the counts of another run.
func (r *Run) Add(o *Run) {
	r.Msgs += o.Msgs
	r.Bytes += o.Bytes
	r.Transport.Add(&o.Transport)
	if o.PeerTransport != nil {
		r.PeerTransport.Add(o.PeerTransport)
	}
	if o.Lost != nil {
		*r.Lost += *o.Lost
	}
	if o.DataCheck != nil {
		r.DataCheck.Add(o.DataCheck)
	}
}

// Took sets the time that all added runs took, and computes the rates over it.
func (r *Run) Took(d time.Duration) {
	if r.DurationNS = int64(d); r.Msgs > 0 {
		bps, rate := float64(r.Bytes)*8/d.Seconds(), float64(r.Msgs)/d.Seconds()
		r.GoodputBPS, r.MsgsPerS = &bps, &rate
	}
}
