// Package driver runs a transport.FEP on a socket. It is the only place of the stack with a
// clock, a goroutine, a lock and a socket. The protocol below has none of them, and the API
// above need not know.
//
// A FEP belongs to the holder of its lock (docs/architecture.md#who-drives-a-fep). There
// are three kinds of holder: a post, which hands the operation to the FEP and transmits; a
// poll, by a reader of an empty completion queue; and the progress goroutine, for automatic
// progress and for blocking waits. No message crosses a goroutine or a channel on its way.
//
// In a turn the holder receives, advances timers, transmits and delivers events. An ACK
// waits until the turn is over, so that an answer of the application can take it along.
//
// post.go hands operations to the FEP. handover.go is the lock; backlog.go and queue.go
// keep the operations that found it taken. turn.go receives and delivers, outbox.go
// transmits, progress.go is the goroutine, yield.go lets other threads have the processor.
// progress.go is the goroutine, yield.go lets others have the processor.
package driver
