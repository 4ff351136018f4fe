package uet

import (
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
)

// Abandon ends at once all that has to do with one peer, for a program that knows from
// elsewhere that the peer is gone and need not wait for Tuning.PeerTimeout. The peer is
// everything at the IP address and port of addr. libfabric has no such call.
//
// When Abandon returns, each operation to and from the peer that was posted before has
// written its entry, with FI_ECANCELED: sends, receives directed at it, and receives that
// have a part of a message of it. Their buffers are the caller's again. Of a send,
// OutcomeUnknown is set if the peer may have received the message, and clear if it cannot
// have. Unexpected messages of the peer are dropped; a receive that claims one ends with
// FI_ECANCELED. Of a multi-receive buffer that accepts messages of others, too, the entry is
// that of the incomplete message, and the buffer stays posted. The peer, if it lives, is told
// once.
//
// Endpoints that share a port share what they have with a peer: then this is about all of them.
//
// Everything else goes on, and addr stays in the AV: a later post to it opens a new path to
// whoever is there, and what arrives from there is as from anyone. Any goroutine may call
// Abandon at any time, with manual progress, too. It waits for no packet.
//
// fi.EINVAL: addr is not in the AV. fi.EOPNOTSUPP: the endpoint is connected; its Close ends
// all that has to do with its one peer. fi.EOPBADSTATE: it is not enabled. fi.EBADF: it is
// closed.
func (ep *Endpoint) Abandon(addr fi.Addr) error {
	if err := ep.posts.ready(); err != nil {
		return err
	}
	if ep.connection != nil {
		return fi.EOPNOTSUPP
	}
	to, err := ep.dest(addr)
	if err != nil {
		return err
	}
	switch err := ep.abandon(to); err {
	case nil:
		return nil
	case transport.ErrClosed:
		return fi.EBADF
	default:
		return postErr(err)
	}
}
