// Package uetnet is the short way to use uet: messages by calls that wait. Streams are
// in package uetnet/stream.
//
// Open returns a Node, which is an endpoint with its queue and address vector, ready to use:
//
//	n, err := uetnet.Open(ctx, "127.0.0.1")
//	peer, err := n.Peer(ctx, address)            // what the other node's Addr says
//	err = n.Send(ctx, peer, 1, []byte("hello"))  // tag 1; returns when the peer has it
//	m, err := n.Recv(ctx, uetnet.Anyone, 1, buf) // m.From can be answered
//
// The package hides nothing: Node.Endpoint returns the uet.Endpoint below, and options set
// whatever uet.Config and the hints of uet.GetInfo have. Programs that need other queues, memory
// regions or no waiting at all use uet itself.
//
// All methods may be called from any goroutine. Operations end by whoever waits: no goroutine of
// this package stands between the network and the caller.
package uetnet
