package perf

import (
	"sync/atomic"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// Streams may share a port at each end (traffic.Spec.SharePort): their endpoints are those of one address. Both ends of
// a stream have one JobID and one PIDonFEP, which follow from its number, so that no message has to tell them.

// pids is how many endpoints of a JobID a port has at most: a PIDonFEP has 12 bits.
const pids = 1 << 12

// pidOf is the PIDonFEP of a stream; 0 if it shares no port.
func pidOf(s *traffic.Spec, index int) uint16 {
	if !s.SharePort {
		return 0
	}
	return uint16(index % pids)
}

// jobs is how many JobIDs from Spec.Job on a test has.
func jobs(s *traffic.Spec) uint32 {
	if !s.SharePort {
		return 1
	}
	return uint32((s.Parallel-1)/pids + 1)
}

// below makes info that of a stream that shares the port of first, or opens it if that is nil.
func below(first *end, s *traffic.Spec, index int, info *uet.Info) {
	c, a := &info.Config, &info.SrcAddr
	c.SharePort, c.JobID = true, max(s.Job, 1)+uint32(index/pids)
	a.PIDonFEP, a.Flags = pidOf(s, index), a.Flags|wire.AddrPIDValid
	if first != nil {
		a.Port = first.local.Port()
		c.Tap = nil // that of the first one sees what all send and receive
	}
}

// A sharing is the legs that share a port, whose counters are those of all.
type sharing struct{ left atomic.Int32 } // legs that have not ended

// counts reports whether the counters of the leg's endpoint are to be added to those of other legs.
func (l *leg) counts() bool { return l.sharing == nil || l.Index == 0 }

// ended reports whether the leg, which has ended, tells the counters: of several with one port the last one does.
func (l *leg) ended() bool { return l.sharing == nil || l.sharing.left.Add(-1) == 0 }

// counted notes what the endpoint of the leg counted.
func (l *leg) counted() {
	if !l.ended() {
		l.Res.Counters = record.Counters{Drops: map[string]uint64{}}
		return
	}
	l.Res.Counters = l.counters()
	l.Res.Echoed = l.end.ep.Stats().AcksCE
	l.Res.Refused = l.end.refusedTrimmed()
	l.Res.Spurious = l.end.spurious()
}
