// Package uet is a libfabric-shaped provider of Ultra Ethernet Transport over UDP. It has
// the objects, calls, flags and errors that a libfabric user knows, with Go names.
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
// Every endpoint has a UDP socket of its own. No goroutine stands between the socket and
// the caller: a posting call sends, and a read of an empty completion queue receives, both
// on the caller's thread. With automatic progress (Info.Domain.DataProgress) a goroutine
// does what is due while the application makes no calls.
//
// A message is sent as packets. Packet delivery contexts (PDCs) between two endpoints
// number, acknowledge and retransmit them. References like R-MSG-04, F23 and T29 name rules
// of libfabric, faults and threats: docs/conformance.md and docs/faults.md list them with
// their tests.
//
// All methods may be called from any goroutine. A buffer belongs to the provider from
// the posting call to the completion (R-MSG-04), unless the comment of a call says that
// it borrows or copies its argument.
//
// # Connections
//
// An endpoint of type FI_EP_MSG (hints.Ep.Type) talks to one peer. Connect and Accept set
// the connection up by connection management, which runs over QUIC on a UDP port of its own.
// It brings QUIC and TLS into a program, so a program that connects imports it:
//
//	import _ "github.com/uetkit/uetkit/uet/msg"
//
//	passive, _ := fabric.OpenPassive(info, nil)     one side
//	… passive.BindEQ, passive.Listen
//	request, _ := events.SRead(0, -1)               fi.ConnReq
//	ep, _ := domain.OpenEndpoint(request.Info.(*uet.Info), nil)
//	… ep.BindCQ, ep.BindEQ, ep.Accept
//
//	ep, _ := domain.OpenEndpoint(info, nil)         the other
//	… ep.BindCQ, ep.BindEQ, ep.Connect(address of the passive endpoint)
//
// Both get fi.Connected by their event queue and may send from then on. Receives may be
// posted from Enable on. Calls ignore the destination that they name, and completions name
// no source. Messages keep the order that Info.Tx.MsgOrder asks for.
//
// A connection ends once. Shutdown or Close on this side ends it without an event. If the
// peer ends it, fi.Shutdown comes after every operation has ended. What the peer had sent
// before can still be received.
//
//	the peer shut down or closed     within a round trip; operations end with
//	                                 fi.ESHUTDOWN
//	its process or host is gone,     3 s after the network said so (SuspectTimeout,
//	and something is outstanding     fi.EHOSTUNREACH), else 40 s (PeerTimeout,
//	                                 fi.ETIMEDOUT)
//	and nothing is outstanding       30 s (CMConfig.Idle, fi.ETIMEDOUT)
//	it was restarted there           when it answers, with the same certificate or
//	                                 key (fi.ECONNABORTED)
//	it is no longer a member         5 s (fi.EKEYREJECTED)
//
// The earliest counts. If a process ends right after Close, its peers may not hear of
// it; Domain.Close waits until they have, a second at most.
//
// # Security
//
// Without Config.Security, anybody who can send to the UDP port of an endpoint can forge
// messages, and anybody who sees the packets can read them. With it, every packet is
// encrypted and authenticated (AES-256-GCM), and packets in clear are dropped.
//
// Security has two kinds. Certificates are for connections: each connection has keys of its
// own, which Rekey changes. A cluster key is one secret for all members, and also serves
// endpoints without connections; each member can read what the others send and can pose as
// any of them.
package uet
