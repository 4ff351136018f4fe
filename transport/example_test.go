package transport_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// Two FEPs exchange a message over a network that is a slice. The program that embeds the
// engine owns the clock, and carries what Transmit fills to Receive of the other end.
func Example() {
	var ends [2]*transport.FEP
	for i := range ends {
		cfg := transport.Config{Local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), 4793)}
		fep, err := transport.New(cfg, rand.New(rand.NewPCG(1, uint64(i))))
		if err != nil {
			fmt.Println(err)
			return
		}
		ends[i] = fep
	}
	from, to := ends[0], ends[1]
	now := time.Millisecond
	peer, _ := from.Peer(to.Config().Local, true)
	room := make([]byte, 16)
	_ = to.Post(now, &transport.Op{Kind: transport.OpTRecv, Tag: 7, Buf: room})
	_ = from.Post(now, &transport.Op{Kind: transport.OpTSend, Peer: peer, RI: 15, Tag: 7, Buf: []byte("hello"), Level: transport.LevelTransmit})

	for range 4 { // the message, its ACK, and so on
		now += 10 * time.Microsecond
		for i, fep := range ends {
			fep.Flush(now)
			train := transport.Datagram{Data: make([]byte, 0, transport.MaxTrain)}
			for fep.Transmit(now, &train) {
				train.Remote = fep.Config().Local // the other end sees the source address
				ends[1-i].Receive(now, &train)
			}
		}
	}
	ev := to.NextEvent()
	fmt.Printf("received %q: %v\n", room[:ev.Len], ev.Cause)
	fmt.Println("sent:", from.NextEvent().Cause)
	// Output:
	// received "hello": ok
	// sent: ok
}
