package perf

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// hints returns the hints of GetInfo for a leg of a test. sec secures it. A connection may
// take handshake to open, and may be silent for idle.
func hints(s *traffic.Spec, sec *uet.Security, handshake, idle time.Duration) *uet.Info {
	h := &uet.Info{Caps: fi.Msg | fi.Tagged | fi.Send | fi.Recv}
	switch {
	case s.Lossy():
		h.Caps, h.Ep.Type = fi.Msg|fi.Send|fi.Recv, fi.EpDgram
	case s.OneSided():
		if h.Caps |= fi.RMA | fi.Atomic; s.Together() {
			h.Domain.MRMode = fi.MREndpoint // or each region would be known to each endpoint
		}
	}
	tx, rx := s.Depth()
	// Sends complete in batches, so there is room for entries that were not read yet.
	h.Tx.Size, h.Rx.Size = max(2*tx, 64), max(rx, 64)
	switch {
	case s.Exchanges():
		h.Tx.Size = max(h.Tx.Size, 2*rx) // room for replies to all requests that can be under way
	case s.Test == traffic.Incast:
		h.Rx.Size = max(h.Rx.Size, s.Parallel*rx)
	}
	switch s.Complete {
	case "inject":
		h.Tx.OpFlags = fi.InjectComplete
	case "delivery":
		h.Tx.OpFlags = fi.DeliveryComplete
	case "match":
		h.Tx.OpFlags = fi.MatchComplete
	case "commit":
		h.Caps |= fi.RMAPmem // each write asks for it: it is no default
	default:
		h.Tx.OpFlags = fi.TransmitComplete
	}
	h.Config.RUDI = s.Mode == traffic.RUDI
	switch {
	case s.Mode == "rod" && s.OneSided():
		h.Tx.MsgOrder = fi.OrderWAW | fi.OrderRAW | fi.OrderAtomicWAW
		h.Rx.MsgOrder = h.Tx.MsgOrder
	case s.Mode == "rod":
		h.Tx.MsgOrder, h.Rx.MsgOrder = fi.OrderSAS, fi.OrderSAS
	}
	h.Domain.DataProgress = fi.ProgressManual
	if s.Progress == "auto" {
		h.Domain.DataProgress = fi.ProgressAuto
	}
	h.Config.NoCRC = !s.CRC
	h.Config.JobID = s.Job
	h.Config.PayloadMTU = s.MTU
	h.Config.Paths = s.Paths
	if s.Encapsulation == traffic.Standard {
		h.Config.Encapsulation = uet.Standard
	}
	h.Config.Tuning.PeerTimeout = s.PeerTimeout
	h.Config.Tuning.Trimming = s.Trim
	h.Config.Tuning.BaseRTT = s.BaseRTT
	switch s.CC {
	case traffic.RCCC:
		h.Config.Tuning.Congestion = uet.RCCC
	case traffic.BothCC:
		h.Config.Tuning.Congestion = uet.NSCCAndRCCC
	}
	switch s.PathChoice {
	case traffic.Bitmap:
		h.Config.Tuning.PathChoice = uet.PathsBitmap
	case traffic.List:
		h.Config.Tuning.PathChoice = uet.PathsList
	case traffic.REPS:
		h.Config.Tuning.PathChoice = uet.PathsREPS
	case traffic.Oblivious:
		h.Config.Tuning.PathChoice = uet.PathsOblivious
	}
	h.Config.Tuning.RendezvousMin = int(s.Rendezvous)
	switch s.GSO {
	case "on":
		h.Config.Socket.GSO, h.Config.Socket.GRO = uet.OffloadOn, uet.OffloadOn
	case "off":
		h.Config.Socket.GSO, h.Config.Socket.GRO = uet.OffloadOff, uet.OffloadOff
	}
	return serviceOf(s).hints(h, sec, handshake, idle)
}

// This does not compile if a test may have more paths than an endpoint.
const _ = uint(uet.MaxPaths - traffic.MaxPaths)
