// Package udp moves trains of UDP datagrams between buffers and sockets, as
// fast as the system allows, and says what it found the system to allow. It
// knows nothing of the protocol inside the datagrams.
//
// A Conn owns K sockets on one IP address, its paths; the port of a path is the
// entropy value of what it sends. On Linux a train leaves in one system call by
// UDP_SEGMENT and arrives in one by UDP_GRO. Both are tried when the Conn is
// opened and switched off where they fail later: for one destination, then for
// all, until some thousand trains later: the reason may be gone, or have been an
// ICMP message that somebody forged. Where no trains come, UDP_GRO is off until some
// may have, for it costs each datagram that is alone; and where these are short, their
// traffic class is asked for in samples (Config.EveryClass). On other systems, and where
// Config.Portable asks for it, a Conn does the same with the batches of golang.org/x/net,
// only slower.
//
// # Who may call what
//
// Recv, Send, SendBatch, NextError, Errors and Stats belong to one goroutine
// at a time; they never block and, except for Portable, allocate nothing. Their
// system calls are made on the caller's thread without telling the scheduler,
// which is what makes them fast: at most some microseconds each. Wait and
// WaitWritable block, each for one goroutine at a time, and may run beside the
// others. Wake, Close, Info, LocalAddr, Ports and RouteMTU may be called from
// anywhere at any time.
//
// # The life of a train
//
//  1. Send looks up where the train goes: the socket of its path, the encoded
//     address (kept from the last train), the control messages for segment size
//     and traffic class.
//  2. One sendmsg. No room in the send buffer: dgram.ErrNoRoom, the caller keeps the
//     train. An error that an earlier packet left behind on the socket (ICMP) is
//     noted as evidence and the call repeated.
//  3. EIO, EINVAL or EMSGSIZE of a train of several datagrams: it goes out as
//     single datagrams instead, and when that works so do the next 1,024
//     trains to that destination.
//  4. Other errors lose the train, as a network may: they are counted, returned
//     and not retried.
//  5. At the other end Recv asks the paths in turn, and gives what the kernel
//     has put together: one sender, one segment length, one traffic class. Of a
//     datagram alone it may take nothing but the sender.
//
// # What a socket is asked for
//
// Three options of a socket are changed while it is used, because each costs the traffic
// that has no need of it. Figures are of half a round trip of 64 bytes on loopback.
//
// The segment size of trains. It goes with each train in a control message, or the socket
// has one of its own (UDP_SEGMENT). A size that 32 trains in a row had becomes the
// socket's: its trains and single datagrams up to that size need no control message then
// and go by sendto instead of sendmsg, 0.22 µs less of 5.2. Trains of another size override
// it. It concerns every packet of the socket, also those to a destination with a smaller
// MTU; so an EIO, EINVAL or EMSGSIZE takes it away for good, and the packet is sent again.
//
// Received trains (UDP_GRO). They save nine tenths of the calls. But to see whether a
// datagram is a train the kernel reads memory that the sender's processor wrote last: 5 %.
// A socket that got 256 datagrams and no train stops asking. It asks again after 16
// datagrams of one size in a row with no empty look between them, which a train makes that
// was cut, or after 8,192 datagrams, as short trains make no such row. A train that came
// while the socket asked and is read when it does not would be one long datagram; so the
// asking ends only with nothing in the socket, which is looked at behind the change. A
// train that slips through is dropped as damaged and sent again.
//
// The traffic class of received datagrams (IP_RECVTOS), which shows marks of congestion.
// It costs 2 %, and another 3 % because a socket that asks for nothing is read by recvfrom,
// which copies two structures less. A socket stops asking when 256 pieces in a row had 512
// bytes at most and no mark; then 16 of 256 are asked about. It asks about all again with
// the first longer one (who sends that much can make a queue), when it begins to ask for
// trains, and for 8,192 of them behind one with a mark. Of short messages one by one a mark
// that is alone goes unseen in 15 of 16 cases; where a queue stands marks come in numbers.
//
// A socket that is one of several always asks for trains and classes, as do one whose
// switches trim or that a tap looks at (Config.EveryClass).
package udp
