// Command hub is either end of the rows H6 and H7 of testbed/bars that have one endpoint on one
// side: messages from a hub to many endpoints, the leaves, of another process, which share a
// completion queue.
//
//	hub -serve -addr HOST:0        the leaves; prints its address
//	hub -serve -share-port …       the leaves share a port
//	hub -addr HOST:PORT LEAVES     the hub; prints its figures as JSON
//
// The figures are kmsgs, thousand messages a second; opened, KiB of heap that an idle leaf takes;
// and used, what it takes after it has received. The queue and the buffers count for none.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

const (
	size   = 64 // bytes of a message
	window = 2  // messages on the way to a leaf
	warm   = 10 // messages to each leaf before the clock starts
	lasts  = time.Second
	most   = 60 * time.Second // for a warm-up
)

func main() {
	serve := flag.Bool("serve", false, "be the leaves")
	share := flag.Bool("share-port", false, "let the leaves share a port")
	addr := flag.String("addr", "127.0.0.1:0", "address of the leaves")
	flag.Parse()
	if err := run(*serve, *share, *addr, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(1)
	}
}

func run(serve, share bool, addr string, args []string) error {
	if serve {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		return leaves(c, share)
	}
	if len(args) != 1 {
		return errors.New("how many leaves?")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 {
		return fmt.Errorf("%q leaves", args[0])
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := hub(c, n)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// A house has what endpoints of one process share.
type house struct {
	info   *uet.Info
	domain *uet.Domain
	q      *cq.CQ
	vec    *av.AV
}

// open makes a house at the local address of c, with a queue of so many entries, and endpoints with
// so many operations of each kind, which share a port or have one each.
func open(c net.Conn, entries, ops int, share bool) (*house, error) {
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	infos, err := uet.GetInfo(host, "", fi.Source, nil)
	if err != nil {
		return nil, err
	}
	h := &house{info: infos[0]}
	h.info.Domain.DataProgress = fi.ProgressAuto
	h.info.Tx.Size, h.info.Rx.Size = ops, ops
	h.info.Config.SharePort = share
	fabric, err := uet.OpenFabric(h.info, nil)
	if err != nil {
		return nil, err
	}
	if h.domain, err = fabric.OpenDomain(h.info, nil); err != nil {
		return nil, err
	}
	if h.q, err = h.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec, Size: entries}, nil); err != nil {
		return nil, err
	}
	h.vec, err = h.domain.OpenAV(av.Attr{}, nil)
	return h, err
}

func (h *house) endpoint() (*uet.Endpoint, error) {
	e, err := h.domain.OpenEndpoint(h.info, nil)
	if err != nil {
		return nil, err
	}
	return e, errors.Join(e.BindCQ(h.q, fi.Transmit|fi.Recv), e.BindAV(h.vec), e.Enable())
}

// heap is what the process has in its heap, in KiB.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1024
}

// A leaf is an endpoint that receives.
type leaf struct {
	*uet.Endpoint
	buf [size]byte
}

// leaves opens as many endpoints as the hub says, tells their names, and receives until the hub says
// that it has ended. Then it tells what they take.
func leaves(c net.Conn, share bool) error {
	in := json.NewDecoder(c)
	var n int
	if err := in.Decode(&n); err != nil {
		return err
	}
	const posted = 2 * window
	h, err := open(c, 2*posted*n, 16, share)
	if err != nil {
		return err
	}
	all := make([]leaf, n)
	before := heap()
	for i := range all {
		if all[i].Endpoint, err = h.endpoint(); err != nil {
			return fmt.Errorf("leaf %d: %w", i, err)
		}
		if i == 0 && share {
			name, err := all[0].Name()
			if err != nil {
				return err
			}
			h.info.SrcAddr.Port = name.Port
		}
	}
	figures := map[string]float64{"opened": (heap() - before) / float64(n)}
	post := func(l *leaf) error { return l.TRecv(l.buf[:], fi.AddrUnspec, 1, 0, l) }
	var names []string
	for i := range all {
		name, err := all[i].Name()
		if err != nil {
			return err
		}
		names = append(names, name.String())
		for range posted {
			if err := post(&all[i]); err != nil {
				return err
			}
		}
	}
	out := bufio.NewWriter(c)
	if err := errors.Join(json.NewEncoder(out).Encode(names), out.Flush()); err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		_ = in.Decode(new(int)) // any, or the end of the hub
		over.Store(true)
	}()
	var es [64]cq.Entry
	for !over.Load() {
		k, err := h.q.Read(es[:])
		if err != nil && !errors.Is(err, fi.EAGAIN) {
			return fmt.Errorf("read: %w", err)
		}
		for i := range es[:k] {
			if err := post(es[i].Context.(*leaf)); err != nil {
				return err
			}
		}
	}
	figures["used"] = (heap() - before) / float64(n)
	runtime.KeepAlive(all)
	return json.NewEncoder(c).Encode(figures)
}

// A peer is a leaf as the hub sees it.
type peer struct {
	addr fi.Addr
	left int // how many more messages may be on the way
}

// hub sends to n leaves in turn.
func hub(c net.Conn, n int) (map[string]float64, error) {
	h, err := open(c, 4*window*n, max(1024, window*n), false)
	if err != nil {
		return nil, err
	}
	e, err := h.endpoint()
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(c)
	var names []string
	if err := errors.Join(json.NewEncoder(c).Encode(n), in.Decode(&names)); err != nil {
		return nil, err
	}
	if len(names) != n {
		return nil, fmt.Errorf("%d leaves, want %d", len(names), n)
	}
	all := make([]peer, n)
	for i := range all {
		if all[i].addr, err = h.vec.InsertString(names[i]); err != nil {
			return nil, err
		}
		all[i].left = window
	}
	text := make([]byte, size)
	next := 0
	var es [64]cq.Entry
	// deliver sends until count messages have arrived, or for a time.
	deliver := func(count int, limit time.Duration) (got int, err error) {
		for start := time.Now(); got < count && time.Since(start) < limit; {
			for ; all[next].left > 0; next = (next + 1) % n {
				if err := e.TSend(text, all[next].addr, 1, &all[next]); errors.Is(err, fi.EAGAIN) {
					break
				} else if err != nil {
					return got, err
				}
				all[next].left--
			}
			k, err := h.q.Read(es[:])
			if err != nil && !errors.Is(err, fi.EAGAIN) {
				return got, fmt.Errorf("read: %w", err)
			}
			for i := range es[:k] {
				es[i].Context.(*peer).left++
			}
			got += k
		}
		return got, nil
	}
	if got, err := deliver(warm*n, most); err != nil || got < warm*n {
		return nil, fmt.Errorf("%d of %d messages to warm up: %w", got, warm*n, err)
	}
	start := time.Now()
	got, err := deliver(1<<40, lasts)
	if err != nil {
		return nil, err
	}
	kmsgs := float64(got) / time.Since(start).Seconds() / 1e3
	figures := map[string]float64{}
	if err := errors.Join(json.NewEncoder(c).Encode(0), in.Decode(&figures)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	figures["kmsgs"] = kmsgs
	return figures, nil
}
