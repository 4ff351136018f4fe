// Package driver runs a transport.FEP on a socket. It is the only place of the
// stack with a clock, a goroutine, a lock and a socket; the protocol below has
// none of them and the API above need not know.
//
// A FEP belongs to whoever holds its lock (docs/architecture.md#who-drives-a-fep). Three callers may: a
// post, which hands the operation to the FEP and transmits inline; a poll, by a
// reader of an empty completion queue; and the progress goroutine, which exists
// for automatic progress and for blocking waits and otherwise sleeps. No
// message ever crosses a goroutine or a channel on its way.
//
// A turn of the holder is: receive, advance timers, transmit, deliver events;
// an ACK waits for the turn to end, so that an answer of the application takes
// it along.
package driver
