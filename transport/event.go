package transport

import (
	"github.com/uetkit/uetkit/transport/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// An Event is the end of one posted operation. Each accepted operation makes
// exactly one, except a Silent one that succeeds.
type Event struct {
	Kind    OpKind
	Context any
	Flags   uint64
	// Buf is the receive's buffer; Len the bytes placed, OverLen the bytes of
	// the message that did not fit.
	Buf     []byte
	Len     int
	OverLen int
	// Tag, Data, HasData, Peer and Initiator describe a received message.
	Tag, Data uint64
	HasData   bool
	Peer      PeerID
	Initiator uint32
	// Cause is ses.OK for success. RC and Nack are the wire codes behind a
	// failure, 0 if none. Unknown: the effect may have happened at the target.
	Cause   ses.Cause
	RC      wire.RC
	Nack    wire.NackCode
	Unknown bool
	// Multi says that this is one message in a multi-receive buffer and Buf its
	// place, Released that the buffer is the caller's again.
	Multi, Released bool
}
