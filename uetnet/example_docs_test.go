package uetnet_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uetnet"
)

// The few lines of README.md: one node sends another a message.
func Example_readme() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	other, err := uetnet.Open(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	address := other.Addr()

	n, err := uetnet.Open(ctx, "127.0.0.1") // an endpoint with its queue and address vector
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	peer, err := n.Peer(ctx, address) // what the other node's Addr says
	if err != nil {
		log.Fatal(err)
	}
	err = n.Send(ctx, peer, 1, []byte("hello")) // tag 1; nil: the peer has it

	m, _ := other.Recv(ctx, uetnet.Anyone, 1, make([]byte, 16))
	fmt.Printf("%s, %v\n", m.Body, err)
	// Output: hello, <nil>
}

// A program may post operations by itself and range over their ends.
func Example_completions() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	n, err := uetnet.Open(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	self, _ := n.Peer(ctx, n.Addr())

	buf := make([]byte, 16)
	_ = n.Endpoint().TRecv(buf, fi.AddrUnspec, 1, 0, "received")
	_ = n.Endpoint().TInject([]byte("to myself"), self, 1)
	for c, err := range n.Completions(ctx) { // err: a *cq.Error, or the last pair
		fmt.Println(c.Context, string(buf[:c.Len]), err)
		break
	}
	// Output: received to myself <nil>
}
