// Package fabric is the forwarding core of the software switch: ports, queues, ECN, packet
// trimming, spines chosen by UDP source port, and the faults of a bad network.
//
// It does no I/O, starts no goroutine, reads no clock and takes randomness only from its
// seed: the same calls give the same packets. The switch program connects it to packet
// sockets, the simulator to a network in virtual time, so that a scenario means the same in
// both.
//
// A packet enters at a port (Receive). It passes that port's From line, one spine if there
// are any, and the To line of the port that leads to its destination. There it leaves
// (Transmit). Each of these parts is a Line: first Rules, then a queue with a rate, then a
// delay.
//
// internal/badnet decides what a Rule or a delay does to a packet, as in the simulator and
// in uetperf's relay. The queue is the switch's own: it has two classes, trims and marks by
// the bytes that wait in them, and follows a rate that changes.
//
// The switch looks at destination addresses only, leaves TTL and hop limit unchanged and
// sends no packets of its own: hosts see one line with faults, not a router. Fragments and
// IPv6 extension headers are forwarded; nothing behind them is read.
//
// Everything that grows has a bound: 256 MiB of packets (more are lost as LostFull), the
// values of a Config (New returns an error), 4096 events and 256 rules a line (Apply
// returns an error), 1024 packets that a rule holds back (more pass), 65,536 directions
// that First distinguishes (the oldest is forgotten).
//
// Config.Log is called for every decision about a packet, with the packet's identity, so
// that a verdict can be checked against what happened.
package fabric
