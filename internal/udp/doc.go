// Package udp moves trains of UDP datagrams between buffers and sockets, as fast as the system
// allows, and reports what the system allows. It knows nothing of the protocol inside the
// datagrams.
//
// A Conn owns K sockets on one IP address, its paths. The port of a path is the entropy value
// of what it sends. On Linux a train leaves in one system call by UDP_SEGMENT and arrives in
// one by UDP_GRO. Open finds out whether the system has them. If a train cannot be sent,
// UDP_SEGMENT is switched off for its destination, and for all destinations if many failed.
// Some thousand trains later it is tried again, because the reason may be gone, or have been a
// forged ICMP message. UDP_GRO costs each datagram that is alone, so it is switched off while
// no trains come. Where datagrams are short, too, their traffic class is asked for in samples
// (Config.EveryClass). On other systems, and with Config.Portable, a Conn does the same with
// the batches of golang.org/x/net, only more slowly.
//
// With Config.SendOnly path 0 alone receives, and Echo binds further ports to send from, at most
// MaxEchoes. With Config.NoChecksum, too, datagrams that leave alone have a UDP checksum of zero. Linux
// refuses a train without checksums, so a socket has them from its first train on until 32
// datagrams in a row left alone, and always where the system is another one.
//
// # Who may call what
//
// Recv, Send, SendBatch, NextError, Errors and Stats belong to one goroutine at a time. They
// never block and, except with Portable, allocate nothing. They make their system calls on the
// caller's thread without telling the scheduler, which makes them fast; each takes a few
// microseconds at most. Wait, Nap and WaitWritable block. Each serves one goroutine at a time, and
// may run beside the others; Wait and Nap wait for each other. Wake, Rouse, Close, Info, LocalAddr, Ports and RouteMTU may be called
// from anywhere at any time.
//
// # The life of a train
//
//  1. Send finds the socket of the train's path, the encoded address (kept from the last train),
//     and the control messages for segment size and traffic class.
//  2. It makes one system call. If the send buffer has no room, it returns dgram.ErrNoRoom and the
//     caller keeps the train. If an earlier packet left an error on the socket (ICMP), it notes the
//     evidence and repeats the call.
//  3. If a train of several datagrams fails with EIO, EINVAL or EMSGSIZE, it leaves as single
//     datagrams. If that works, so do the next 1,024 trains to that destination.
//  4. Any other error loses the train, as a network may. It is counted and returned, and the train
//     is not sent again.
//  5. At the other end Recv reads the paths in turn. It returns what the kernel has put together:
//     datagrams of one sender, one segment length and one traffic class. Of a datagram alone it may
//     learn only the sender.
//
// # What a socket is asked for
//
// Three options of a socket change while it is used, because each costs the traffic that does
// not need it. The figures are of half a round trip of 64 bytes on loopback.
//
// The segment size of trains goes with each train in a control message, or the socket has a
// size of its own (UDP_SEGMENT). A size that 32 trains in a row had becomes the socket's. Then
// its trains, and single datagrams up to that size, need no control message and leave by sendto
// instead of sendmsg: 0.22 µs less of 5.2. Trains of another size override it. The size
// concerns every packet of the socket, also those to a destination with a smaller MTU. So an
// EIO, EINVAL or EMSGSIZE removes it, for 1,024 trains, and the packet is sent again.
//
// Received trains (UDP_GRO) save nine tenths of the calls. But to find out whether a datagram
// is a train the kernel reads memory that the sender's processor wrote last: 5 %. A socket that
// got 256 datagrams and no train stops asking for trains. It asks again after 16 datagrams of
// one size in a row with no empty look between them, which may be a train that was cut, and
// after 8,192 datagrams, because short trains make no such row. A train that came while the
// socket asked and is read when it does not would look like one long datagram. So after the
// change the Conn looks whether the socket is empty, and if not lets it ask again. A train that
// slips through is dropped as damaged and sent again.
//
// The traffic class of received datagrams (IP_RECVTOS) shows marks of congestion. It costs 2 %,
// and another 3 % because a socket that asks for nothing is read by recvfrom, which copies two
// structures less. When 256 datagrams or trains in a row had at most 512 bytes and no mark, the
// socket asks about 16 of 256 only. It asks about all again with the first longer one (who
// sends that much can make a queue), when it begins to ask for trains, and for 8,192 of them
// after one with a mark. Of short messages one by one, 15 of 16 single marks go unseen; where a
// queue stands, marks come in numbers.
//
// A socket that is one of several always asks for trains and classes. With Config.EveryClass,
// for switches that trim and for taps, a socket always asks for classes.
package udp
