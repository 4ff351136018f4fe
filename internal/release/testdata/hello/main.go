// Hello is a whole program of two endpoints that send each other a message. A test builds it and looks at
// its size.
package main

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// An end is an endpoint with a completion queue and an address vector, which every program
// sets up once.
type end struct {
	*uet.Endpoint
	domain *uet.Domain
	cq     *cq.CQ
	av     *av.AV
}

func open(node string) end { return openWith(node, nil) }

func openWith(node string, hints *uet.Info) end {
	info, err := uet.GetInfo(node, "", fi.Source, hints)
	if err != nil {
		log.Fatal(err)
	}
	fabric, err := uet.OpenFabric(info[0], nil)
	if err != nil {
		log.Fatal(err)
	}
	domain, err := fabric.OpenDomain(info[0], nil)
	if err != nil {
		log.Fatal(err)
	}
	e := end{domain: domain}
	e.Endpoint, _ = domain.OpenEndpoint(info[0], nil)
	e.cq, _ = domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	e.av, _ = domain.OpenAV(av.Attr{}, nil)
	err = errors.Join(e.BindCQ(e.cq, fi.Transmit|fi.Recv), e.BindAV(e.av), e.Enable())
	if err != nil {
		log.Fatal(err)
	}
	return e
}

// know returns a handle for the address that another endpoint's Name returned. Here it is
// passed on as text.
func (e end) know(address string) fi.Addr {
	h, err := e.av.InsertString(address)
	if err != nil {
		log.Fatal(err)
	}
	return h
}

func (e end) address() string {
	name, _ := e.Name()
	return name.String()
}

// next waits for a completion.
func (e end) next() cq.Entry {
	var c [1]cq.Entry
	if _, err := e.cq.SRead(c[:], 1, 10*time.Second); err != nil {
		log.Fatal(err)
	}
	return c[0]
}

func main() {
	a, b := open("127.0.0.1"), open("127.0.0.1")
	defer a.Close()
	defer b.Close()
	toB, toA := a.know(b.address()), b.know(a.address())

	ping, pong := make([]byte, 16), make([]byte, 16)
	_ = b.TRecv(ping, fi.AddrUnspec, 1, 0, "ping")
	_ = a.TRecv(pong, fi.AddrUnspec, 2, 0, "pong")

	_ = a.TInject([]byte("hello"), toB, 1) // no completion, the bytes are copied
	got := b.next()
	fmt.Printf("b: %v, tag %d: %s\n", got.Context, got.Tag, ping[:got.Len])

	_ = b.TInject([]byte("hello yourself"), toA, 2)
	got = a.next()
	fmt.Printf("a: %v, tag %d: %s\n", got.Context, got.Tag, pong[:got.Len])
}
