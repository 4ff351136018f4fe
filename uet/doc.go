// Package uet is a libfabric-shaped provider of Ultra Ethernet Transport over
// UDP: the objects, calls, flags and errors a libfabric user knows, in Go
// capitals.
//
//	info, _ := uet.GetInfo("", "", 0, nil)
//	fabric, _ := uet.OpenFabric(info[0], nil)
//	domain, _ := fabric.OpenDomain(info[0], nil)
//	ep, _ := domain.OpenEndpoint(info[0], nil)
//	… ep.BindCQ, ep.BindAV, ep.Enable
//	ep.TSend(buf, dest, tag, ctx)
//
// Errors are fi.Errno values behind errors.Is: errors.Is(err, fi.EAGAIN).
//
// Every endpoint has a UDP socket of its own. No goroutine stands between it and
// the caller: a posting call sends and a read of an empty completion queue
// receives, on the caller's thread. With automatic progress (Info.Domain.
// DataProgress) a goroutine does what is due while the application does nothing.
//
// All methods may be called from any goroutine. The bytes of a buffer belong to
// the provider from the posting call to the completion (R-MSG-04); what a call
// borrows or copies instead, its comment says.
package uet
