package cm

import "github.com/uetkit/uetkit/internal/cm/contract"

// The words of the contract with the endpoints, which this package keeps.
type (
	Params         = contract.Params
	Security       = contract.Security
	Handler        = contract.Handler
	Reason         = contract.Reason
	Stats          = contract.Stats
	AdmissionStats = contract.AdmissionStats
	RejectedError  = contract.RejectedError
)

const (
	MaxPrivate = contract.MaxPrivate
	MaxPorts   = contract.MaxPorts

	SecOff = contract.SecOff
	SecTLS = contract.SecTLS
	SecPSK = contract.SecPSK

	LocalClosed   = contract.LocalClosed
	PeerClosed    = contract.PeerClosed
	PeerLost      = contract.PeerLost
	PeerReset     = contract.PeerReset
	ProtocolError = contract.ProtocolError
	Removed       = contract.Removed
	Failed        = contract.Failed
)

// ErrClosed means that the node or session is closed.
var ErrClosed = contract.ErrClosed
