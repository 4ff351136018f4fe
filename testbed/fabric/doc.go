// Package fabric is the forwarding core of the software switch: ports, queues,
// ECN, packet trimming, spines chosen by UDP source port, and everything a bad
// network does to packets.
//
// It does no I/O, starts no goroutine, reads no clock and takes randomness only
// from its seed: the same calls give the same packets. The switch program puts
// packet sockets around it, the simulator a network in virtual time, so that a
// scenario means the same in both.
//
// A packet enters at a port (Receive), passes that port's From line, one spine if
// there are any, and the To line of the port that leads to its destination, and
// leaves there (Transmit). Each of these stretches is a Line: Rules first, then a
// queue with a rate, then a delay.
//
// It looks at destination addresses alone, leaves TTL and hop limit as they are and
// sends nothing of its own: hosts see one link with faults, not a router. Fragments
// and IPv6 extension headers are forwarded; nothing behind them is read.
//
// Everything that grows has a bound: 256 MiB of packets (more is LostFull), what a
// Config may ask for (New says so), 4096 events and 256 rules a line (Apply refuses
// more), 1024 packets that a rule holds (more pass), 65,536 directions that First
// tells apart (the oldest is forgotten).
//
// Every decision about a packet is told to Config.Log with the packet's identity,
// so that a verdict can be held against what really happened.
package fabric
