// Package traffic is the tests of uetperf: one type for each, and what both ends of a test
// measured made into a record.
//
// A test is a state machine. It has no clock, no goroutine and no socket: whoever owns a Leg
// gives it a Conn, tells it which operations have completed, and calls it again when it says so.
// uetperf does that with real endpoints, testbed/simulated with those of a simulated network.
package traffic

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// A Test is what one end of one stream does.
type Test interface {
	// Post posts what there is to post now. Its owner calls it again when something has
	// completed, when a signal was given, or when wait has passed; at once if that is not
	// more than 0.
	Post() (wait time.Duration, err error)
	// Take takes a completed operation.
	Take(c *Completion) error
	// Look is called when n completions have been taken. It reports whether the test is over.
	Look(n int) (over bool, err error)
	// Finish notes what was measured. It may be called again.
	Finish()
}

// A Conn is one end of one stream as a test sees it: an endpoint whose messages go to one peer,
// and a clock.
type Conn interface {
	// Now is the time since some origin that all legs of an end share.
	Now() time.Duration
	// Usage is the processor time of the process so far, 0 where nobody counts it.
	Usage() (user, sys time.Duration)
	// Send posts a message that has the bytes b and, if messages of the test are numbered,
	// the number seq. It reports false if there is no room now. A message of an injecting
	// test has no completion.
	Send(b []byte, seq int64, s *Slot) (bool, error)
	// Recv posts a receive to s.Buf. It reports false if there is no room now.
	Recv(s *Slot) (bool, error)
	// Fill makes the contents of message n, Verify counts the bytes of b that are not those.
	Fill(b []byte, n uint64)
	Verify(b []byte, n uint64) (wrong int)
	// Open opens what carries the next transaction of a churning test and reports whether it
	// is a connection of its own; if not, the data opens a packet delivery context. Close
	// begins the orderly end of it, Closed reports whether it has ended.
	Open() (own bool, err error)
	Close() error
	Closed() bool
}

// A Completion is an operation that has ended well.
type Completion struct {
	*Slot
	Sent bool  // else received
	Len  int   // of a received message
	Seq  int64 // its number, -1 if it says none
}

// A Slot is a message buffer. It is the context of the operation that has it.
type Slot struct {
	Buf   []byte
	Reply []byte // what answers a request that came to Buf
	seq   int64  // receives: the how manieth that was posted
	num   int64  // requests: the number
	len   int    // requests: the length
	busy  bool   // lat and ping: sent and not completed
}

// Idle is how long a test waits that waits for nothing but completions and signals.
const Idle = 100 * time.Millisecond

// A Measure is what one direction of a leg measured: messages and the time they
// took, warm-up and drain left out.
type Measure struct {
	Msgs int64 `json:"msgs"`
	// Begin is when the clock started, the same for all legs of an end; an older
	// release does not tell.
	Begin    time.Duration `json:"begin,omitempty"`
	Duration time.Duration `json:"duration"`
	User     time.Duration `json:"user"` // processor time of the process; not known if both are 0
	Sys      time.Duration `json:"sys"`
}

// A LegResult is what a leg did.
type LegResult struct {
	Sent     int64           `json:"sent"`     // messages, warm-up included
	Received int64           `json:"received"` // messages, warm-up included
	Tx       Measure         `json:"tx"`
	Rx       Measure         `json:"rx"`
	First    time.Duration   `json:"first,omitempty"` // first round trip
	Check    *record.Check   `json:"check,omitempty"`
	Counters record.Counters `json:"counters"`
	// Echoed are the congestion marks that the leg's sends met, as its peer told.
	Echoed uint64 `json:"echoed,omitempty"`
	// Refused is how many packets of the leg switches cut, as its peer told.
	Refused uint64 `json:"-"`
	// Waiting is what the operations waited for that had not ended, if the run
	// failed.
	Waiting []string `json:"waiting,omitempty"`
}

// Add adds what another connection of the same stream did.
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
