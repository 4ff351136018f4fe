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
//  2. One sendmsg. No room in the send buffer: ErrAgain, the caller keeps the
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
package udp
