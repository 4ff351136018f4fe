// Package traffic has the tests of uetperf, one type for each, and makes a record of what
// both ends of a test measured.
//
// A test is a state machine. It has no clock, no goroutine and no socket. The owner of a
// Leg gives it a Conn, tells it which operations have completed, and calls it again when it
// asks for that. uetperf uses real endpoints, testbed/simulated those of a simulated
// network.
package traffic

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A Test is the behaviour of one end of one stream.
type Test interface {
	// Post posts what can be posted now. The owner calls it again when something has
	// completed, when a signal was given, or when wait has passed; at once if wait is not
	// positive.
	Post() (wait time.Duration, err error)
	// Take handles a completed operation.
	Take(c *Completion) error
	// Look is called after n completions were taken. It reports whether the test is over.
	Look(n int) (over bool, err error)
	// Finish stores the measurements in the leg's result. It may be called again.
	Finish()
}

// A Conn is one end of one stream as a test sees it: a clock, and an endpoint whose
// messages go to one peer.
type Conn interface {
	// Now is the time since an origin that all legs of an end share.
	Now() time.Duration
	// Usage is the processor time that the process has used so far; 0 if it is not counted.
	Usage() (user, sys time.Duration)
	// Send posts a message with the bytes b and, if messages of the test are numbered, the
	// number seq. It returns false if there is no room now. A message of a test that injects
	// has no completion.
	Send(b []byte, seq int64, s *Slot) (bool, error)
	// SendAll is Send of the bytes of slots, the first with the number seq. It returns how many were
	// posted; if these are not all, and there is no error, there is no room for more now.
	SendAll(slots []*Slot, seq int64) (int, error)
	// Access posts an operation of the test on the place of s in the memory of the server, from s.Buf
	// or to it. It returns false if there is no room now.
	Access(s *Slot) (bool, error)
	// Recv posts a receive to s.Buf. It returns false if there is no room now.
	Recv(s *Slot) (bool, error)
	// Fill writes the contents of message n to b. Verify counts the bytes of b that differ
	// from them.
	Fill(b []byte, n uint64)
	Verify(b []byte, n uint64) (wrong int)
	// Open opens what carries the next transaction of a test with churn. own says whether that
	// is a connection of its own; otherwise the data opens a packet delivery context. Close
	// begins its orderly end, and Closed reports whether it has ended.
	Open() (own bool, err error)
	Close() error
	Closed() bool
}

// A Completion is an operation that succeeded.
type Completion struct {
	*Slot       // nil for a write with data of the other end
	Sent  bool  // a send, or an access; false means a receive
	Len   int   // length of a received message
	Seq   int64 // number of the message, -1 if it has none
}

// A Slot is a message buffer. It is the context of the operation that uses it.
type Slot struct {
	Buf   []byte
	Leg   int           // index of its leg
	at    time.Duration // bw: when the operation was posted, if its time is taken; otherwise 0
	Reply []byte        // buffer of the reply to a request in Buf
	// New is what swap and cas write, Old what they shall find there.
	New, Old []byte
	Place    int    // the place in the memory of the server that an access is for
	Data     uint64 // what a write with data tells the server's application
	seq      int64  // receives: number of the receive in the order posted; accesses of load: number of the request
	num      int64  // requests: number of the request; swap and cas: how many have ended at the place
	len      int    // requests: length
	busy     bool   // lat and ping: the send has not completed
	word     bool   // it sends words to a sender of datagrams: see pace
}

// Idle is how long a test waits that only waits for completions and signals.
const Idle = 100 * time.Millisecond

// A Measure is the measurement of one direction of a leg: messages and the time they took,
// without warm-up and drain.
type Measure struct {
	Msgs int64 `json:"msgs"`
	// Begin is when the clock started, on the clock that all legs of an end share. Older
	// releases do not set it.
	Begin    time.Duration `json:"begin,omitempty"`
	Duration time.Duration `json:"duration"`
	User     time.Duration `json:"user"` // processor time of the process; not known if both are 0
	Sys      time.Duration `json:"sys"`
}

// A LegResult is what a leg measured.
type LegResult struct {
	Sent     int64           `json:"sent"`     // messages, warm-up included
	Received int64           `json:"received"` // messages, warm-up included
	Tx       Measure         `json:"tx"`
	Rx       Measure         `json:"rx"`
	First    time.Duration   `json:"first,omitempty"` // first round trip
	Check    *record.Check   `json:"check,omitempty"`
	Counters record.Counters `json:"counters"`
	// Echoed is how many congestion marks the leg's sends got, as its peer reported.
	Echoed uint64 `json:"echoed,omitempty"`
	// Latency, of the first leg of the server, has the times of the operations of all its legs, if
	// the client asks for them: see Spec.Times.
	Latency *record.Latency `json:"latency,omitempty"`
	// Refused is how many packets of the leg were trimmed, as its peer reported.
	Refused uint64 `json:"-"`
	// Spurious is how many packets the leg sent again although its peer had them, as the leg found out.
	Spurious uint64 `json:"-"`
	// Waiting tells what outstanding operations waited for, if the run failed.
	Waiting []string `json:"waiting,omitempty"`
}

// Add adds the result of another connection of the same stream.
func (r *LegResult) Add(o *LegResult) {
	r.Sent += o.Sent
	r.Received += o.Received
	r.Echoed += o.Echoed
	r.Counters.Add(&o.Counters)
	if o.Check != nil {
		if r.Check == nil {
			r.Check = &record.Check{}
		}
		r.Check.Add(o.Check)
	}
}
