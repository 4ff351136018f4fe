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
// Every decision about a packet is told to Config.Log with the packet's identity,
// so that a verdict can be held against what really happened.
package fabric
