package uet_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"sync/atomic"
	"unsafe"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A counter that several processes share lies in the memory of one of them. The others add to it, and
// each gets a number that no other gets, while its owner takes no part.
func Example_distributedCounter() {
	hints := &uet.Info{Caps: fi.Msg | fi.Atomic}
	owner, a, b := openWith("127.0.0.1", hints), openWith("127.0.0.1", hints), openWith("127.0.0.1", hints)
	defer owner.Close()
	defer a.Close()
	defer b.Close()

	var counter uint64
	const key = 1
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&counter)), 8)
	mr, err := owner.domain.RegMR(memory, fi.RemoteRead|fi.RemoteWrite, 0, key, 0, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()

	one := binary.NativeEndian.AppendUint64(nil, 1)
	taken := map[uint64]bool{}
	for _, e := range []end{a, b, a, b} {
		ticket := make([]byte, 8)
		_ = e.FetchAtomic(one, ticket, e.know(owner.address()), 0, key, fi.Uint64, fi.Sum, nil)
		e.next()
		taken[binary.NativeEndian.Uint64(ticket)] = true
	}
	fmt.Println(len(taken), "tickets, counter", atomic.LoadUint64(&counter))
	// Output: 4 tickets, counter 4
}

// A checkpoint is written into a file of another host, which takes no part. The completion says that it
// survives a loss of power there. The two halves take turns, so that one of them is always whole.
func Example_checkpoint() {
	hints := &uet.Info{Caps: fi.Msg | fi.RMA | fi.RMAPmem}
	keeper, worker := openWith("127.0.0.1", hints), openWith("127.0.0.1", hints)
	defer keeper.Close()
	defer worker.Close()

	// The keeper maps the file into memory. There, msync makes it durable (Linux). Here a function that
	// stands for it says when it is called.
	const key, half = 3, 64
	file := make([]byte, 2*half)
	synced := 0
	attr := &uet.MRAttr{Iov: [][]byte{file}, Access: fi.RemoteWrite, RequestedKey: key, Persist: func(off, n uint64) error {
		synced++
		return nil
	}}
	mr, err := keeper.domain.RegMRAttr(attr, fi.RMAPmem)
	if err != nil {
		log.Fatal(err)
	}

	toKeeper := worker.know(keeper.address())
	for step := uint64(1); step <= 3; step++ {
		state := fmt.Appendf(nil, "state after step %d", step)
		msg := &uet.RMAMsg{
			Iov: [][]byte{state}, Addr: toKeeper, RMAIov: []uet.RMAIov{{Addr: step % 2 * half, Len: uint64(len(state)), Key: key}}, Context: step,
		}
		if err := worker.WriteMsg(msg, fi.CommitComplete); err != nil {
			log.Fatal(err)
		}
		fmt.Println("step", worker.next().Context, "is durable")
	}
	_ = mr.Close()
	fmt.Printf("%d calls; %s; %s\n", synced, file[:18], file[half:][:18])
	// Output:
	// step 1 is durable
	// step 2 is durable
	// step 3 is durable
	// 3 calls; state after step 2; state after step 3
}

// A ring buffer in the memory of a consumer, into which a producer writes. Each write carries its place
// as remote CQ data: the consumer learns by a completion what is there, and posts no receives. Messages
// the other way say which places are free again.
func Example_ringBuffer() {
	hints := &uet.Info{Caps: fi.Msg | fi.RMA}
	consumer, producer := openWith("127.0.0.1", hints), openWith("127.0.0.1", hints)
	defer consumer.Close()
	defer producer.Close()

	const key, places, size = 7, 2, 16
	ring := make([]byte, places*size)
	mr, err := consumer.domain.RegMR(ring, fi.RemoteWrite, 0, key, 0, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	toConsumer, toProducer := producer.know(consumer.address()), consumer.know(producer.address())

	for i, text := range []string{"one", "two", "three", "four"} {
		place := uint64(i % places)
		if i >= places { // wait until the consumer has read what was there
			_ = producer.Recv(nil, fi.AddrUnspec, nil)
			producer.next()
		}
		_ = producer.WriteData([]byte(text), place, toConsumer, place*size, key, nil)
		producer.next()

		c := consumer.next() // FI_REMOTE_WRITE with the place: the bytes are there
		fmt.Printf("place %d: %s\n", c.Data, ring[c.Data*size:][:c.Len])
		_ = consumer.Inject(nil, toProducer) // the place is free
	}
	// Output:
	// place 0: one
	// place 1: two
	// place 0: three
	// place 1: four
}
