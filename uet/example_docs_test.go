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

// The ten lines of README.md: one endpoint sends one message.
func Example_readme() {
	other := open("127.0.0.1")
	defer other.Close()
	address := other.address()

	info, _ := uet.GetInfo("127.0.0.1", "", fi.Source, nil) // one entry per interface
	fabric, _ := uet.OpenFabric(info[0], nil)
	domain, _ := fabric.OpenDomain(info[0], nil)
	ep, _ := domain.OpenEndpoint(info[0], nil)
	done, _ := domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	peers, _ := domain.OpenAV(av.Attr{}, nil)
	_ = errors.Join(ep.BindCQ(done, fi.Transmit|fi.Recv), ep.BindAV(peers), ep.Enable())

	to, _ := peers.InsertString(address)        // what the other end's Name says
	_ = ep.TSend([]byte("hello"), to, 1, "ctx") // tag 1
	var c [1]cq.Entry
	_, err := done.SRead(c[:], 1, time.Second) // nil: the peer has it; fi.EAVAIL: done.ReadErr says why not

	fmt.Println(c[0].Context, err)
	_ = ep.Close()
	// Output: ctx <nil>
}

// Explain tells what is not offered, Diagnose what an operation waits for. The output
// depends on the interfaces of the host, so this example is compiled but not run.
func Example_whyNothingGoesOn() {
	ep := open("127.0.0.1")
	defer ep.Close()
	hints := &uet.Info{Tx: uet.TxAttr{OpFlags: fi.CommitComplete}}

	for _, r := range uet.Explain(hints) { // why GetInfo returns nothing, or not that interface
		fmt.Println(r) // Tx.OpFlags COMMIT_COMPLETE (there is …): messages and reads would have it too, …; give it to each call of WriteMsg or AtomicMsg …
	}
	for _, w := range ep.Diagnose() { // what each operation that has not ended waits for
		if w.Cause != uet.WaitNothing {
			fmt.Println(w.String()) // send to 192.0.2.3:4793 by RUD, 2s old, 0 of 300 bytes: no ACK: the peer was heard 2s ago, 9 timeouts since, …
		}
	}
}

// Abandon ends all that has to do with a peer that is known to be gone.
func Example_abandon() {
	ep := open("127.0.0.1")
	defer ep.Close()
	gone := ep.know("fi_addr_uet://192.0.2.1:4793") // nobody is there
	_ = ep.TSend([]byte("hello"), gone, 1, "to it")

	if err := ep.Abandon(gone); err != nil { // FI_ECANCELED for each operation to and from it
		log.Fatal(err)
	}

	var c [1]cq.Entry
	if _, err := ep.cq.Read(c[:]); !errors.Is(err, fi.EAVAIL) {
		log.Fatal(err)
	}
	var e cq.Error
	_, _ = ep.cq.ReadErr(&e, 0)
	fmt.Println(e.Context, e.Err)
	// Output: to it operation canceled
}
