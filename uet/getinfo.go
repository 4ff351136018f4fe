package uet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// NumericHost is fi.NumericHost.
const NumericHost = fi.NumericHost

// GetInfo returns the ways to communicate that satisfy the hints, best first
// (fi_getinfo(3)). node is a host name, an IP address or an address string
// fi_addr_uet://…; service a port number or name. They name the destination,
// or with fi.Source the local address. Nil hints ask for nothing.
//
// fi.ENODATA: nothing satisfies the hints, or node cannot be resolved.
// fi.EBADFLAGS: flags other than fi.Source and fi.NumericHost. fi.EINVAL:
// contradictory arguments.
func GetInfo(node, service string, flags fi.Flags, hints *Info) ([]*Info, error) {
	if flags&^(fi.Source|fi.NumericHost) != 0 {
		return nil, fi.EBADFLAGS
	}
	if hints == nil {
		hints = &Info{}
	}
	tmpl, ok := match(hints)
	if !ok {
		return nil, fi.ENODATA
	}
	src, dst := hints.SrcAddr, hints.DestAddr
	if node != "" || service != "" {
		a, err := resolve(node, service, flags, hints.AddrFormat)
		if err != nil {
			return nil, err
		}
		if flags&fi.Source != 0 {
			src = a
		} else {
			dst = a
			if !dst.IP.IsValid() {
				return nil, fi.EINVAL // a service without a node names no peer
			}
		}
	}
	links, err := interfaces()
	if err != nil {
		return nil, err
	}
	via := netip.Addr{}
	if dst.IP.IsValid() {
		if via, err = route(dst.IP); err != nil {
			return nil, fi.ENODATA
		}
	}
	var infos []*Info
	for _, l := range links {
		if hints.Domain.Name != "" && hints.Domain.Name != l.name {
			continue
		}
		for _, ip := range l.addrs {
			switch {
			case !fits(hints.AddrFormat, ip),
				src.IP.IsValid() && !src.IP.IsUnspecified() && src.IP.Unmap().WithZone("") != ip.WithZone(""),
				dst.IP.IsValid() && dst.IP.Unmap().Is4() != ip.Is4(),
				dst.IP.IsValid() && dst.IP.IsLoopback() != ip.IsLoopback() && via != ip:
				continue
			}
			info := *tmpl
			info.SrcAddr = identity(src, netip.AddrPortFrom(ip, src.Port))
			info.DestAddr = dst
			info.Domain.Name = l.name
			if info.AddrFormat == fi.FormatUnspec || info.AddrFormat == fi.FormatSockaddr || info.AddrFormat == fi.FormatSockaddrs {
				info.AddrFormat = fi.FormatSockaddr4
				if ip.Is6() {
					info.AddrFormat = fi.FormatSockaddr6
				}
			}
			most := payloadMTU(l.mtu, ip, info.Config.Security != nil)
			if info.Config.PayloadMTU == 0 {
				info.Config.PayloadMTU = most
			} else if info.Config.PayloadMTU > most {
				continue
			}
			info.Tx.InjectSize = info.Config.PayloadMTU // R-INFO-12
			if hints.Tx.InjectSize > info.Tx.InjectSize {
				continue
			}
			info.clone()
			infos = append(infos, &info)
		}
	}
	if len(infos) == 0 {
		return nil, fi.ENODATA
	}
	if via.IsValid() {
		// The interface that leads to the destination first.
		slices.SortStableFunc(infos, func(a, b *Info) int {
			return boolOrder(b.SrcAddr.IP == via, a.SrcAddr.IP == via)
		})
	}
	return infos, nil
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// clone gives the Info slices of its own.
func (in *Info) clone() {
	in.Ep.AuthKey = bytes.Clone(in.Ep.AuthKey)
	in.Domain.AuthKey = bytes.Clone(in.Domain.AuthKey)
}

// match checks hints against what the provider can do and returns the Info that
// satisfies them, addresses left out (R-INFO-01 to 26).
func match(h *Info) (*Info, bool) {
	in := &Info{Config: h.Config, AddrFormat: h.AddrFormat}
	var ok bool
	if in.Caps, ok = grantCaps(h.Caps); !ok {
		return nil, false
	}
	switch h.AddrFormat {
	case fi.FormatUnspec, fi.FormatSockaddr, fi.FormatSockaddr4, fi.FormatSockaddr6, fi.FormatSockaddrs, fi.FormatStr:
	default:
		return nil, false
	}
	if h.Config.check() != nil || !in.matchTx(&h.Tx) || !in.matchRx(&h.Rx) || !in.matchEp(&h.Ep) ||
		!in.matchDomain(&h.Domain) || !in.matchFabric(&h.Fabric) {
		return nil, false
	}
	return in, true
}

// grantCaps grants the capabilities asked for, and no primary one beyond them.
// Without any asked for it grants all but askedCaps.
func grantCaps(want fi.Caps) (fi.Caps, bool) {
	if want&^(primaryCaps|secondaryCaps) != 0 || want&fi.ExactDirectedRecv != 0 && want&(fi.DirectedRecv|fi.TaggedDirectedRecv) == 0 {
		return 0, false
	}
	if want == 0 {
		return (primaryCaps | secondaryCaps) &^ askedCaps, true
	}
	c := want
	if c&(fi.Msg|fi.Tagged) != 0 && c&(fi.Send|fi.Recv) == 0 {
		c |= fi.Send | fi.Recv // man fi_getinfo: no modifier means all
	}
	return c | domainCaps, true
}

func (in *Info) matchTx(h *TxAttr) bool {
	if _, ok := h.TClass.DSCP(); !ok {
		return false
	}
	if h.Caps&^in.Caps != 0 || h.Caps&^txCaps != 0 || h.OpFlags&^txOpFlags != 0 || h.MsgOrder&^anyOrder != 0 ||
		h.Size > maxQueueSize || h.IovLimit > IovLimit || h.InjectSize < 0 || h.Size < 0 {
		return false
	}
	in.Tx = TxAttr{
		Caps: in.Caps & txCaps, OpFlags: h.OpFlags, MsgOrder: h.MsgOrder, TClass: h.TClass, Size: orDefault(h.Size, defaultTxSize), IovLimit: IovLimit,
	}
	if h.Caps != 0 {
		in.Tx.Caps = h.Caps
	}
	return true
}

func (in *Info) matchRx(h *RxAttr) bool {
	if h.OpFlags&fi.MultiRecv != 0 && in.Caps&(fi.MultiRecv|fi.TaggedMultiRecv) == 0 {
		return false
	}
	if h.Caps&^in.Caps != 0 || h.Caps&^rxCaps != 0 || h.OpFlags&^rxOpFlags != 0 || h.MsgOrder&^anyOrder != 0 ||
		h.Size > maxQueueSize || h.IovLimit > IovLimit || h.Size < 0 {
		return false
	}
	in.Rx = RxAttr{
		Caps: in.Caps & rxCaps, OpFlags: h.OpFlags, MsgOrder: h.MsgOrder, Size: orDefault(h.Size, defaultRxSize), IovLimit: IovLimit,
	}
	if h.Caps != 0 {
		in.Rx.Caps = h.Caps
	}
	return true
}

func (in *Info) matchEp(h *EpAttr) bool {
	switch {
	case h.Type != fi.EpUnspec && h.Type != fi.EpRDM && h.Type != fi.EpMsg, // R-INFO-01
		h.Protocol != 0 && h.Protocol != protoUET, h.ProtocolVersion > 1,
		h.MaxMsgSize > MaxMsgSize, h.TxCtxCnt > 1, h.RxCtxCnt > 1:
		return false
	}
	if _, err := jobOf(h.AuthKey); err != nil {
		return false
	}
	in.Ep = EpAttr{
		Type: fi.EpRDM, Protocol: protoUET, ProtocolVersion: 1, MaxMsgSize: MaxMsgSize, MemTagFormat: fi.TagBits,
		TxCtxCnt: 1, RxCtxCnt: 1, AuthKey: h.AuthKey,
	}
	if h.Type == fi.EpMsg {
		in.Ep.Type = fi.EpMsg
	}
	if h.MemTagFormat == fi.TagMPI || h.MemTagFormat == fi.TagCCL {
		in.Ep.MemTagFormat = h.MemTagFormat // R-INFO-14; bit patterns are all granted by fi.TagBits
	} else if h.MemTagFormat != fi.TagBits && h.MemTagFormat < fi.TagMaxFormat {
		return false
	}
	order := in.Tx.MsgOrder & in.Rx.MsgOrder
	for _, o := range []struct {
		bit  fi.Order
		hint uint64
		size *uint64
	}{
		{fi.OrderRAW, h.MaxOrderRAWSize, &in.Ep.MaxOrderRAWSize},
		{fi.OrderWAR, h.MaxOrderWARSize, &in.Ep.MaxOrderWARSize},
		{fi.OrderWAW, h.MaxOrderWAWSize, &in.Ep.MaxOrderWAWSize},
	} {
		if order&o.bit != 0 {
			*o.size = MaxMsgSize
		}
		if o.hint > *o.size {
			return false
		}
	}
	return true
}

func (in *Info) matchDomain(h *DomainAttr) bool {
	d := DomainAttr{
		Caps: domainCaps, Threading: fi.ThreadSafe, ControlProgress: fi.ProgressAuto, DataProgress: fi.ProgressAuto,
		ResourceMgmt: fi.RMEnabled, AVType: fi.AVTable, MRKeySize: 8, CQDataSize: CQDataSize,
		CQCnt: maxQueues, CntrCnt: maxQueues, EpCnt: 1 << 10, TxCtxCnt: 1 << 10, RxCtxCnt: 1 << 10, MaxEpTxCtx: 1, MaxEpRxCtx: 1,
		MaxErrData: wire.AddrLen, TClass: h.TClass, AuthKey: h.AuthKey,
	}
	if _, ok := h.TClass.DSCP(); !ok {
		return false
	}
	if in.Caps&fi.AVUserID != 0 {
		d.Caps |= fi.AVUserID
	}
	switch {
	case h.Caps&^(domainCaps|fi.AVUserID) != 0, h.MRKeySize > d.MRKeySize, h.CQDataSize > d.CQDataSize, h.CQCnt > d.CQCnt, h.CntrCnt > d.CntrCnt,
		h.EpCnt > d.EpCnt, h.TxCtxCnt > d.TxCtxCnt, h.RxCtxCnt > d.RxCtxCnt, h.MaxEpTxCtx > 1, h.MaxEpRxCtx > 1,
		h.MaxErrData > d.MaxErrData, h.MRCnt > d.MRCnt:
		return false
	}
	if _, err := jobOf(h.AuthKey); err != nil {
		return false
	}
	// R-INFO-18 to 20: whatever is asked.
	if h.Threading != fi.ThreadUnspec {
		d.Threading = h.Threading
	}
	if h.ControlProgress != fi.ProgressUnspec {
		d.ControlProgress = h.ControlProgress
	}
	if h.DataProgress != fi.ProgressUnspec {
		d.DataProgress = h.DataProgress
	}
	if h.ResourceMgmt != fi.RMUnspec {
		d.ResourceMgmt = h.ResourceMgmt
	}
	if h.AVType != fi.AVUnspec {
		d.AVType = h.AVType
	}
	in.Domain = d
	return true
}

func (in *Info) matchFabric(h *FabricAttr) bool {
	if h.Name != "" && h.Name != FabricName || h.ProvName != "" && h.ProvName != ProviderName {
		return false
	}
	in.Fabric = FabricAttr{Name: FabricName, ProvName: ProviderName, ProvVersion: strconv.Itoa(VersionMajor) + "." + strconv.Itoa(VersionMinor)}
	return true
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// jobOf reads a JobID from an authorization key: 3 or 4 bytes, big-endian, at
// most 24 bits (R-ADDR-07). No key is job 0, "not said".
func jobOf(key []byte) (uint32, error) {
	var job uint32
	switch len(key) {
	case 0:
		return 0, nil
	case 3, 4:
		for _, b := range key {
			job = job<<8 | uint32(b)
		}
	default:
		return 0, fi.EINVAL
	}
	if job >= 1<<24 {
		return 0, fi.EINVAL
	}
	return job, nil
}

// resolve turns node and service into an address. Without a node the IP is
// left out, without a service the port is 0, or the well-known one for a
// destination.
func resolve(node, service string, flags fi.Flags, format fi.AddrFormat) (wire.Addr, error) {
	if strings.HasPrefix(node, wire.AddrScheme) {
		if service != "" { // R-AV-15
			return wire.Addr{}, fi.EINVAL
		}
		a, err := wire.ParseAddr(node)
		if err != nil {
			return wire.Addr{}, fi.EINVAL
		}
		return a, nil
	}
	port := 0
	if service != "" {
		p, err := net.DefaultResolver.LookupPort(context.Background(), "udp", service)
		if err != nil {
			return wire.Addr{}, fi.ENODATA
		}
		port = p
	} else if flags&fi.Source == 0 {
		port = wire.Port
	}
	if node == "" {
		return wire.Addr{Port: uint16(port)}, nil
	}
	ip, err := netip.ParseAddr(node)
	if err != nil {
		if flags&fi.NumericHost != 0 {
			return wire.Addr{}, fi.ENODATA
		}
		network := "ip"
		switch format {
		case fi.FormatSockaddr4:
			network = "ip4"
		case fi.FormatSockaddr6:
			network = "ip6"
		}
		ips, err := net.DefaultResolver.LookupNetIP(context.Background(), network, node)
		if err != nil || len(ips) == 0 {
			return wire.Addr{}, fi.ENODATA
		}
		ip = ips[0]
		for _, x := range ips { // IPv4 first, as the other providers do
			if x.Unmap().Is4() {
				ip = x
				break
			}
		}
	}
	return wire.SockAddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))), nil
}

func fits(f fi.AddrFormat, ip netip.Addr) bool {
	switch f {
	case fi.FormatSockaddr4:
		return ip.Is4()
	case fi.FormatSockaddr6:
		return ip.Is6()
	}
	return true
}

// A link is a usable network interface.
type link struct {
	name  string
	mtu   int
	addrs []netip.Addr
}

// interfaces returns the interfaces that are up and have an IP address; those
// that lead outside first, IPv4 before IPv6 within each.
func interfaces() ([]link, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out, loop []link
	for _, i := range ifs {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		l := link{name: i.Name, mtu: i.MTU}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(n.IP)
			if !ok || ip.IsMulticast() {
				continue
			}
			if ip = ip.Unmap(); ip.IsLinkLocalUnicast() && ip.Is6() {
				ip = ip.WithZone(i.Name)
			}
			l.addrs = append(l.addrs, ip)
		}
		slices.SortStableFunc(l.addrs, func(a, b netip.Addr) int { return boolOrder(b.Is4(), a.Is4()) })
		switch {
		case len(l.addrs) == 0:
		case i.Flags&net.FlagLoopback != 0:
			loop = append(loop, l)
		default:
			out = append(out, l)
		}
	}
	return append(out, loop...), nil
}

// route is the local address from which packets to ip leave. Nothing is sent.
func route(ip netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, wire.Port)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = c.Close() }()
	a, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, errors.New("uet: no local address")
	}
	return a.AddrPort().Addr().Unmap(), nil
}

// Bytes of a packet besides the payload: UDP, the PDS request with a CC state,
// the SES header, the trailer; and what sealing adds.
const (
	headerBytes = 8 + 16 + wire.ReqStdLen + wire.CRCLen
	sealBytes   = wire.TSSSSILen + wire.ICVLen - wire.CRCLen
)

// payloadMTU is the largest payload size that fits an interface (R-INFO-28).
func payloadMTU(mtu int, ip netip.Addr, sealed bool) int {
	room := mtu - 20
	if ip.Is6() {
		room = mtu - 40
	}
	if sealed {
		room -= sealBytes
	}
	for p := 8192; p > 1024; p /= 2 {
		if p+headerBytes <= room {
			return p
		}
	}
	return 1024
}
