package transport

import (
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// A format holds what the packets of a FEP have in common: their traffic classes, and their
// lengths beyond the payload, in bytes.
type format struct {
	crcOnly  bool              // there is no head, and the trailer is a CRC
	trims    bool              // Config.Trimming
	sprays   bool              // several Config.Paths
	chooses  bool              // sprays, or some peer has path ports
	standard bool              // Config.Encapsulation is Standard
	tos      [numClasses]uint8 // by class
	head     int               // security header, in front of the PDS header
	trailer  int               // behind the payload: CRC or ICV
	wrap     int               // head + trailer
	overhead int               // nominal bytes per packet beyond the UDP payload
	most     int               // datagrams in a train
	reqLen   int               // a standard request without its payload
	ackLen   int               // an ACK with its response
}

// sprayTrain is how many datagrams go by one path in a row where there are several: a longer train
// fills the queue of its path while the others are empty, a shorter one costs more processor time.
// The last flow of the permutation of 128 hosts in docs/congestion.md takes 264 µs with 4, 258 with
// 2, 274 with 8 and 309 with 64.
//
// Where switches trim, their queues are short, and trimTrain is the number.
const sprayTrain, trimTrain = 4, 2

func (m *format) init(cfg *Config) {
	switch {
	case cfg.TSS != nil:
		m.head, m.trailer = cfg.TSS.HeaderLen(), wire.ICVLen
	case !cfg.NoCRC:
		m.trailer, m.crcOnly = wire.CRCLen, true
	}
	m.trims, m.sprays, m.standard = cfg.Trimming, len(cfg.Paths) > 1, cfg.Encapsulation == wire.Standard
	m.chooses = m.sprays
	if m.most = dgram.MaxSegments; m.sprays {
		if m.most = sprayTrain; m.trims {
			m.most = trimTrain
		}
	}
	m.wrap = m.head + m.trailer
	m.overhead = 8 + 40 // UDP header, and what UE 3.6.12 adds to the transport size
	m.ackLen = wire.AckCCLen + wire.RspLen + m.wrap
	m.reqLen = wire.ReqLen + wire.ReqStdLen + m.wrap
	if cfg.Congestion != NSCC {
		m.reqLen += wire.ReqCCLen - wire.ReqLen
	}
	for i := range m.tos {
		m.tos[i] = cfg.DSCP<<2 | dgram.ECT0
	}
	if !cfg.Trimming {
		return
	}
	c := &cfg.Classes
	m.tos[classCtl] = c.Control<<2 | dgram.ECT0
	if cfg.TSS == nil {
		m.tos[classNew], m.tos[classAgain] = c.Trimmable<<2|dgram.ECT0, c.TrimmableRTX<<2|dgram.ECT0
	}
}

// The classes of packets. With Config.Trimming each class has a code point of its own;
// without it all have the same.
const (
	classNew   = iota // data that is sent for the first time, and PROBEs
	classAgain        // data that is sent again
	classCtl          // everything else
	numClasses
)
