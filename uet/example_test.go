package uet_test

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

// Two endpoints send each other a tagged message.
func Example_pingPong() {
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
	// Output:
	// b: ping, tag 1: hello
	// a: pong, tag 2: hello yourself
}

// A send completes when the requested stage is reached: with InjectComplete when its bytes
// are no longer needed, with TransmitComplete (the default) when the peer's transport has
// the message, with DeliveryComplete when the peer has processed it.
func Example_completionLevels() {
	a, b := open("127.0.0.1"), open("127.0.0.1")
	defer a.Close()
	defer b.Close()
	toB := a.know(b.address())

	for _, level := range []fi.Flags{fi.InjectComplete, fi.TransmitComplete, fi.DeliveryComplete} {
		buf := make([]byte, 16)
		_ = b.Recv(buf, fi.AddrUnspec, nil)
		msg := &uet.Msg{Iov: [][]byte{[]byte("a "), []byte("message")}, Addr: toB, Context: level}
		if err := a.SendMsg(msg, level); err != nil {
			log.Fatal(err)
		}
		fmt.Println(a.next().Context)
		fmt.Printf("%s\n", buf[:b.next().Len])
	}
	// A level that is not offered is refused rather than weakened.
	err := a.SendMsg(&uet.Msg{Addr: toB}, fi.CommitComplete)
	fmt.Println(errors.Is(err, fi.EOPNOTSUPP))
	// Output:
	// INJECT_COMPLETE
	// a message
	// TRANSMIT_COMPLETE
	// a message
	// DELIVERY_COMPLETE
	// a message
	// true
}

// One buffer receives message after message until it has less room than the minimum. The
// last of them says that the buffer belongs to the program again.
func Example_multiRecv() {
	a, b := open("127.0.0.1"), open("127.0.0.1")
	defer a.Close()
	defer b.Close()
	toB := a.know(b.address())

	_ = b.SetOpt(fi.OptMinMultiRecv, 16)
	_ = b.RecvMsg(&uet.Msg{Iov: [][]byte{make([]byte, 40)}, Addr: fi.AddrUnspec, Context: "buffer"}, fi.MultiRecv)
	for _, text := range []string{"one", "two", "three", "four"} {
		_ = a.Inject([]byte(text), toB)
	}
	for {
		got := b.next()
		fmt.Printf("%s\n", got.Buf)
		if got.Flags&fi.MultiRecv != 0 {
			fmt.Println(got.Context, "released")
			break
		}
	}
	// Output:
	// one
	// two
	// three
	// four
	// buffer released
}

// A program may look at a tagged message that arrived without a receive, to learn its
// length, and reserve it.
func Example_peek() {
	a, b := open("127.0.0.1"), open("127.0.0.1")
	defer a.Close()
	defer b.Close()
	toB := a.know(b.address())

	_ = a.TSend([]byte("of a length nobody told"), toB, 7, "sent")
	a.next() // the message has arrived
	_ = b.TRecvMsg(&uet.TMsg{Addr: fi.AddrUnspec, Tag: 7, Context: "mine"}, fi.Peek|fi.Claim)
	found := b.next()
	fmt.Println("found", found.Len, "bytes")

	buf := make([]byte, found.Len)
	_ = b.TRecvMsg(&uet.TMsg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Tag: 7, Context: "mine"}, fi.Claim)
	b.next()
	fmt.Printf("%s\n", buf)

	_ = b.TRecvMsg(&uet.TMsg{Addr: fi.AddrUnspec, Tag: 7}, fi.Peek)
	_, _ = b.cq.SRead(make([]cq.Entry, 1), 1, 10*time.Second)
	var none cq.Error
	_, _ = b.cq.ReadErr(&none, 0)
	fmt.Println("nothing more:", errors.Is(&none, fi.ENOMSG))
	// Output:
	// found 23 bytes
	// of a length nobody told
	// nothing more: true
}

// Calls fail with the errno of the man page. Operations fail later, with an error entry in
// the completion queue.
func Example_errors() {
	a, b := open("127.0.0.1"), open("127.0.0.1")
	defer a.Close()
	defer b.Close()
	toB := a.know(b.address())

	err := a.TSend([]byte("to nobody"), 4711, 1, nil)
	fmt.Println("unknown address:", errors.Is(err, fi.EINVAL))

	short := make([]byte, 4)
	_ = b.TRecv(short, fi.AddrUnspec, 1, 0, "short")
	_ = a.TSend([]byte("too long for it"), toB, 1, nil)
	_, err = b.cq.SRead(make([]cq.Entry, 1), 1, 10*time.Second)
	if errors.Is(err, fi.EAVAIL) { // an error entry is next
		var failed cq.Error
		_, _ = b.cq.ReadErr(&failed, 0)
		fmt.Println(failed.Context, errors.Is(&failed, fi.ETRUNC), failed.Len, "placed,", failed.OverLen, "lost")
	}
	// Output:
	// unknown address: true
	// short true 4 placed, 11 lost
}
