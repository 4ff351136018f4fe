package uet

import (
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
)

// Options of an endpoint (fi_getopt, fi_setopt).

const (
	// defaultMinMulti is fi.OptMinMultiRecv of a new endpoint: the least room for which a
	// buffer is worth keeping. Arbitrary.
	defaultMinMulti = 64
	// cmDataSize is the most private data of connection management, in bytes (R-CM-09).
	cmDataSize = 256
	// maxSocketBuf bounds fi.OptSendBufSize and fi.OptRecvBufSize.
	maxSocketBuf = 1 << 30
)

// epOptions are the values in force. The lengths are those of untagged and tagged messages and of RMA;
// they do not change after Enable.
type epOptions struct {
	minMulti  atomic.Uint64
	maxLen    [3]uint64
	maxInject [3]uint64 // before Enable: what SetOpt asked for, 0 if nothing
	bufs      [2]int    // of the socket, sending and receiving; 0 means not said
}

func (o *epOptions) init(in *Info) {
	o.minMulti.Store(defaultMinMulti)
	most := uint64(MaxMsgSize)
	if in.Ep.MaxMsgSize != 0 {
		most = min(most, in.Ep.MaxMsgSize)
	}
	o.maxLen = [3]uint64{most, most, most}
}

// limit lowers the inject limits that exceed the endpoint's inject size.
func (o *epOptions) limit(inject int) {
	for i := range o.maxInject {
		if o.maxInject[i] == 0 || o.maxInject[i] > uint64(inject) {
			o.maxInject[i] = uint64(inject)
		}
	}
}

// buf returns the size of a socket buffer: the one that SetOpt set, else def.
func (o *epOptions) buf(opt fi.Opt, def int) int {
	if n := o.bufs[opt-fi.OptSendBufSize]; n != 0 {
		return n
	}
	return def
}

// GetOpt returns the value of an option (R-EP-18). fi.ENOPROTOOPT: the provider has no such
// option. fi.EBADF: the endpoint is closed.
func (ep *Endpoint) GetOpt(opt fi.Opt) (uint64, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case ep.domain == nil:
		return 0, errZero
	case ep.state.Load() == stateClosed:
		return 0, errClosed
	}
	o := &ep.opts
	switch opt {
	case fi.OptMinMultiRecv:
		return o.minMulti.Load(), nil
	case fi.OptCMDataSize:
		return cmDataSize, nil
	case fi.OptTxSize:
		return uint64(orDefault(ep.info.Tx.Size, defaultTxSize)), nil
	case fi.OptRxSize:
		return uint64(orDefault(ep.info.Rx.Size, defaultRxSize)), nil
	case fi.OptSendBufSize, fi.OptRecvBufSize:
		sock := &ep.info.Config.Socket
		return uint64(o.buf(opt, [2]int{sock.SendBuf, sock.RecvBuf}[opt-fi.OptSendBufSize])), nil
	case fi.OptMaxMsgSize, fi.OptMaxTaggedSize:
		return o.maxLen[opt-fi.OptMaxMsgSize], nil
	case fi.OptInjectMsgSize, fi.OptInjectTaggedSize:
		if n := o.maxInject[opt-fi.OptInjectMsgSize]; n != 0 {
			return n, nil
		}
		return uint64(ep.info.Tx.InjectSize), nil
	}
	return 0, errNoOption
}

// SetOpt changes an option (R-EP-18). fi.OptMinMultiRecv may change at any time and applies
// to buffers posted from then on; the others may change only before Enable.
//
// fi.ENOPROTOOPT: the provider has no such option, or it is read-only. fi.EINVAL: more than
// the endpoint's attributes allow. fi.EOPBADSTATE: the endpoint is enabled. fi.EBADF: it is
// closed.
func (ep *Endpoint) SetOpt(opt fi.Opt, v uint64) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	o := &ep.opts
	var most uint64
	switch opt {
	case fi.OptMinMultiRecv, fi.OptMaxMsgSize, fi.OptMaxTaggedSize:
		most = MaxMsgSize
		if n := ep.info.Ep.MaxMsgSize; n != 0 {
			most = n
		}
	case fi.OptInjectMsgSize, fi.OptInjectTaggedSize:
		most = uint64(ep.info.Tx.InjectSize)
	case fi.OptTxSize, fi.OptRxSize:
		most = maxQueueSize
	case fi.OptSendBufSize, fi.OptRecvBufSize:
		most = maxSocketBuf
	default:
		return errNoOption
	}
	switch err := ep.unenabled(); {
	case err == errClosed, err == errZero, err != nil && opt != fi.OptMinMultiRecv:
		return err
	case v > most, v == 0 && opt != fi.OptMinMultiRecv:
		return errOptionValue
	}
	switch opt {
	case fi.OptMinMultiRecv:
		o.minMulti.Store(v)
	case fi.OptMaxMsgSize, fi.OptMaxTaggedSize:
		o.maxLen[opt-fi.OptMaxMsgSize] = v
	case fi.OptInjectMsgSize, fi.OptInjectTaggedSize:
		o.maxInject[opt-fi.OptInjectMsgSize] = v
	case fi.OptTxSize:
		ep.info.Tx.Size = int(v)
	case fi.OptRxSize:
		ep.info.Rx.Size = int(v)
	case fi.OptSendBufSize, fi.OptRecvBufSize:
		o.bufs[opt-fi.OptSendBufSize] = int(v)
	}
	return nil
}

// TxSizeLeft returns how many sends can be posted now (fi_tx_size_left). Another goroutine
// may post in the meantime. fi.EOPBADSTATE: the endpoint is not enabled.
func (ep *Endpoint) TxSizeLeft() (int, error) {
	if err := ep.ready(); err != nil {
		return 0, err
	}
	n, _, most, _ := ep.posted()
	return max(most-n, 0), nil
}

// RxSizeLeft returns how many receives can be posted now (fi_rx_size_left).
func (ep *Endpoint) RxSizeLeft() (int, error) {
	if err := ep.ready(); err != nil {
		return 0, err
	}
	_, n, _, most := ep.posted()
	return max(most-n, 0), nil
}

// OpsFlags returns the default flags of one direction, fi.Transmit or fi.Recv
// (fi_control, FI_GETOPSFLAG): those of operations that are posted without flags.
// fi.EINVAL: not exactly one direction (R-EP-16). fi.EBADF: closed.
func (p *posts) OpsFlags(which fi.Flags) (fi.Flags, error) {
	switch {
	case which != fi.Transmit && which != fi.Recv:
		return 0, fi.EINVAL
	case p.gone() || p.ep.state.Load() == stateClosed:
		return 0, fi.EBADF
	case which == fi.Recv:
		return fi.Flags(p.rxFlags.Load()), nil
	}
	if t := p.tx.Load(); t != nil {
		return t.flags, nil
	}
	return p.ep.info.Tx.OpFlags, nil
}

// SetOpsFlags changes the default flags of one direction (fi_control, FI_SETOPSFLAG,
// R-EP-16). flags are the new flags and the direction, fi.Transmit or fi.Recv. Concurrent
// posts use the old or the new flags. fi.EINVAL: not exactly one direction. fi.EBADFLAGS,
// fi.EOPNOTSUPP: flags that cannot be defaults. fi.EBADF: the endpoint is closed.
func (p *posts) SetOpsFlags(flags fi.Flags) error {
	which := flags & (fi.Transmit | fi.Recv)
	flags &^= which
	if p.ep == nil {
		return fi.EBADF
	}
	p.ep.mu.Lock()
	defer p.ep.mu.Unlock()
	switch {
	case which != fi.Transmit && which != fi.Recv:
		return fi.EINVAL
	case p.gone() || p.ep.state.Load() == stateClosed:
		return fi.EBADF
	case which == fi.Recv:
		if flags&^rxOpFlags != 0 {
			return fi.EBADFLAGS
		}
		p.rxFlags.Store(uint64(flags))
		return nil
	case flags&^(txOpFlags|fi.CommitComplete) != 0:
		return fi.EBADFLAGS
	}
	t, err := p.ep.txDefaultsOf(flags)
	if err != nil {
		return err
	}
	p.tx.Store(t)
	return nil
}

// An Alias is the endpoint with other default flags (fi_ep_alias).
type Alias struct{ posts }

// Alias opens an alias: the posting calls of the same endpoint with other default flags for
// one direction. flags are as for SetOpsFlags. Close the alias before the endpoint
// (R-EP-17). Errors: those of SetOpsFlags; fi.EOPBADSTATE: the endpoint is not enabled.
func (ep *Endpoint) Alias(flags fi.Flags) (*Alias, error) {
	if err := ep.ready(); err != nil {
		return nil, err
	}
	a := &Alias{}
	a.ep = ep
	a.tx.Store(ep.tx.Load())
	a.rxFlags.Store(ep.rxFlags.Load())
	if err := a.SetOpsFlags(flags); err != nil {
		return nil, err
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.state.Load() == stateClosed {
		return nil, fi.EBADF
	}
	ep.aliases++
	return a, nil
}

// Close closes the alias. Operations that were posted by it go on. fi.EBADF: it is closed.
func (a *Alias) Close() error {
	if a.ep == nil || a.closed.Swap(true) {
		return fi.EBADF
	}
	a.ep.mu.Lock()
	a.ep.aliases--
	a.ep.mu.Unlock()
	return nil
}
