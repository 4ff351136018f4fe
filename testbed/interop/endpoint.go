package main

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// poison is what a receive buffer is filled with, so that a byte nobody wrote shows.
const poison = 0xA5

// guard is how many bytes behind a receive buffer are watched.
const guard = 64

// An op is the context of an operation.
type op struct {
	recv bool
	n    int    // its place in post order
	buf  []byte // of a receive, with the guard behind it
	size int
}

// A done is an operation that ended.
type done struct {
	op
	cq.Entry
	err *cq.Error // of one that failed
}

// An endpoint is uetkit's end.
type endpoint struct {
	*uet.Endpoint
	fabric *uet.Fabric
	domain *uet.Domain
	cq     *cq.CQ
	av     *av.AV
	to     fi.Addr // the peer
	at     netip.AddrPort
	done   []done
	remote []cq.Entry // of writes of the peer with data
}

// openEndpoint opens an endpoint at an address with capabilities, 0 the default ones; change may alter its
// Info before.
func openEndpoint(at netip.AddrPort, caps fi.Caps, change func(*uet.Info)) (*endpoint, error) {
	var hints *uet.Info
	if caps != 0 {
		hints = &uet.Info{Caps: caps}
	}
	info, err := uet.GetInfo(at.Addr().String(), fmt.Sprint(at.Port()), fi.Source, hints)
	if err != nil {
		return nil, err
	}
	change(info[0])
	e := &endpoint{}
	if e.fabric, err = uet.OpenFabric(info[0], nil); err != nil {
		return nil, err
	}
	if e.domain, err = e.fabric.OpenDomain(info[0], nil); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.cq, err = e.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.av, err = e.domain.OpenAV(av.Attr{}, nil); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.Endpoint, err = e.domain.OpenEndpoint(info[0], nil); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	err = errors.Join(e.BindCQ(e.cq, fi.Transmit|fi.Recv), e.BindAV(e.av), e.Enable())
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	name, err := e.Name()
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.at = name.AddrPort()
	return e, nil
}

// Close closes everything that was opened.
func (e *endpoint) Close() error {
	var errs []error
	if e.Endpoint != nil {
		errs = append(errs, e.Endpoint.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.av != nil {
		errs = append(errs, e.av.Close())
	}
	if e.domain != nil {
		errs = append(errs, e.domain.Close())
	}
	return errors.Join(append(errs, e.fabric.Close())...)
}

// know inserts the peer's address.
func (e *endpoint) know(peer netip.AddrPort) (err error) {
	e.to, err = e.av.InsertString(peer.String())
	return err
}

// again calls post until it does not say EAGAIN; in between it reads completions.
func (e *endpoint) again(post func() error) error {
	for end := time.Now().Add(20 * time.Second); ; {
		err := post()
		if !errors.Is(err, fi.EAGAIN) || time.Now().After(end) {
			return err
		}
		if err := e.poll(time.Millisecond); err != nil {
			return err
		}
	}
}

// send posts message n of a transfer.
func (e *endpoint) send(m message, tagged, delivery bool) error {
	var flags fi.Flags
	var data uint64
	if m.data != nil {
		flags, data = fi.RemoteCQData, *m.data
	}
	if delivery {
		flags |= fi.DeliveryComplete
	}
	ctx := &op{n: m.n}
	return e.again(func() error {
		if tagged {
			return e.TSendMsg(&uet.TMsg{Iov: [][]byte{m.content}, Addr: e.to, Tag: m.tag, Context: ctx, Data: data}, flags|fi.Completion)
		}
		return e.SendMsg(&uet.Msg{Iov: [][]byte{m.content}, Addr: e.to, Context: ctx, Data: data}, flags|fi.Completion)
	})
}

// post posts the n-th receive.
func (e *endpoint) post(n, size int, tagged bool, tag, ignore uint64) error {
	o := &op{recv: true, n: n, size: size, buf: make([]byte, size+guard)}
	for i := range o.buf {
		o.buf[i] = poison
	}
	return e.again(func() error {
		if tagged {
			return e.TRecv(o.buf[:size:size], fi.AddrUnspec, tag, ignore, o)
		}
		return e.Recv(o.buf[:size:size], fi.AddrUnspec, o)
	})
}

// poll reads completions, waiting for the first one at most that long.
func (e *endpoint) poll(wait time.Duration) error {
	var entries [64]cq.Entry
	n, err := e.cq.SRead(entries[:], 1, wait)
	switch {
	case errors.Is(err, fi.EAGAIN):
		return nil
	case errors.Is(err, fi.EAVAIL):
		failed := &cq.Error{}
		if _, err := e.cq.ReadErr(failed, 0); err != nil {
			return err
		}
		o, _ := failed.Context.(*op)
		if o == nil {
			return fmt.Errorf("an error entry without context: %w", failed)
		}
		e.done = append(e.done, done{op: *o, err: failed})
		return nil
	case err != nil:
		return err
	}
	for _, c := range entries[:n] {
		if c.Flags&fi.RemoteWrite != 0 {
			e.remote = append(e.remote, c)
			continue
		}
		o, _ := c.Context.(*op)
		if o == nil {
			return fmt.Errorf("a completion without context: %+v", c)
		}
		e.done = append(e.done, done{op: *o, Entry: c})
	}
	return nil
}

// ended are the operations of one kind that ended, oldest first.
func (e *endpoint) ended(recv bool) []done {
	var out []done
	for _, d := range e.done {
		if d.recv == recv {
			out = append(out, d)
		}
	}
	return out
}

// counters are uetkit's counters that are not zero, for people.
func (e *endpoint) counters() string {
	var out []string
	var walk func(string, reflect.Value)
	walk = func(name string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Array, reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", name, i), v.Index(i))
			}
		default:
			if !v.IsZero() {
				out = append(out, fmt.Sprintf("%s=%v", strings.TrimPrefix(name, "."), v))
			}
		}
	}
	walk("", reflect.ValueOf(e.Stats()))
	return strings.Join(out, " ")
}
