// Hello is a whole program: one endpoint sends another a message. A test builds it and looks at its size.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/uetkit/uetkit/uetnet"
)

func main() {
	ctx := context.Background()
	a, err := uetnet.Open(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := uetnet.Open(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	to, err := a.Peer(ctx, b.Addr())
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = a.Send(ctx, to, 1, []byte("hello")) }()
	m, err := b.Recv(ctx, uetnet.Anyone, 1, make([]byte, 16))
	fmt.Printf("%s %v\n", m.Body, err)
}
