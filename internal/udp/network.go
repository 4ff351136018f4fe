package udp

import (
	"net/netip"
	"time"
)

// A Network takes the place of the system's sockets below Conns of one process (Config.Network).
// Package memnet has one.
type Network interface {
	// Open opens what a Conn moves its datagrams by. Open of this package calls Bind for each
	// path next.
	Open(cfg *Config) Line
	// Now is monotonic time since any moment, above 0, as all ends on the network see it.
	Now() time.Duration
}

// A Line is what one Conn has on a Network. Its methods do what those of the Conn do.
type Line interface {
	Mover
	// Bind takes a port for the next path, 0 any, and returns it. Unbind gives all back.
	Bind(at netip.AddrPort) (uint16, error)
	Unbind()
	// Wait and Nap wait for each other in a way that lets virtual time go on: not by a mutex.
	Wait(deadline time.Time) error
	Wake()
	// Nap need not hold the caller's thread.
	Nap(timeout time.Duration) error
	Rouse()
	Info(*Info)
	Stats() Stats
	// Stop makes Wait and Nap return, now and ever after.
	Stop()
	Close() error
}

// foreign is the backend of a Conn on a Network. There is no evidence of closed ports, and always
// room to send.
type foreign struct{ Line }

func openForeign(cfg *Config) (backend, []uint16, error) {
	l := cfg.Network.Open(cfg)
	ports, err := openPaths(cfg, l.Bind, l.Unbind)
	if err != nil {
		_ = l.Close()
		return nil, nil, err
	}
	return foreign{l}, ports, nil
}

func (f foreign) evident() bool                     { return false }
func (f foreign) nextError(*Evidence) bool          { return false }
func (f foreign) wait(deadline time.Time) error     { return f.Line.Wait(deadline) }
func (f foreign) naps() bool                        { return true }
func (f foreign) stamps(bool) bool                  { return false }
func (f foreign) nap(timeout time.Duration) error   { return f.Line.Nap(timeout) }
func (f foreign) rouse()                            { f.Line.Rouse() }
func (f foreign) waitWritable(int, time.Time) error { return nil }
func (f foreign) wake()                             { f.Line.Wake() }
func (f foreign) echo(uint16) bool                  { return false }
func (f foreign) routeMTU(netip.Addr) (mtu int, _ error) {
	var i Info
	f.Line.Info(&i)
	return i.MTU, nil
}
func (f foreign) info(i *Info) { f.Line.Info(i) }
func (f foreign) count()       {}
func (f foreign) stats() Stats { return f.Line.Stats() }
func (f foreign) stop()        { f.Line.Stop() }
func (f foreign) close() error { return f.Line.Close() }
