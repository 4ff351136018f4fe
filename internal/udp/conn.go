package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
)

// A Conn is a set of UDP sockets on one local address. The package comment says which method
// may be called when.
type Conn struct {
	io    backend
	local netip.AddrPort
	ports []uint16
	gate  gate
	// sendOnly is Config.SendOnly: there may be paths of Echo.
	sendOnly bool
	// sleeping is held by the goroutine that is in Wait or Nap. A Line has a lock of its own.
	sleeping sync.Mutex
	foreign  bool
}

// A Mover is the methods of a Conn that every packet uses.
type Mover interface {
	Recv(d *dgram.Datagram) (ok bool, err error)
	Send(d *dgram.Datagram) error
	SendBatch(ds []*dgram.Datagram) (n int, err error)
}

// backend is an implementation of a Conn. Its methods run inside the gate, except wake, stop
// and, as Mover says, those of a Mover.
type backend interface {
	Mover
	// evident reports whether there may be evidence. It may be called outside the gate.
	evident() bool
	nextError(e *Evidence) bool
	wait(deadline time.Time) error
	// naps reports whether nap works; nap is wait on the caller's thread, and rouse ends it.
	naps() bool
	stamps(on bool) bool
	nap(timeout time.Duration) error
	rouse()
	waitWritable(path int, deadline time.Time) error
	wake()
	echo(ev uint16) bool
	routeMTU(remote netip.Addr) (int, error)
	info(*Info)
	// count fetches the counters that only the system has. stats returns what is known; it may
	// be called outside the gate.
	count()
	stats() Stats
	// stop makes wait, nap and waitWritable return, now and ever after.
	stop()
	// close counts and releases the sockets. No other call runs then, and only stats may
	// follow.
	close() error
}

// Open opens the sockets. It fails with an error of Config.check, or with one that wraps a
// syscall.Errno such as EADDRINUSE or EADDRNOTAVAIL.
func Open(cfg Config) (*Conn, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var io backend
	var ports []uint16
	var err error
	switch {
	case cfg.Network != nil:
		io, ports, err = openForeign(&cfg)
	case cfg.Portable:
		io, ports, err = openPortable(&cfg)
	default:
		io, ports, err = openNative(&cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("udp: open %v: %w", cfg.Addr, err)
	}
	c := &Conn{io: io, ports: ports, local: netip.AddrPortFrom(cfg.Addr.Addr(), ports[0]), sendOnly: cfg.SendOnly, foreign: cfg.Network != nil}
	c.gate.idle = make(chan struct{}, 1)
	return c, nil
}

// maxRanges bounds the attempts to find a free range of consecutive ports.
const maxRanges = 64

// openPaths binds the ports of all paths with open, which returns the port it got. If one
// fails, undo closes those opened so far.
func openPaths(cfg *Config, open func(netip.AddrPort) (uint16, error), undo func()) ([]uint16, error) {
	for try := 0; ; try++ {
		ports, err := openRange(cfg, open)
		if err == nil {
			return ports, nil
		}
		undo()
		search := cfg.Consecutive && cfg.Addr.Port() == 0 && cfg.Paths > 1
		if !search || try == maxRanges || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

func openRange(cfg *Config, open func(netip.AddrPort) (uint16, error)) ([]uint16, error) {
	ports := make([]uint16, 0, cfg.Paths)
	for p := range cfg.Paths {
		port := 0
		switch {
		case p == 0:
			port = int(cfg.Addr.Port())
		case cfg.Consecutive:
			port = int(ports[0]) + p
		}
		if port > 65535 {
			return nil, syscall.EADDRINUSE
		}
		bind := func(port uint16) (uint16, error) { return open(netip.AddrPortFrom(cfg.Addr.Addr(), port)) }
		var got uint16
		var err error
		switch {
		case port != 0:
			got, err = bind(uint16(port))
		case cfg.Consecutive:
			got, err = portrange.Bind(cfg.Ports, cfg.Paths-1, bind)
		default:
			err = syscall.EADDRINUSE
			if p > 1 && cfg.mayTake(ports[p-1]+1) {
				got, err = bind(ports[p-1] + 1)
			}
			if err != nil {
				got, err = portrange.Bind(cfg.Ports, 0, bind)
			}
		}
		if err != nil {
			return nil, err
		}
		ports = append(ports, got)
	}
	return ports, nil
}

// check panics on a path that does not exist.
func (c *Conn) check(path int) {
	if _, echo := dgram.EchoOf(path); echo && c.sendOnly {
		return // it may be gone
	}
	if uint(path) >= uint(len(c.ports)) {
		panic(fmt.Sprintf("BUG: udp: path %d of %d", path, len(c.ports)))
	}
}

// LocalAddr returns the address of path 0.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// Ports returns the local ports by path.
func (c *Conn) Ports() []uint16 { return slices.Clone(c.ports) }

// Recv fills d with what has arrived on some path: one datagram or one train. It sets Data (up
// to its capacity), Seg, Remote, Path and TOS. If nothing has arrived it returns false and does
// not touch d. It reads all paths in turn. d should have room for dgram.SlabLen bytes; what
// does not fit is dropped and counted.
//
// An error means that the Conn is closed or broken for good.
func (c *Conn) Recv(d *dgram.Datagram) (ok bool, err error) {
	if cap(d.Data) == 0 {
		panic("BUG: udp: Recv into a Datagram without capacity")
	}
	if !c.gate.enter() {
		return false, net.ErrClosed
	}
	ok, err = c.io.Recv(d)
	c.gate.leave()
	return ok, err
}

// Send sends one train to d.Remote from the port of d.Path with traffic class d.TOS. It borrows
// d. A train without data sends nothing.
//
// dgram.ErrNoRoom means that there was no room, and that what d then holds is to be sent later.
// (If a train leaves as single datagrams, those that were sent are removed from d.)
// net.ErrClosed means that the Conn is closed. Any other error is a syscall.Errno and means
// that all or part of the train is lost, as it might be in the network: ENOBUFS, EPERM (a
// firewall), EMSGSIZE (no fragmentation), ENETUNREACH, EHOSTUNREACH, ENETDOWN, EAFNOSUPPORT
// (Remote is of another address family) and others.
func (c *Conn) Send(d *dgram.Datagram) error {
	c.check(d.Path)
	if !c.gate.enter() {
		return net.ErrClosed
	}
	err := c.io.Send(d)
	c.gate.leave()
	return err
}

// SendBatch sends trains in order, with as few system calls as possible. They may have
// different destinations. It returns how many were sent before it stopped; err, as of Send, is
// about ds[n]. To go on after an error other than dgram.ErrNoRoom and net.ErrClosed, call it
// with ds[n+1:].
func (c *Conn) SendBatch(ds []*dgram.Datagram) (n int, err error) {
	for _, d := range ds {
		c.check(d.Path)
	}
	if !c.gate.enter() {
		return 0, net.ErrClosed
	}
	n, err = c.io.SendBatch(ds)
	c.gate.leave()
	return n, err
}

// Echo reports whether trains can leave from the port ev, by the path dgram.Echo(ev). It binds the
// port if need be, to send only, and keeps at most MaxEchoes bound: the one that was used least
// recently makes room, if that is a while ago. Errors about what left from such a port are
// evidence like that of any path. Echo belongs to the goroutine that sends. It needs
// Config.SendOnly.
func (c *Conn) Echo(ev uint16) bool {
	if !c.sendOnly || !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	return c.io.echo(ev)
}

// Mover returns the Conn for a caller that ensures that none of these calls runs during or
// after Close. They do not check that and are one call shorter, which saves 20 ns each.
func (c *Conn) Mover() Mover { return moverOf(c) }

// NextError fills e with the next piece of evidence that a packet did not arrive, and reports
// whether there was one. It makes no system call without a sign of evidence. Evidence that is
// not read is dropped in the end.
func (c *Conn) NextError(e *Evidence) bool {
	if !c.io.evident() || !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	return c.io.nextError(e)
}

// maxErrors bounds one call of Errors, so that a flood of forged messages cannot keep its
// caller.
const maxErrors = 64

// Errors calls f with each piece of evidence, at most 64, and returns their number. f borrows
// its argument.
func (c *Conn) Errors(f func(*Evidence)) int {
	var e Evidence
	n := 0
	for n < maxErrors && c.NextError(&e) {
		f(&e)
		n++
	}
	return n
}

// Wait blocks until a path may have something to receive or evidence, the deadline passes (zero
// means none), or Wake was called since the last Wait or WaitWritable returned. It does not say
// which. It fails with net.ErrClosed once Close was called.
func (c *Conn) Wait(deadline time.Time) error {
	if !c.gate.enter() {
		return net.ErrClosed
	}
	defer c.gate.leave()
	if !c.foreign {
		c.sleeping.Lock()
		defer c.sleeping.Unlock()
	}
	return c.io.wait(deadline)
}

// Forgo gives back the descriptor that Wait takes on Linux, until the next Wait. It does nothing while a goroutine is in
// Wait or Nap.
func (c *Conn) Forgo() {
	w, ok := c.io.(interface{ forgo() })
	if !ok || !c.gate.enter() {
		return
	}
	defer c.gate.leave()
	if c.sleeping.TryLock() {
		defer c.sleeping.Unlock()
		w.forgo()
	}
}

// Naps reports whether Nap can be used, and must be asked first: the system must be Linux and
// have a descriptor left, and the Conn not be Portable or closed.
func (c *Conn) Naps() bool {
	if !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	return c.io.naps()
}

// Stamps asks for the time that each train waited in the socket (dgram.Datagram.Waited), or no
// longer. It reports whether the system tells it. A train costs 0.1 µs more meanwhile. Calls of
// Recv and Stamps must not overlap.
func (c *Conn) Stamps(on bool) bool {
	if !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	return c.io.stamps(on)
}

// Nap is Wait on the thread of the caller, for a time that is bounded: the thread sleeps in the
// kernel, so that no other thread runs between a packet and the caller. Meanwhile the scheduler
// gives the thread's processor (P) to other goroutines, but up to 10 ms late, and at the end it
// finds one for the thread again. Rouse ends it, Wake does not. While another goroutine is in
// Wait, Nap first waits for the end of that. It fails with net.ErrClosed once Close was called.
func (c *Conn) Nap(timeout time.Duration) error {
	if !c.gate.enter() {
		return net.ErrClosed
	}
	defer c.gate.leave()
	if !c.foreign {
		c.sleeping.Lock()
		defer c.sleeping.Unlock()
	}
	return c.io.nap(timeout)
}

// WaitWritable is like Wait, but for room in the send buffer of a path. Paths of Echo are not
// waited for; path 0 stands for them.
func (c *Conn) WaitWritable(path int, deadline time.Time) error {
	c.check(path)
	if _, echo := dgram.EchoOf(path); echo {
		path = 0
	}
	if !c.gate.enter() {
		return net.ErrClosed
	}
	defer c.gate.leave()
	return c.io.waitWritable(path, deadline)
}

// Rouse ends the current Nap, or else the next one.
func (c *Conn) Rouse() {
	if !c.gate.enter() {
		return
	}
	defer c.gate.leave()
	c.io.rouse()
}

// Wake ends the current Wait or WaitWritable, or else the next one.
func (c *Conn) Wake() {
	if !c.gate.enter() {
		return
	}
	defer c.gate.leave()
	c.io.wake()
}

// RouteMTU returns the largest IP packet, in bytes, on the route to remote as this host knows
// it. The network may allow less.
func (c *Conn) RouteMTU(remote netip.Addr) (int, error) {
	if !c.gate.enter() {
		return 0, net.ErrClosed
	}
	defer c.gate.leave()
	return c.io.routeMTU(remote.Unmap())
}

// Info returns what the Conn found and does. It may be called after Close.
func (c *Conn) Info() Info {
	i := Info{Local: c.local, Ports: c.Ports()}
	c.io.info(&i)
	return i
}

// Stats returns the counters. It may be called after Close.
func (c *Conn) Stats() Stats {
	if c.gate.enter() {
		c.io.count()
		c.gate.leave()
	}
	return c.io.stats()
}

// Close releases the sockets. It ends Wait, Nap and WaitWritable, waits for running calls, and makes
// later calls fail with net.ErrClosed. When it returns the ports are free. A second Close fails
// with net.ErrClosed.
func (c *Conn) Close() error {
	if !c.gate.shut() {
		return net.ErrClosed
	}
	c.io.stop()
	c.gate.drain()
	return c.io.close()
}

// maxRepeat bounds how often a call is repeated that met an error of an earlier packet, or a
// datagram to be dropped.
const maxRepeat = 8

// A gate counts running calls, so that no system call uses a file descriptor that is closed and
// whose number may name another file. enter and leave cost some 10 ns together.
type gate struct {
	n    atomic.Int64 // running calls, plus shutGate once closed
	idle chan struct{}
}

const shutGate = -1 << 62

func (g *gate) enter() bool {
	if g.n.Add(1) < 0 {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.n.Add(-1) == shutGate {
		g.last()
	}
}

// last tells Close that no call runs any more.
func (g *gate) last() {
	select {
	case g.idle <- struct{}{}:
	default:
	}
}

// shut makes later calls of enter fail. It returns false if they already do.
func (g *gate) shut() bool {
	for {
		n := g.n.Load()
		if n < 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+shutGate) {
			return true
		}
	}
}

// drain waits for the running calls.
func (g *gate) drain() {
	for g.n.Load() != shutGate {
		<-g.idle
	}
}

// lost counts a send that failed for good and returns its error.
func (s *Stats) lost(e syscall.Errno) error {
	switch e {
	case syscall.ENOBUFS:
		s.SendNoBufs++
	case syscall.EMSGSIZE:
		s.SendTooBig++
	default:
		s.SendLost++
	}
	return e
}
