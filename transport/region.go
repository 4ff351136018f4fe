package transport

import (
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

type (
	RegionConfig = ses.RegionConfig // describes memory that peers may access
	Region       = ses.Region       // such memory, from Register to Deregister
	Access       = ses.Access       // what peers may do with it
)

// The bits of Access.
const (
	RemoteRead   = ses.RemoteRead
	RemoteWrite  = ses.RemoteWrite
	RemoteAtomic = ses.RemoteAtomic
)

// AllEndpoints as the Endpoint of a region means that it can be accessed through each endpoint.
const AllEndpoints = ses.AllEndpoints

// Register makes memory accessible to peers. Errors: ErrKey, ErrKeyInUse, ErrMemory, ErrRegions,
// ErrClosed.
func (f *FEP) Register(cfg RegionConfig) (*Region, error) {
	if f.barred || f.ended {
		return nil, ErrClosed
	}
	r, err := f.ses.Register(cfg)
	return r, mapErr(err)
}

// Deregister removes a region. When it returns, no byte of it is read or written any more.
// Requests that name it are answered BAD_MKEY from then on.
func (f *FEP) Deregister(r *Region) { f.ses.Deregister(r) }

// Committed says what became of an OpCommit with that Data: wire.RCOK if the bytes are durable, else an
// error, which the initiator gets. Nothing happens if the FEP has closed meanwhile.
func (f *FEP) Committed(id uint64, rc wire.RC) {
	f.ses.Committed(id, rc)
	f.queueReturns()
}

// NewKey draws a memory key that no region of the FEP has. Nobody can guess it unless the
// source of randomness of the FEP can be guessed.
func (f *FEP) NewKey() uint64 { return f.ses.NewKey() }
