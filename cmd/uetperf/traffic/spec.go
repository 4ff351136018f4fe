package traffic

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/internal/units"
)

// The tests.
const (
	Ping = "ping" // one round trip at a time, slowly
	Lat  = "lat"  // round trips back to back
	BW   = "bw"   // a stream of messages with a window
	Rate = "rate" // the same, counted in messages
	Load = "load" // requests at intended times, whether replies come or not
	RR   = "rr"   // transactions: a request, its reply, the next request
	// Incast sends blocks of several senders to one receiver: streams of blocks for half of
	// the time, then one block each in rounds.
	Incast = "incast"
	// Soak runs all the others, one after another: a Mix.
	Soak = "soak"
)

// The arrivals of a load: the gaps between intended times.
const (
	Constant = "constant"
	Poisson  = "poisson" // exponential gaps
	Uniform  = "uniform" // gaps of 0 to twice the mean
)

// Operations.
const (
	Send   = "send"
	TSend  = "tsend"
	Inject = "inject" // tagged
	// The following access memory of the server, whose application takes no part.
	Write = "write"
	// WriteData is Write with remote CQ data: the server's application gets a completion for each.
	WriteData = "writedata"
	Read      = "read"
	FAdd      = "fadd" // atomic fetch-and-add of 1 to numbers of 64 bits
	Swap      = "swap" // atomic write of numbers of 64 bits that returns the old ones
	CAS       = "cas"  // atomic compare-and-swap of one number of 64 bits
)

// Endpoint types.
const (
	RDM   = "rdm"
	MSG   = "msg"
	Dgram = "dgram"
)

// Modes: how packets are delivered.
const (
	RUD  = "rud"
	ROD  = "rod"
	RUDI = "rudi" // for writes and reads, which may happen twice
	UUD  = "uud"  // datagrams, which may be lost
)

// The security of a test covers its endpoints and its control exchange.
const (
	Off = "off"
	PSK = "psk" // a cluster key
	TLS = "tls" // certificates
)

// The bounds of a Spec keep a server from being asked for the impossible.
const (
	MaxParallel = 10000
	// FewParallel is the most streams of a test that ends which know no parts and no lists of
	// streams can have (package perf).
	FewParallel = 64
	MaxWindow   = 16384
	MaxPaths    = 64
	// MaxSilence is the longest silence that a client may ask for. A server permits it on all
	// connections, because the shorter of both ends' values applies.
	MaxSilence = time.Hour
	// MaxMemory bounds the message buffers of one leg, in bytes.
	MaxMemory = 1 << 30
	// bufferShare is the memory of one direction's buffers in bytes if messages may share
	// buffers, which they may without -c.
	bufferShare = 64 << 20
	// MaxTotal bounds the message buffers of all legs of a run at one end.
	MaxTotal = 4 << 30
	// maxWaiting bounds the messages that may be under way to the receiver of an incast at
	// once. It posts twice as many receives.
	maxWaiting = 16384
)

// A Spec describes a run: one size of one test.
type Spec struct {
	Test     string `json:"test"`
	Op       string `json:"op"`
	EP       string `json:"ep,omitempty"`  // rdm, msg or dgram; "" means rdm
	Sec      string `json:"sec,omitempty"` // off, psk or tls; "" means off
	Mode     string `json:"mode"`          // rud, rod, rudi or uud
	Complete string `json:"complete"`      // inject, transmit, delivery, match or commit
	Size     int64  `json:"size"`
	// Iters is the number of measured round trips, or of messages per stream. 0 means that
	// Time decides.
	Iters  int64         `json:"iters,omitempty"`
	Time   time.Duration `json:"time,omitempty"`
	Warmup int64         `json:"warmup,omitempty"` // messages before the measured ones
	// Interval is the pause between the round trips of a ping.
	Interval time.Duration `json:"interval,omitempty"`
	Window   int           `json:"window,omitempty"`
	Parallel int           `json:"parallel,omitempty"`
	// OneQueue makes all streams share a completion queue and a thread at each end.
	OneQueue bool `json:"one_queue,omitempty"`
	// SharePort makes all streams share a port at each end: their endpoints have one address.
	SharePort bool `json:"share_port,omitempty"`
	// Rate is how many requests all streams of a load begin in a second, Arrivals the
	// distribution of the gaps.
	Rate     float64 `json:"rate,omitempty"`
	Arrivals string  `json:"arrivals,omitempty"`
	// Reply is the size of the replies of load and rr.
	Reply int64 `json:"reply,omitempty"`
	// Churn makes each transaction of rr open and close a packet delivery context or a
	// connection.
	Churn bool `json:"churn,omitempty"`
	// Within is how near to its share, as a part of it, a sender of an incast must stay to
	// have converged.
	Within float64 `json:"within,omitempty"`
	// Sample is the interval of the series of both ends; 0 means that there is no series.
	Sample   time.Duration `json:"sample,omitempty"`
	Reverse  bool          `json:"reverse,omitempty"`
	Bidir    bool          `json:"bidir,omitempty"`
	Check    bool          `json:"check,omitempty"`
	Progress string        `json:"progress"` // auto or manual
	CRC      bool          `json:"crc"`
	Trim     bool          `json:"trim,omitempty"` // switches trim: see transport.Config
	CC       string        `json:"cc"`
	GSO      string        `json:"gso"` // auto, on or off, at both ends
	MTU      int           `json:"mtu,omitempty"`
	Paths    int           `json:"paths,omitempty"`
	// PathChoice is how packets choose among Paths, "" for mixed.
	PathChoice string `json:"path_choice,omitempty"`
	// Encapsulation is symmetric, also if it is "", or standard: see uet.Config.
	Encapsulation string `json:"encapsulation,omitempty"`
	// Job is the JobID of the endpoints, 24 bits; 0 means the default. A test has one of its own: a late
	// message of another test or program, whose port it has taken, is refused.
	Job uint32 `json:"job,omitempty"`
	// Seed determines the contents of messages.
	Seed uint64 `json:"seed"`
	// BaseRTT is config_base_rtt; 0 means the default (transport.Config).
	BaseRTT time.Duration `json:"base_rtt,omitempty"`
	// Rendezvous is the length from which on messages are announced, and read by their receiver; 0 means
	// that none is.
	Rendezvous int64 `json:"rendezvous,omitempty"`
	// Patience is how long an answer to a datagram may take until it is lost, if longer than usual.
	Patience time.Duration `json:"patience,omitempty"`
	// PeerTimeout is how long a peer may be silent while something is owed.
	PeerTimeout time.Duration `json:"peer_timeout,omitempty"`
}

// The kinds of congestion control of a test.
const (
	NSCC   = "nscc"
	RCCC   = "rccc"
	BothCC = "both"
)

// The choices of path of a test.
const (
	Mixed     = "mixed"
	Bitmap    = "bitmap"
	List      = "list"
	REPS      = "reps"
	Oblivious = "oblivious"
)

// The encapsulations of a test.
const (
	Symmetric = "symmetric"
	Standard  = "standard"
)

// Times reports whether a stream takes times from the call of an operation to its completion. A
// completion that says nothing of arrival has none.
func (s *Spec) Times() bool {
	return s.Test == BW && s.Op != Inject && s.Complete != "inject" && !s.Lossy()
}

// Pingpong reports whether the test makes round trips.
func (s *Spec) Pingpong() bool { return s.Test == Ping || s.Test == Lat }

// Exchanges reports whether the test has requests and replies with numbers.
func (s *Spec) Exchanges() bool { return s.Test == Load || s.Test == RR }

// Numbered reports whether each message has a number, even if it is not checked.
func (s *Spec) Numbered() bool { return s.Check || s.Exchanges() || s.Test == Incast || s.Lossy() }

// maxRate bounds Rate: no host can count more messages.
const maxRate = 1e9

const (
	// minSample is the shortest interval of a series.
	minSample = 10 * time.Millisecond
	// The default interval of a series is the time divided by sampleParts, but at least
	// SampleLeast.
	sampleParts = 100
	SampleLeast = 100 * time.Millisecond
)

// Sampling is the default interval of the series.
func (s *Spec) Sampling() time.Duration {
	if s.Test == Ping {
		return 0
	}
	return max(s.Time/sampleParts, SampleLeast)
}

// Endpoint is the type of the endpoints.
func (s *Spec) Endpoint() string { return cmp.Or(s.EP, RDM) }

// Control is the type of the endpoints that both ends arrange a test by.
func (s *Spec) Control() string {
	if s.EP == Dgram {
		return RDM
	}
	return s.Endpoint()
}

// Lossy reports whether messages may be lost.
func (s *Spec) Lossy() bool { return s.Mode == UUD }

// Security is what secures the endpoints.
func (s *Spec) Security() string { return cmp.Or(s.Sec, Off) }

// OneSided reports whether the operation accesses memory of the server.
func (s *Spec) OneSided() bool {
	return s.Op == Write || s.Op == WriteData || s.Op == Read || s.Atomic()
}

// Atomic reports whether the operation is an atomic one on numbers.
func (s *Spec) Atomic() bool { return s.Op == FAdd || s.Op == Swap || s.Op == CAS }

// Durable reports whether an operation ends when its bytes would survive a loss of power at the server.
func (s *Spec) Durable() bool { return s.Complete == "commit" }

// MaxAdds is how many bytes of numbers one fetch-and-add or swap changes at most.
const MaxAdds = 512

// Places is how many places of Size bytes the memory of the server has: one for each operation
// that may be under way.
func (s *Spec) Places() int { return s.EffectiveWindow() }

// Tagged reports whether messages are tagged.
func (s *Spec) Tagged() bool { return s.Op == TSend || s.Op == Inject }

// Sends reports whether a side sends messages that are not answers.
func (s *Spec) Sends(server bool) bool {
	if s.Pingpong() || s.Exchanges() || s.Test == Incast || s.OneSided() {
		return !server
	}
	return s.Bidir || s.Reverse == server
}

// Validate returns an error for the first setting that cannot be run.
func (s *Spec) Validate() error {
	oneOf := func(what, v string, allowed ...string) error {
		for _, a := range allowed {
			if v == a {
				return nil
			}
		}
		return fmt.Errorf("%s %q is not one of %v", what, v, allowed)
	}
	for _, err := range []error{
		oneOf("test", s.Test, Ping, Lat, BW, Rate, Load, RR, Incast),
		oneOf("operation", s.Op, Send, TSend, Inject, Write, WriteData, Read, FAdd, Swap, CAS),
		oneOf("endpoint type", s.Endpoint(), RDM, MSG, Dgram),
		oneOf("security", s.Security(), Off, PSK, TLS),
		oneOf("mode", s.Mode, RUD, ROD, RUDI, UUD),
		oneOf("completion level", s.Complete, "inject", "transmit", "delivery", "match", "commit"),
		oneOf("progress", s.Progress, "auto", "manual"),
		oneOf("congestion control", s.CC, NSCC, RCCC, BothCC),
		oneOf("choice of path", cmp.Or(s.PathChoice, Mixed), Mixed, Bitmap, List, REPS, Oblivious),
		oneOf("gso", s.GSO, "auto", "on", "off"),
	} {
		if err != nil {
			return err
		}
	}
	if s.Test == Load {
		if err := oneOf("arrivals", s.Arrivals, Constant, Poisson, Uniform); err != nil {
			return err
		}
	}
	switch {
	case s.EP != MSG && s.Sec == TLS:
		return fmt.Errorf("security tls is of connections: take --ep msg, or --sec psk")
	case s.Lossy() != (s.EP == Dgram):
		return fmt.Errorf("mode %s and endpoint type %s do not go together: datagrams have mode uud and --ep dgram", s.Mode, s.Endpoint())
	case s.Lossy() && s.Churn:
		return errors.New("datagrams open and close nothing: leave --churn out, or --mode uud")
	case s.Lossy() && (s.Op != Send || s.Test == Incast):
		return fmt.Errorf("datagrams have operation send in ping, lat, bw, rate, load and rr: leave out %s of %s, or --mode uud", s.Op, s.Test)
	case s.Lossy() && s.Complete != "inject" && s.Complete != "transmit":
		return fmt.Errorf("nobody says of a datagram that it arrived: with mode uud take --complete transmit or inject, not %s", s.Complete)
	case s.Lossy() && s.largest() > cmp.Or(int64(s.MTU), onePacket):
		return fmt.Errorf("size %s does not fit into one packet, as a datagram must: at most %d", units.Size(s.largest()), cmp.Or(int64(s.MTU), onePacket))
	case s.Size > MaxMemory/2:
		return fmt.Errorf("size %s is more than %s, the most that a test has buffers for", units.Size(s.Size), units.Bytes(MaxMemory/2))
	case s.Size < 0:
		return fmt.Errorf("size %d is negative", s.Size)
	case s.Iters < 0 || s.Time < 0 || s.Warmup < 0 || s.Iters+s.Warmup < 0:
		return fmt.Errorf("iterations, time or warm-up are negative")
	case s.Iters == 0 && s.Time == 0:
		return fmt.Errorf("neither iterations nor time say how long the test is")
	case s.Window < 0 || s.Window > MaxWindow || !s.Pingpong() && s.Window == 0:
		return fmt.Errorf("window %d is not 1 to %d", s.Window, MaxWindow)
	case s.Parallel < 1 || s.Parallel > MaxParallel:
		return fmt.Errorf("-P %d is not 1 to %d", s.Parallel, MaxParallel)
	case s.Shares() && s.Test != BW && s.Test != Rate:
		return fmt.Errorf("streams share a queue, as more than %d do, in bw and rate: take one of these instead of %s, or fewer streams", FewParallel, s.Test)
	case s.SharePort && s.EP == MSG:
		return errors.New("--share-port is of rdm and dgram endpoints, a connection has a port of its own: leave it out, or -e msg")
	case s.SharePort && s.Test == Incast:
		return errors.New("--share-port makes one sender of all, and an incast is of many: leave it out, or take bw")
	case s.SharePort && s.Churn:
		return errors.New("--churn closes the packet delivery contexts of a stream, which all have in common with --share-port: leave one of both out")
	case s.SharePort && s.Pingpong():
		return fmt.Errorf("%s has one stream, which shares its port with none: leave --share-port out", s.Test)
	case s.Shares() && s.Op == WriteData:
		return fmt.Errorf("a write with data does not tell which stream it is of: take another operation, or streams that share no queue (at most %d)", FewParallel)
	case s.MTU != 0 && s.MTU != 1024 && s.MTU != 2048 && s.MTU != 4096 && s.MTU != 8192:
		return fmt.Errorf("--mtu %d is not 1024, 2048, 4096 or 8192", s.MTU)
	case s.Paths < 0 || s.Paths > MaxPaths:
		return fmt.Errorf("--paths %d is not 1 to %d", s.Paths, MaxPaths)
	case s.Encapsulation != "" && s.Encapsulation != Symmetric && s.Encapsulation != Standard:
		return fmt.Errorf("encapsulation %q is neither %s nor %s", s.Encapsulation, Symmetric, Standard)
	case s.Encapsulation == Standard && (s.Parallel > 1 && !s.SharePort || s.Churn && s.EP == MSG):
		return fmt.Errorf("with --encapsulation standard an address has one endpoint, or several that share its port: add --share-port, or leave -P out, and --churn of connections")
	case s.BaseRTT < 0 || s.BaseRTT > time.Second:
		return fmt.Errorf("--base-rtt %v is not 0 to 1s", s.BaseRTT)
	case s.Rendezvous < 0 || s.Rendezvous > MaxMemory:
		return fmt.Errorf("--rendezvous %d is not 1 to %s", s.Rendezvous, units.Bytes(MaxMemory))
	case s.Rendezvous > 0 && s.OneSided():
		return fmt.Errorf("--rendezvous is of messages, and %s has none: leave one of both out", s.Op)
	case s.Rendezvous > 0 && (s.Op == Inject || s.Complete == "inject"):
		return errors.New("--rendezvous lends a message until it was read, and inject copies it: leave one of both out")
	case s.Rendezvous > 0 && s.Lossy():
		return errors.New("--rendezvous is of messages that arrive, and datagrams may not: leave it out, or --mode uud")
	case s.PeerTimeout < 0 || s.PeerTimeout > MaxSilence || s.Interval < 0 || s.Patience < 0 || s.Patience > MaxSilence:
		return fmt.Errorf("a time is negative or too long")
	case s.Trim && s.Security() != Off:
		return fmt.Errorf("trimming is of no use with security %s: of a sealed packet switches leave nothing that could be read", s.Security())
	case s.Trim && !s.CRC:
		return fmt.Errorf("trimming needs the CRC, which tells a whole packet from one that was cut")
	case s.Reverse && s.Bidir:
		return fmt.Errorf("-R and --bidir are two directions: give one")
	case (s.Reverse || s.Bidir || s.Parallel > 1) && s.Pingpong():
		return fmt.Errorf("%s has no direction and one stream", s.Test)
	case (s.Reverse || s.Bidir) && (s.Exchanges() || s.Test == Incast):
		return fmt.Errorf("%s has no other direction: leave -R and --bidir out", s.Test)
	case s.Op == Inject && (s.Exchanges() || s.Test == Incast), s.Op == Send && s.Test == Incast:
		return fmt.Errorf("%s has no operation %s", s.Test, s.Op)
	case s.OneSided() && s.Test != Lat && s.Test != BW && s.Test != Rate && s.Test != Load:
		return fmt.Errorf("%s has no operation %s, lat, bw, rate and load have: take one of these", s.Test, s.Op)
	case s.OneSided() && s.Reply > 0:
		return fmt.Errorf("nobody replies to operation %s, which ends with its completion: leave --reply out", s.Op)
	case s.OneSided() && (s.Reverse || s.Bidir):
		return fmt.Errorf("the client alone has operation %s: leave -R and --bidir out", s.Op)
	case s.OneSided() && (s.Complete == "match" || s.Complete == "inject"): // inject says nothing of arrival, and the server does not look
		return fmt.Errorf("a test of %s has no completion level %s", s.Op, s.Complete)
	case s.Mode == RUDI && s.Op != Write && s.Op != Read:
		return fmt.Errorf("mode rudi is of the operations write and read, which may happen twice: take one of these instead of %s, or --mode rud", s.Op)
	case s.Mode == RUDI && s.Durable():
		return fmt.Errorf("completion level commit needs a PDC: take --mode rud or rod")
	case s.Durable() && s.Op != Write && s.Op != WriteData:
		return fmt.Errorf("completion level commit is of the operations write and writedata: take one of these instead of %s, or another level", s.Op)
	case s.Complete == "match" && s.Op == Inject:
		return errors.New("an injected message has no completion, so none at match")
	case s.Op == CAS && s.Size != 8:
		return fmt.Errorf("size %d is not the 8 bytes of the number that cas compares", s.Size)
	case s.Atomic() && (s.Size < 8 || s.Size > MaxAdds || s.Size%8 != 0):
		return fmt.Errorf("size %d is not one to %d numbers of 8 bytes", s.Size, MaxAdds/8)
	case s.Reply < 0 || s.Reply > MaxMemory/2 || s.Reply > 0 && !s.Exchanges():
		return fmt.Errorf("--reply %d is not 0 to %s, of load and rr", s.Reply, units.Bytes(MaxMemory/2))
	case s.Test == Load && !(s.Rate > 0 && s.Rate <= maxRate) || s.Test != Load && s.Rate != 0:
		return fmt.Errorf("--rate %g/s is not more than 0 and at most %g/s, of load", s.Rate, maxRate)
	case (s.Test == Load || s.Test == Incast) && s.Time == 0:
		return fmt.Errorf("%s needs a time", s.Test)
	case s.Churn && s.Test != RR:
		return fmt.Errorf("%s opens and closes nothing: churn is of rr", s.Test)
	case s.Churn && s.Window > 1:
		return fmt.Errorf("churn has one transaction at a time, not a window of %d: take more streams", s.Window)
	case s.Test == Incast && s.EP == MSG:
		return fmt.Errorf("incast needs rdm endpoints: a connected one has a single sender")
	case s.Test == Incast && (s.Parallel < 2 || !(s.Within > 0 && s.Within <= 1)):
		return fmt.Errorf("incast of %d senders within %g of their share: take at least 2, within more than 0 and at most 1", s.Parallel, s.Within)
	case s.Test == Incast && s.Parallel*s.Window > maxWaiting:
		return fmt.Errorf("%d senders with %d blocks each under way are more than the %d that one receiver waits for", s.Parallel, s.Window, maxWaiting)
	case s.Sample < 0 || s.Sample > 0 && s.Sample < minSample:
		return fmt.Errorf("a sample each %v is not at least %v", s.Sample, minSample)
	}
	_, tx, _, rx := s.slots()
	if n := int64(s.Parallel) * int64(tx+rx) * s.largest(); n > MaxTotal {
		return fmt.Errorf("%d streams of %s need %s of buffers, more than %s: fewer streams, a smaller window or no --check", s.Parallel, units.Size(s.Size), units.Bytes(n), units.Bytes(MaxTotal))
	}
	return nil
}

// Shares reports whether all streams share a completion queue and a thread at each end: so many
// threads would take turns.
func (s *Spec) Shares() bool { return s.OneQueue || s.Parallel > FewParallel }

// Together reports whether the endpoints of all streams are in one domain at each end.
func (s *Spec) Together() bool { return s.SharePort || s.Shares() }

// largest is the longest message of the test.
func (s *Spec) largest() int64 { return max(s.Size, s.Reply) }

const (
	// pongs is how many messages of a ping-pong may have been answered without having
	// completed. One ACK reports fewer than that (docs/decisions/0025).
	pongs = 16
	// onePacket is the longest message that a packet can carry, in bytes.
	onePacket = 8192
)

// slots returns how many messages each direction of a leg has outstanding, and how many
// buffers it has.
func (s *Spec) slots() (tx, txBufs, rx, rxBufs int) {
	if s.Pingpong() && s.OneSided() { // the next one begins when this one has ended
		return 1, 1, 1, 1
	}
	if s.Pingpong() {
		if s.Size > onePacket || s.Complete == "delivery" || s.Complete == "match" {
			return 2, 2, 4, 4
		}
		return pongs, pongs, 2 * pongs, 2 * pongs
	}
	fit := func(n int, mem int64) int {
		if s.largest() == 0 {
			return n
		}
		return int(max(1, min(int64(n), mem/s.largest())))
	}
	if s.Lossy() { // what finds no receive is lost
		rx = max(2*s.Window, lossyRecvs)
		return s.Window, s.Window, rx, rx
	}
	// Checked data needs a buffer for each outstanding message.
	if s.Check {
		tx, rx = fit(s.Window, MaxMemory/4), fit(2*s.Window, MaxMemory/2)
		return tx, tx, rx, rx
	}
	tx, rx = s.Window, 2*s.Window
	return tx, fit(tx, bufferShare), rx, fit(rx, bufferShare)
}

// Direction is the direction of the messages.
func (s *Spec) Direction() string {
	switch {
	case s.Bidir, s.Pingpong(), s.Exchanges(), s.Test == Soak:
		return "both"
	case s.Reverse:
		return "reverse"
	}
	return "forward"
}

// Depth is how many messages each direction of a leg has outstanding.
func (s *Spec) Depth() (tx, rx int) {
	tx, _, rx, _ = s.slots()
	return tx, rx
}

// EffectiveWindow is how many messages are really outstanding. It is less than asked for if
// checked messages would take too much memory.
func (s *Spec) EffectiveWindow() int { tx, _, _, _ := s.slots(); return tx }
