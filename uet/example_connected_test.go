package uet_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
	_ "github.com/uetkit/uetkit/uet/msg" // connections
)

// A program holds what each side of a connection sets up once. Both sides are in one
// process here and share nothing.
type program struct {
	info   *uet.Info
	fabric *uet.Fabric
	domain *uet.Domain
	cq     *cq.CQ
	eq     *eq.EQ
}

func start(sec *uet.Security) *program {
	hints := &uet.Info{Ep: uet.EpAttr{Type: fi.EpMsg}, Config: uet.Config{Security: sec}}
	infos, err := uet.GetInfo("127.0.0.1", "", fi.Source, hints)
	if err != nil {
		log.Fatal(err)
	}
	p := &program{info: infos[0]}
	p.fabric, _ = uet.OpenFabric(p.info, nil)
	p.domain, _ = p.fabric.OpenDomain(p.info, nil)
	p.cq, _ = p.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	p.eq, _ = p.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil)
	return p
}

// stop closes what start opened. Closing the domain waits until the other sides know that
// its connections are over.
func (p *program) stop() {
	if err := errors.Join(p.cq.Close(), p.eq.Close(), p.domain.Close(), p.fabric.Close()); err != nil {
		log.Fatal(err)
	}
}

// endpoint opens an endpoint with the program's queues.
func (p *program) endpoint(info *uet.Info) *uet.Endpoint {
	ep, err := p.domain.OpenEndpoint(info, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(ep.BindCQ(p.cq, fi.Transmit|fi.Recv), ep.BindEQ(p.eq)); err != nil {
		log.Fatal(err)
	}
	return ep
}

// event waits for the next event of connection management.
func (p *program) event() eq.Entry {
	e, err := p.eq.SRead(0, 10*time.Second)
	if errors.Is(err, fi.EAVAIL) { // the next event is an error
		bad, _ := p.eq.ReadErr(0)
		log.Fatalf("%v: %s", bad.Err, bad.ErrData)
	}
	return e
}

// serve accepts one connection, answers one message and describes what it saw.
func serve(p *program, listening chan<- wire.Addr, done chan<- string) {
	passive, _ := p.fabric.OpenPassive(p.info, nil)
	if err := errors.Join(passive.BindEQ(p.eq), passive.Listen()); err != nil {
		log.Fatal(err)
	}
	name, _ := passive.Name()
	listening <- name

	request := p.event() // fi.ConnReq
	ep := p.endpoint(request.Info.(*uet.Info))
	_ = ep.Enable()
	buf := make([]byte, 64)
	_ = ep.TRecv(buf, 0, 1, 0, nil) // before there is a connection
	_ = ep.Accept([]byte("welcome"))
	p.event() // fi.Connected

	var c [1]cq.Entry
	_, _ = p.cq.SRead(c[:], 1, 10*time.Second)
	got := string(buf[:c[0].Len])
	_ = ep.TSend([]byte("hello yourself"), 0, 2, nil)
	last := p.event() // fi.Shutdown: the other side has left
	_ = errors.Join(ep.Close(), passive.Close())
	done <- fmt.Sprintf("%s: %q, then %v", request.Bytes, got, last.Event)
}

// One side listens and the other connects. Messages need no address. Both sides read an
// event queue, which reports the state of the connection.
func Example_connected() {
	server, client := start(nil), start(nil)
	defer server.stop()
	defer client.stop()
	listening, done := make(chan wire.Addr), make(chan string)
	go serve(server, listening, done)

	ep := client.endpoint(client.info)
	defer ep.Close()
	_ = ep.Connect(<-listening, []byte("it is me"))
	fmt.Printf("connected: %s\n", client.event().Bytes)

	buf := make([]byte, 64)
	_ = ep.TRecv(buf, 0, 2, 0, "answer")
	_ = ep.TInject([]byte("hello"), 0, 1)
	var c [1]cq.Entry
	_, _ = client.cq.SRead(c[:], 1, 10*time.Second)
	fmt.Printf("%v: %s\n", c[0].Context, buf[:c[0].Len])
	_ = ep.Shutdown()
	fmt.Println(<-done)
	// Output:
	// connected: welcome
	// answer: hello yourself
	// it is me: "hello", then FI_SHUTDOWN
}

// All hosts of a cluster have a file with the same key. Endpoints that use it accept
// nothing from hosts without the key.
func Example_clusterKey() {
	dir, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "cluster.key")
	if err := uet.WriteClusterKey(file, uet.NewKey(1)); err != nil { // once, then copied to all
		log.Fatal(err)
	}
	security, err := uet.LoadClusterKey(file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(security)

	server, client := start(security), start(security)
	defer server.stop()
	defer client.stop()
	listening, done := make(chan wire.Addr), make(chan string)
	go serve(server, listening, done)
	ep := client.endpoint(client.info)
	defer ep.Close()
	_ = ep.Connect(<-listening, []byte("it is me"))
	client.event()
	path, _ := ep.PathInfo()
	fmt.Println("sealed:", path.Sealed)
	_ = ep.TRecv(make([]byte, 64), 0, 2, 0, nil)
	_ = ep.TInject([]byte("a secret"), 0, 1)
	_, _ = client.cq.SRead(make([]cq.Entry, 1), 1, 10*time.Second) // the answer
	_ = ep.Shutdown()
	fmt.Println(<-done)
	// Output:
	// security by cluster key, generation 1
	// sealed: true
	// it is me: "a secret", then FI_SHUTDOWN
}
