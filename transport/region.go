package transport

import "github.com/uetkit/uetkit/transport/internal/ses"

// Memory that peers may access (UE 3.4, RMA). Package ses describes the types.
type (
	Region       = ses.Region
	RegionConfig = ses.RegionConfig
	Access       = ses.Access
)

// What peers may do with a region, and the endpoint of one that all endpoints have.
const (
	RemoteRead   = ses.RemoteRead
	RemoteWrite  = ses.RemoteWrite
	AllEndpoints = ses.AllEndpoints
)

// Register makes memory accessible to peers. Errors: those of package ses.
func (f *FEP) Register(cfg RegionConfig) (*Region, error) { return f.ses.Register(cfg) }

// Deregister removes a region. When it returns, no byte of it is read or written any more.
func (f *FEP) Deregister(g *Region) { f.ses.Deregister(g) }

// NewKey draws a key for a region that no region has and nobody can guess.
func (f *FEP) NewKey() uint64 { return f.ses.NewKey() }
