package uetnet_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/uetkit/uetkit/uetnet"
)

// A server answers every message of whoever sends one, and its clients are many.
func Example_echo() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	const request, answer = 1, 2 // tags

	server, err := uetnet.Open(ctx, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 1<<10)
		for {
			m, err := server.Recv(ctx, uetnet.Anyone, request, buf)
			if err != nil {
				return // the server was closed
			}
			if err := server.Send(ctx, m.From, answer, m.Body); err != nil {
				log.Print(err) // that client is gone
			}
		}
	}()

	var clients sync.WaitGroup
	answers := make([]string, 4)
	for i := range answers {
		clients.Go(func() {
			client, err := uetnet.Open(ctx, "127.0.0.1")
			if err != nil {
				log.Fatal(err)
			}
			defer client.Close()
			to, err := client.Peer(ctx, server.Addr())
			if err != nil {
				log.Fatal(err)
			}
			if err := client.Send(ctx, to, request, fmt.Appendf(nil, "hello from client %d", i)); err != nil {
				log.Fatal(err)
			}
			m, err := client.Recv(ctx, to, answer, make([]byte, 1<<10))
			if err != nil {
				log.Fatal(err)
			}
			answers[i] = string(m.Body)
		})
	}
	clients.Wait()
	for _, a := range answers {
		fmt.Println(a)
	}
	// Output:
	// hello from client 0
	// hello from client 1
	// hello from client 2
	// hello from client 3
}
