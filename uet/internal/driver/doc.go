// Package driver runs a transport.FEP on a socket. It is the only place of the
// stack with a clock, a goroutine, a lock and a socket; the protocol below has
// none of them and the API above need not know.
//
// A FEP belongs to the holder of its lock (docs/architecture.md#who-drives-a-fep). There are
// three: a post, which hands the operation to the FEP and transmits inline; a poll, by a
// reader of an empty completion queue; and the progress goroutine, for automatic progress
// and for blocking waits. No message crosses a goroutine or a channel on its way.
//
// A turn of the holder is: receive, advance timers, transmit, deliver events.
// An ACK waits for the turn to end, so that an answer of the application takes
// it along.
//
// The files: post.go hands operations to the FEP, backlog.go and queue.go keep those that
// found the lock taken (handover.go), turn.go receives and delivers, outbox.go transmits,
// progress.go is the goroutine, yield.go lets others have the processor.
package driver
