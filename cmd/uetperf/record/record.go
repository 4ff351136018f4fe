// Package record is the JSON record of uetperf, schema "uetperf/1": one object
// per invocation.
//
// Numbers are integers or floats in the unit that the key names. What is absent
// was not measured; a zero was measured. Fields may be added; renaming or
// removing one needs a new schema.
package record

import (
	"encoding/json"
	"io"
	"time"
)

// Schema is the name of this version.
const Schema = "uetperf/1"

// A Record is one invocation.
type Record struct {
	Schema  string    `json:"schema"`
	Tool    Tool      `json:"tool"`
	Started time.Time `json:"started"` // RFC 3339
	Command []string  `json:"command"`
	Seed    uint64    `json:"seed"`
	Host    Host      `json:"host"`
	Peer    *Host     `json:"peer,omitempty"`
	Config  Config    `json:"config"`
	Path    *Path     `json:"path,omitempty"`
	Runs    []Run     `json:"runs"`
	Verdict []Verdict `json:"verdict"`
	// Error is what ended the invocation early.
	Error string `json:"error,omitempty"`
	// OK is true when everything was measured, all data was right and every
	// assertion held: exit status 0.
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

// Tool is the program that measured.
type Tool struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Host is one of the two ends.
type Host struct {
	Name   string `json:"name"`
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"` // that the process may use
}

// Config is what was asked for.
type Config struct {
	Test     string `json:"test"`
	Op       string `json:"op"`
	EP       string `json:"ep"`
	Mode     string `json:"mode"`
	Complete string `json:"complete"`
	CC       string `json:"cc"`
	Sec      string `json:"sec"`
	CRC      bool   `json:"crc"`
	// BaseRTTNS is config_base_rtt where it was given.
	BaseRTTNS int64 `json:"base_rtt_ns,omitempty"`
	Trimming  bool  `json:"trimming,omitempty"` // packets are offered to switches that trim
	MTU       int   `json:"mtu,omitempty"`      // payload bytes per packet
	Paths     int   `json:"paths"`
	Window    int   `json:"window,omitempty"` // messages outstanding per stream
	Parallel  int   `json:"parallel"`
	// Rate is how many requests a second were asked of load, Arrivals how their
	// intended times are spread: "constant", "poisson" or "uniform".
	Rate     float64 `json:"rate,omitempty"`
	Arrivals string  `json:"arrivals,omitempty"`
	// Reply is the size of replies of load and rr.
	Reply    int64  `json:"reply,omitempty"`
	Churn    bool   `json:"churn,omitempty"` // each transaction of rr opened and closed
	Progress string `json:"progress"`
	// Direction is "forward" (client to server), "reverse" or "both".
	Direction string `json:"direction"`
	// Impair is the network that the client put in between, if any.
	Impair string `json:"impair,omitempty"`
}

// Path is what the way between the ends is, as the client's socket has it.
type Path struct {
	Local     string  `json:"local"`
	Remote    string  `json:"remote"`
	Interface string  `json:"interface"`
	MTU       int     `json:"mtu"` // largest IP packet in bytes
	GSO       Feature `json:"gso"`
	GRO       Feature `json:"gro"`
	// Rcvbuf and Sndbuf are what the system gave, the others what was asked
	// for.
	Rcvbuf      int  `json:"rcvbuf"`
	Sndbuf      int  `json:"sndbuf"`
	RcvbufAsked int  `json:"rcvbuf_asked"`
	SndbufAsked int  `json:"sndbuf_asked"`
	ECN         bool `json:"ecn"`
}

// Feature is something that the system may not have.
type Feature struct {
	On  bool   `json:"on"`
	Why string `json:"why"` // why it is off
}

// A Run is the measurement of one size.
type Run struct {
	Name  string `json:"name,omitempty"` // of a step of the self-check
	Op    string `json:"op,omitempty"`   // where it is not Config.Op
	Size  int64  `json:"size"`
	Iters int64  `json:"iters"` // round trips, or messages per stream
	Msgs  int64  `json:"msgs"`
	Bytes int64  `json:"bytes"`
	// DurationNS is what Msgs took; warm-up and drain are not in it.
	DurationNS int64 `json:"duration_ns"`
	// SetupNS is opening both endpoints and telling their addresses, FirstNS
	// the first round trip after it.
	SetupNS int64 `json:"setup_ns,omitempty"`
	FirstNS int64 `json:"first_ns,omitempty"`
	// ConnectNS is, of SetupNS, what connections took, from the request to the
	// answer; the slowest if there were more than one.
	ConnectNS int64 `json:"connect_ns,omitempty"`

	Latency    *Latency `json:"latency_ns,omitempty"`
	GoodputBPS *float64 `json:"goodput_bps,omitempty"` // bits of messages per second
	MsgsPerS   *float64 `json:"msgs_per_s,omitempty"`
	Lost       *int64   `json:"msgs_lost,omitempty"` // sent and not received
	// MeasuredAt is the end whose clock counted, "sender" or "receiver".
	MeasuredAt string   `json:"measured_at,omitempty"`
	Streams    []Stream `json:"streams,omitempty"` // with more than one

	Transport     Counters  `json:"transport"`                // the client's endpoints
	PeerTransport *Counters `json:"peer_transport,omitempty"` // the server's
	CPU           *CPU      `json:"cpu,omitempty"`
	DataCheck     *Check    `json:"data_check,omitempty"`
	// Load is of load, Churn of rr that opens and closes, Incast and Soak of the
	// tests of these names.
	Load   *Load   `json:"load,omitempty"`
	Churn  *Churn  `json:"churn,omitempty"`
	Incast *Incast `json:"incast,omitempty"`
	Soak   *Soak   `json:"soak,omitempty"`
	// Errors are the transactions of rr that failed, LastError the last of them;
	// those are in no latency.
	Errors    *int64 `json:"errors,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// Series is how the run went, in the order of time.
	Series []Sample `json:"series,omitempty"`
	// Error is why the run ended early; what is here was measured before.
	Error string `json:"error,omitempty"`
}

// A Sample is what an interval of a run did: counts are those since the sample
// before, CwndBytes and RTTNS what they were at its end, of the busiest packet
// delivery context of the end that sends. What both ends count is added.
type Sample struct {
	AtNS      int64  `json:"t_ns"` // end of the interval, since both ends were told to go; warm-up is in it
	Bytes     int64  `json:"bytes"`
	Msgs      int64  `json:"msgs"`
	CwndBytes int64  `json:"cwnd_bytes,omitempty"` // congestion window
	RTTNS     int64  `json:"rtt_ns,omitempty"`     // smoothed round-trip time
	Rtx       uint64 `json:"rtx"`                  // retransmissions
	ECN       uint64 `json:"ecn"`                  // packets marked "congestion experienced"
	Trimmed   uint64 `json:"trimmed"`
	Drops     uint64 `json:"drops"` // datagrams thrown away
}

// Plus adds what another sample counted.
func (s *Sample) Plus(o *Sample) {
	s.Bytes += o.Bytes
	s.Msgs += o.Msgs
	s.Rtx += o.Rtx
	s.ECN += o.ECN
	s.Trimmed += o.Trimmed
	s.Drops += o.Drops
}

// A Stream is one of several at once.
type Stream struct {
	Direction  string  `json:"direction"` // "forward" or "reverse"
	Msgs       int64   `json:"msgs"`
	Bytes      int64   `json:"bytes"`
	DurationNS int64   `json:"duration_ns"`
	GoodputBPS float64 `json:"goodput_bps"`
	// Of the sender's endpoint over the whole run, where each stream has one
	// sender: retransmissions, packets that came with a congestion mark, and
	// packets cut by a switch, as the receiver told.
	Rtx     *uint64 `json:"rtx,omitempty"`
	ECN     *uint64 `json:"ecn,omitempty"`
	Trimmed *uint64 `json:"trimmed,omitempty"`
}

// Load is an open loop: each request has a time at which it is meant to begin, and
// its latency counts from there. All numbers leave the warm-up out.
type Load struct {
	Offered    int64   `json:"offered"` // requests meant to begin
	OfferedPer float64 `json:"offered_per_s"`
	// Late are those of them that began more than LateAfterNS after their time,
	// MaxLagNS the most that one that began was late. Unsent are those that never
	// began: they count as late, and in the latencies with the time they waited.
	Late        int64 `json:"late"`
	LateAfterNS int64 `json:"late_after_ns"`
	MaxLagNS    int64 `json:"max_lag_ns"`
	Unsent      int64 `json:"unsent"`
	// Overloaded: requests piled up to the end, so that the latencies say how
	// long the test was, and msgs_per_s is the most that host and path carry.
	Overloaded bool `json:"overloaded"`
}

// Churn is what opening and closing took. With rdm, whose data opens the packet
// delivery context, Open is until the request was acknowledged, and part of the
// transaction; with msg it is endpoint and connection, before the transaction.
type Churn struct {
	Open  *Latency `json:"open_ns,omitempty"`
	Close *Latency `json:"close_ns,omitempty"`
}

// Incast is many senders to one receiver, first streams, then rounds.
type Incast struct {
	// Jain is the fairness index of the second half of the streams: 1 if all
	// senders got the same, 1/n if one got all.
	Jain *float64 `json:"jain,omitempty"`
	// ConvergenceNS is from when on each sender was within the part Within of its
	// share for good, since the begin; absent if one was not at the end.
	ConvergenceNS *int64  `json:"convergence_ns,omitempty"`
	Within        float64 `json:"within"`
	// Rounds is how many there were, Round the time of one: until the slowest
	// sender's block was complete.
	Rounds int64    `json:"rounds"`
	Round  *Latency `json:"round_ns,omitempty"`
}

// Soak is a long test of everything.
type Soak struct {
	Episodes int64 `json:"episodes"` // tests, one after the other
	Failed   int64 `json:"failed"`   // of those
	// Kinds counts the episodes by what they were.
	Kinds map[string]int64 `json:"kinds"`
	// Leaks judges each resource of both ends. Leaking are those that grow.
	Leaks   []Leak `json:"leaks"`
	Leaking int64  `json:"leaking"`
	// Rounds are the episodes, the last 2000: before one that failed is left out,
	// those that went well are.
	Rounds []Round `json:"rounds,omitempty"`
}

// A Round is an episode of a soak.
type Round struct {
	N          int64 `json:"n"`    // 1 is the first
	AtNS       int64 `json:"t_ns"` // its begin, since that of the soak
	DurationNS int64 `json:"duration_ns"`
	// Command repeats it alone, with all that was drawn for it, as a shell reads
	// it. What --impair does to which packet is drawn anew.
	Command string `json:"command"`
	Error   string `json:"error,omitempty"` // why it failed
}

// A Leak is how a resource went over the time of a soak, its warm-up left out: a
// line through all samples, by least squares.
type Leak struct {
	End  string `json:"end"`  // "client" or "server"
	What string `json:"what"` // "rss" and "heap" in bytes, "goroutines", "fds"
	// Mean is that of the samples, Slope per hour, Growth what the line grew from
	// the first sample to the last, Bound the most that Growth may be.
	Mean    float64 `json:"mean"`
	Slope   float64 `json:"slope_per_h"`
	Growth  float64 `json:"growth"`
	Bound   float64 `json:"bound"`
	Samples int     `json:"samples"`
	Leaks   bool    `json:"leaks"`
}

// Latency is a distribution in nanoseconds: one way, that is half a round trip,
// unless RTT is true.
type Latency struct {
	Min    int64   `json:"min"`
	P50    int64   `json:"p50"`
	P90    int64   `json:"p90"`
	P99    int64   `json:"p99"`
	P999   int64   `json:"p999"`
	Max    int64   `json:"max"`
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"`
	// HDR is the whole histogram in nanoseconds: HdrHistogram V2, compressed,
	// base64.
	HDR string `json:"hdr"`
	RTT bool   `json:"rtt,omitempty"`
}

// Counters are those of an end's endpoints over the whole run, warm-up included.
type Counters struct {
	TxPkts   uint64            `json:"tx_pkts"`
	RxPkts   uint64            `json:"rx_pkts"`
	TxBytes  uint64            `json:"tx_bytes"` // UDP payload
	RxBytes  uint64            `json:"rx_bytes"`
	RtxRTO   uint64            `json:"rtx_rto"`
	RtxSACK  uint64            `json:"rtx_sack"`
	RtxNack  uint64            `json:"rtx_nack"`
	RtxProbe uint64            `json:"rtx_probe"` // tail probes
	Dup      uint64            `json:"dup"`
	OOO      uint64            `json:"ooo"`
	Trimmed  uint64            `json:"trimmed"` // received of which a switch cut the payload
	ECNCE    uint64            `json:"ecn_ce"`
	AcksTx   uint64            `json:"acks_tx"`
	AcksRx   uint64            `json:"acks_rx"`
	Drops    map[string]uint64 `json:"drops"` // datagrams thrown away, by reason
}

// Rtx is the number of retransmissions.
func (c *Counters) Rtx() uint64 { return c.RtxRTO + c.RtxSACK + c.RtxNack + c.RtxProbe }

// Add adds what another endpoint counted.
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
	if c.Drops == nil {
		c.Drops = map[string]uint64{}
	}
	for k, n := range d.Drops {
		c.Drops[k] += n
	}
}

// CPU is the processor time of both processes while the run was measured.
type CPU struct {
	UserNS     int64 `json:"user_ns"`
	SysNS      int64 `json:"sys_ns"`
	PeerUserNS int64 `json:"peer_user_ns,omitempty"` // both are 0: not measured
	PeerSysNS  int64 `json:"peer_sys_ns,omitempty"`
}

// MarshalJSON writes both of the peer or none: one of them may well be 0.
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

// Check is what the verification of data found, in messages.
type Check struct {
	OK    int64 `json:"ok"`
	Wrong int64 `json:"wrong"`
	// WrongBytes are the bytes that were not what the sender had sent.
	WrongBytes int64 `json:"wrong_bytes"`
	// Dup are the messages among the wrong ones that came more than once, or
	// out of order where order was asked for.
	Dup int64 `json:"dup"`
}

// Add adds what another check found.
func (c *Check) Add(o *Check) {
	c.OK += o.OK
	c.Wrong += o.Wrong
	c.WrongBytes += o.WrongBytes
	c.Dup += o.Dup
}

// A Verdict is one assertion.
type Verdict struct {
	Assert string `json:"assert"`
	// Value is what was measured, in the unit of the field it is about, shares
	// as parts of 1: of the run that comes off worst, whose size is Size. nil: that
	// one did not measure it.
	Value *float64 `json:"value,omitempty"`
	Size  int64    `json:"size"`
	Pass  bool     `json:"pass"`
}

// Sum is a Run to Add others to.
func Sum() Run {
	return Run{
		Transport: Counters{Drops: map[string]uint64{}}, PeerTransport: &Counters{Drops: map[string]uint64{}}, DataCheck: &Check{}, Lost: new(int64),
	}
}

// Add adds what another run counted.
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

// Took says how long the runs that were added took in all, and what they carried in that time.
func (r *Run) Took(d time.Duration) {
	if r.DurationNS = int64(d); r.Msgs > 0 {
		bps, rate := float64(r.Bytes)*8/d.Seconds(), float64(r.Msgs)/d.Seconds()
		r.GoodputBPS, r.MsgsPerS = &bps, &rate
	}
}
