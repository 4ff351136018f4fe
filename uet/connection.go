package uet

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// States of a connection. A connection moves only down this list.
const (
	connIdle    int32 = iota // neither Connect nor Accept was called
	connPending              // one was; no answer yet
	connUp                   // connected
	connDown                 // the peer shut the connection down, or is lost
	connFailed               // Connect or Accept failed
	connShut                 // Shutdown or Close was called
)

// A connection is the connection of an FI_EP_MSG endpoint. It has a session of connection
// management beside the FEP. Its events go to the event queue.
//
// Locks: mu may be locked while the driver's lock is held, never the other way round.
// Calls that wait for the peer are made without mu.
type connection struct {
	ep  *Endpoint
	req *ConnReq         // what the endpoint was opened for, or nil
	pep *PassiveEndpoint // whose address it took over, or nil
	eq  reporter         // set by BindEQ

	state atomic.Int32 // changes with mu

	mu      sync.Mutex
	node    *cmNode // in use
	session contract.Session
	peer    wire.Addr
	stop    context.CancelFunc // ends Connect
	work    sync.WaitGroup     // goroutines of Connect, Accept and lost; begins with mu, before connShut

	// The fields below belong to the holder of the driver's lock.

	to  peerEntry // the peer, when the state is connUp or was
	why fi.Errno  // ends operations instead of ECANCELED; 0 means nothing
}

// Connect requests a connection to the passive endpoint at addr (fi_connect) and sends data
// with the request, cut to CMDataSize bytes (R-CM-09). The zero Addr stands for
// Info.DestAddr. Connect enables the endpoint if it is not enabled (R-CM-04) and returns at
// once. The result comes by the event queue:
//
//	fi.Connected  Bytes has what the other side gave Accept; the endpoint may
//	              send from now on
//	an error      fi.ECONNREFUSED: rejected, with the data of Reject in ErrData,
//	              or nobody listens (on Linux, where the host says so by ICMP).
//	              fi.ETIMEDOUT: no answer. fi.EPROTO: the two sides do not fit,
//	              ErrData says why. fi.EKEYREJECTED: one side does not trust the
//	              other. After Close no event comes.
//
// Connect works once in the life of an endpoint, whatever the result (R-CM-03).
//
// fi.EISCONN: it is connected. fi.EOPBADSTATE: Connect was called before, or the endpoint
// was opened for a request. fi.EINVAL: addr is not valid, or of another address family.
// fi.ENOSYS: not an FI_EP_MSG endpoint. Otherwise the errors of Enable.
func (ep *Endpoint) Connect(addr wire.Addr, data []byte) error {
	l := ep.connection
	if l == nil {
		return errNoConn
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !addr.IP.IsValid() {
		addr = ep.info.DestAddr
	}
	addr = byName(addr)
	switch {
	case ep.state.Load() == stateClosed:
		return errClosed
	case l.req != nil:
		return fi.EOPBADSTATE
	case l.begun() != nil:
		return l.begun()
	case !addr.IP.IsValid() || addr.IP.IsUnspecified() || addr.IP.IsMulticast() || addr.Port == 0,
		addr.IP.Unmap().Is4() != ep.info.SrcAddr.IP.Unmap().Is4():
		return fi.EINVAL
	}
	if err := ep.ready(); err != nil {
		if err := ep.enable(); err != nil {
			return err
		}
	}
	node, err := l.dialNode()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	mine, data := l.params(), cut(data)
	l.mu.Lock()
	l.node, l.stop = node, stop
	l.state.Store(connPending)
	l.work.Add(1)
	l.mu.Unlock()
	go func() {
		defer l.work.Done()
		defer stop()
		s, err := node.Dial(ctx, addr.AddrPort(), mine, data)
		if err == nil {
			if err = l.learn(s.Params()); err == nil {
				err = l.firstKey(s)
			}
		}
		l.answered(s, err)
	}()
	return nil
}

// Accept accepts the request for which the endpoint was opened (fi_accept) and sends data
// to the other side, cut to CMDataSize bytes. It enables the endpoint if it is not enabled
// (R-CM-04) and returns at once. The event queue then reports fi.Connected (R-CM-06), or an
// error: fi.ECONNABORTED if the other side has left meanwhile.
//
// fi.EINVAL: the endpoint was not opened with the Info of a request (R-CM-05), or the
// request was rejected. fi.EISCONN, fi.EOPBADSTATE: Accept was called before. fi.ENOSYS:
// not an FI_EP_MSG endpoint. Otherwise the errors of Enable.
func (ep *Endpoint) Accept(data []byte) error {
	l := ep.connection
	if l == nil {
		return errNoConn
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case ep.state.Load() == stateClosed:
		return errClosed
	case l.req == nil:
		return fi.EINVAL
	case l.begun() != nil:
		return l.begun()
	}
	if err := ep.ready(); err != nil {
		if err := ep.enable(); err != nil {
			return err
		}
	}
	if !l.req.decide() {
		return fi.EINVAL
	}
	mine, data := l.params(), cut(data)
	l.mu.Lock()
	l.state.Store(connPending)
	l.work.Add(1)
	l.mu.Unlock()
	go func() {
		defer l.work.Done()
		// The other side may send as soon as it hears of this; it must be known then.
		err := l.learn(l.req.req.Params())
		if err != nil {
			_ = l.req.req.Reject(nil)
			l.answered(nil, err)
			return
		}
		s, err := l.req.accept(mine, data)
		if err == nil {
			err = l.firstKey(s)
		}
		l.answered(s, err)
	}()
	return nil
}

// Shutdown ends the connection (fi_shutdown). Outstanding operations end with fi.ECANCELED
// before it returns (R-CM-10), after the wait that Close describes. The peer gets fi.Shutdown; this side gets no event
// (R-CM-13). The peer can still receive the messages of completed sends. Nothing can be
// posted any more.
//
// fi.ENOTCONN: it is not connected, or Shutdown was called before. fi.ENOSYS: not an
// FI_EP_MSG endpoint. fi.EBADF: the endpoint is closed.
func (ep *Endpoint) Shutdown() error {
	l := ep.connection
	switch {
	case l == nil:
		return errNoConn
	case ep.state.Load() == stateClosed:
		return errClosed
	case !l.leave(connUp, connDown):
		return fi.ENOTCONN
	}
	ep.linger(time.Now())
	err := ep.drv.Close()
	if errors.Is(err, transport.ErrClosed) {
		err = nil // Close was faster
	}
	l.hangUp()
	return err
}

// Peer returns the address of the connected endpoint, as its Name reports it (fi_getpeer,
// R-CM-16). fi.ENOTCONN: the endpoint was never connected. fi.ENOSYS: not an FI_EP_MSG
// endpoint. fi.EBADF: the endpoint is closed.
func (ep *Endpoint) Peer() (wire.Addr, error) {
	l := ep.connection
	switch {
	case l == nil:
		return wire.Addr{}, errNoConn
	case ep.state.Load() == stateClosed:
		return wire.Addr{}, errClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.peer.IP.IsValid() {
		return wire.Addr{}, fi.ENOTCONN
	}
	return l.peer, nil
}

// CMDataSize is the most private data of Connect, Accept and Reject, in bytes
// (fi.OptCMDataSize).
const CMDataSize = cmDataSize

// cut returns a copy of private data, at most CMDataSize bytes of it.
func cut(data []byte) []byte {
	return append([]byte(nil), data[:min(len(data), cmDataSize)]...)
}

// begun returns why neither Connect nor Accept is possible any more.
func (l *connection) begun() error {
	switch l.state.Load() {
	case connIdle:
		return nil
	case connUp:
		return fi.EISCONN
	}
	return fi.EOPBADSTATE
}

// maySend returns why nothing can be sent; nil if something can.
func (l *connection) maySend() error {
	switch l.state.Load() {
	case connUp:
		return nil
	case connDown, connShut:
		return fi.ESHUTDOWN // F28
	}
	return fi.ENOTCONN // R-CM-08
}

// mayRecv returns why no receive can be posted, or nil. Receives may be posted before the
// connection is up (R-CM-08). After the peer has shut down, messages that it sent before
// can still be received; a receive that finds none ends at once.
func (l *connection) mayRecv() error {
	switch l.state.Load() {
	case connShut:
		return fi.ESHUTDOWN
	case connFailed:
		return fi.ENOTCONN
	}
	return nil
}

// params returns what the peer must know about this endpoint.
func (l *connection) params() contract.Params {
	ep, a := l.ep, l.ep.name.AddrPort()
	c := ep.fep.Config()
	return contract.Params{
		Addr: netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()), Ports: ep.conn.Ports(), JobID: c.JobID, PIDonFEP: c.PIDonFEP, RI: c.RI, Initiator: c.Initiator,
		PayloadMTU: c.PayloadMTU, Modes: modes, NoCRC: c.NoCRC, Encapsulation: c.Encapsulation,
	}
}

// modes returns the delivery modes of an endpoint, a bit each.
const modes = 1<<wire.RUD | 1<<wire.ROD

// learn makes the peer the only known address of the FEP. The peer is known by its main
// port, which sends the packets that open a PDC.
func (l *connection) learn(p contract.Params) error {
	var err error
	l.ep.drv.Do(func(time.Duration) {
		f := l.ep.fep
		var id transport.PeerID
		if id, err = f.Peer(p.Addr, true); err != nil {
			err = fi.EPROTO
			return
		}
		f.Met(id)
		f.LimitMTU(id, p.PayloadMTU)
		f.PeerPaths(id, wire.PathPortsOf(p.Ports))
		l.to = peerEntry{gen: 1, id: id, pid: p.PIDonFEP, ri: p.RI, initiator: p.Initiator}
	})
	return err
}

// answered handles the result of Connect or Accept.
func (l *connection) answered(s contract.Session, err error) {
	l.mu.Lock()
	switch {
	case l.state.Load() != connPending: // Close was faster
		l.mu.Unlock()
		if s != nil {
			_ = s.Close(nil)
		}
		return
	case err != nil:
		l.state.Store(connFailed)
		e := eq.Error{Fid: l.ep, Context: l.ep.context}
		e.Err, e.ErrData = connErrno(err)
		l.ep.log.Info("not connected", slog.String("local", l.ep.name.AddrPort().String()), slog.Any("error", err))
		l.eq.PutErr(e)
		l.mu.Unlock()
		if s != nil {
			_ = s.Close(nil)
		}
		return
	}
	p := s.Params()
	l.session = s
	l.peer = peerName(p)
	l.state.Store(connUp) // first, because a reader of the event may send
	e := eq.Entry{Event: fi.Connected, Fid: l.ep}
	if l.req == nil {
		e.Bytes = s.Private() // R-EQ-43: never at the accepting side
	}
	l.eq.Put(e)
	s.Start((*session)(l)) // its events come after that one, and wait for mu
	l.mu.Unlock()
}

// peerName returns the address of the endpoint that these parameters describe.
func peerName(p contract.Params) wire.Addr {
	a := wire.SockAddr(p.Addr)
	return able(identity(wire.Addr{PIDonFEP: p.PIDonFEP, RI: p.RI, Initiator: p.Initiator}, a.AddrPort()))
}

// connErrno returns the errno of a connection that failed, and its error data: the data of
// a rejection, otherwise a text.
func connErrno(err error) (fi.Errno, []byte) {
	var rej *contract.RejectedError
	if errors.As(err, &rej) {
		return fi.ECONNREFUSED, rej.Private // R-CM-07
	}
	no := fi.Of(err)
	if no == fi.ECONNREFUSED {
		return no, nil
	}
	return no, []byte(err.Error())
}

// A session is the connection with the methods that connection management calls. It calls
// them from a goroutine that must not block.
type session connection

// InstallKey accepts the peer's next key beside the one in use (F33).
func (s *session) InstallKey(gen uint32) {
	l := (*connection)(s)
	l.mu.Lock()
	cs := l.session
	l.mu.Unlock()
	if l.ep.seal == nil || cs == nil {
		return
	}
	if err := l.installKey(cs, gen); err != nil {
		l.keyless(err)
	}
}

// SwitchKey starts to seal with a key that both ends have.
func (s *session) SwitchKey(gen uint32) {
	l := (*connection)(s)
	if l.ep.seal == nil {
		return
	}
	if err := l.switchKey(gen); err != nil {
		l.keyless(err)
		return
	}
	l.ep.log.Debug("new key", slog.String("local", l.ep.name.AddrPort().String()), slog.Uint64("generation", uint64(gen)))
}

// keyless ends a connection that cannot go on without a key.
func (l *connection) keyless(err error) {
	l.ep.log.Error("no key for a connection", slog.String("local", l.ep.name.AddrPort().String()), slog.Any("error", err))
	l.lost(fi.EKEYREJECTED)
}

// Closed reports the end of the session. No other call follows.
func (s *session) Closed(why contract.Reason, _ []byte) {
	(*connection)(s).lost(why.Errno())
}

// lost ends a connection that the peer ended, or whose peer is gone. Outstanding operations
// end with why, then one event is written (R-CM-12, R-CM-13). It may be called with the
// driver's lock held.
func (l *connection) lost(why fi.Errno) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() != connUp {
		return
	}
	l.state.Store(connDown)
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		l.wind(why)
	}()
}

// drainTurns bounds how often wind empties the socket.
const drainTurns = 1000

func (l *connection) wind(why fi.Errno) {
	// Messages and ACKs that the peer sent before it left count.
	l.ep.drv.Drain(drainTurns)
	l.ep.drv.Do(func(now time.Duration) {
		l.why = why
		l.ep.fep.End(now)
	})
	l.mu.Lock()
	if l.state.Load() == connDown { // else this side has left meanwhile
		l.eq.Put(eq.Entry{Event: fi.Shutdown, Fid: l.ep})
	}
	l.mu.Unlock()
	l.hangUp()
}

// leave sets the state to connShut if it is one of those, and reports whether it was. No
// event is written afterwards.
func (l *connection) leave(from ...int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.state.Load()
	for _, f := range from {
		if was == f {
			l.state.Store(connShut)
			if l.stop != nil {
				l.stop()
			}
			return true
		}
	}
	return false
}

// hangUp tells the peer that this side has left, unless the peer knows.
func (l *connection) hangUp() {
	l.mu.Lock()
	s := l.session
	l.session = nil
	l.mu.Unlock()
	if s != nil {
		_ = s.Close(nil)
	}
}

// close ends the connection for good. The endpoint's driver must be closed, or absent.
func (l *connection) close() {
	l.hangUp()
	l.work.Wait()
	l.hangUp() // an answer that was on its way
	l.mu.Lock()
	node := l.node
	l.node = nil
	l.mu.Unlock()
	if l.req != nil {
		l.req.release()
	}
	if node != nil {
		node.put()
	}
}
