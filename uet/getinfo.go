package uet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/transport/wire"
)

// NumericHost is fi.NumericHost.
const NumericHost = fi.NumericHost

// GetInfo returns the ways to communicate that meet the hints, best first (fi_getinfo(3)).
// node is a host name, an IP address or an address string fi_addr_uet://…; service is a
// port number or name. They name the destination, or with fi.Source the local address. Nil
// hints ask for nothing but socket addresses (see Info.AddrFormat).
//
// fi.ENODATA: nothing meets the hints, and the error is an *InfoError that says which hint on
// which interface; or node cannot be resolved. fi.EBADFLAGS: flags other than fi.Source and
// fi.NumericHost. fi.EINVAL: contradictory arguments.
func GetInfo(node, service string, flags fi.Flags, hints *Info) ([]*Info, error) {
	var why reasons
	infos, err := getInfo(node, service, flags, hints, &why)
	switch {
	case err == nil:
		return infos, nil
	case err == error(fi.ENODATA) && why.refused():
		err = &InfoError{why.list}
	}
	return nil, fmt.Errorf("uet: getinfo: %w", err)
}

// getInfo is GetInfo, and also collects the reason of every refusal for Explain. It fails
// with fi.ENODATA exactly if there is a Reason without an interface.
func getInfo(node, service string, flags fi.Flags, hints *Info, why *reasons) ([]*Info, error) {
	if flags&^(fi.Source|fi.NumericHost) != 0 {
		return nil, fmt.Errorf("it takes the flags fi.Source and fi.NumericHost, not %v: %w", flags, fi.EBADFLAGS)
	}
	if hints == nil {
		hints = &Info{AddrFormat: fi.FormatSockaddr}
	}
	tmpl := match(hints, why)
	if why.refused() && (node != "" || service != "") {
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
				return nil, fmt.Errorf("service %q without a node names no peer; say fi.Source if it is the local port: %w", service, fi.EINVAL)
			}
		}
	}
	src, dst = byName(src), byName(dst)
	ifaces, err := interfaces()
	if err != nil {
		return nil, err
	}
	via := netip.Addr{}
	if dst.IP.IsValid() {
		if via, err = route(dst.IP); err != nil {
			why.refuse("DestAddr", dst.IP, err, "this host has no route to that address", "add a route or an interface that leads there (ip route get "+dst.IP.String()+")")
			return nil, fi.ENODATA
		}
	}
	var infos []*Info
	for _, l := range ifaces {
		n := len(infos)
		if !l.asked(hints, why) {
			continue
		}
		for _, ip := range l.addrs {
			if info := l.way(tmpl, hints, ip, src, dst, via, why); info != nil {
				infos = append(infos, info)
			}
		}
		if len(infos) > n {
			why.had(l.name)
		}
	}
	if len(infos) == 0 && !why.refused() {
		why.none(hints, ifaces)
	}
	if why.refused() {
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

// asked reports whether an interface is usable and the hints do not exclude it.
func (l *netInterface) asked(hints *Info, why *reasons) bool {
	switch name := hints.Domain.Name; {
	case name != "" && name != l.name:
		why.refuseAt(l.name, "Domain.Name", name, l.name, "the hints name another interface", "leave Domain.Name out, or name this one")
	case l.err != nil:
		why.refuseAt(l.name, "Domain", "", l.err, "the system does not tell the addresses of the interface", "look whether it still exists (ip addr show)")
	case l.down:
		why.refuseAt(l.name, "Domain", "", "down", "the interface is down", "ip link set "+l.name+" up")
	case len(l.addrs) == 0:
		why.refuseAt(l.name, "Domain", "", "no address", "the interface has no IP address to send from", "ip addr add ADDRESS/LENGTH dev "+l.name)
	default:
		return true
	}
	return false
}

// way returns how to communicate from one address, or nil if that does not meet the hints.
func (l *netInterface) way(tmpl, hints *Info, ip netip.Addr, src, dst wire.Addr, via netip.Addr, why *reasons) *Info {
	if a := src.IP.Unmap(); runtime.GOOS == "linux" && a.Is4() && a.IsLoopback() && ip.Is4() && ip.IsLoopback() && !slices.Contains(l.addrs, a) {
		ip = a // all of 127.0.0.0/8 is local there
	}
	refuse := func(field string, asked, have any, because, mend string) *Info {
		why.refuseAt(l.name, field, asked, have, because, mend)
		return nil
	}
	switch {
	case !fits(hints.AddrFormat, ip):
		return refuse("AddrFormat", hints.AddrFormat, ip, "the address is of another family than the format", "leave AddrFormat out, or give the interface an address of that family")
	case src.IP.IsValid() && !src.IP.IsUnspecified() && src.IP.Unmap() != ip && (src.IP.Zone() != "" || src.IP.Unmap() != ip.WithZone("")):
		return refuse("SrcAddr", src.IP, ip, "the source address asked for is another one", "leave SrcAddr out, or ask for an address of this host")
	case dst.IP.IsValid() && dst.IP.Unmap().Is4() != ip.Is4():
		return refuse("DestAddr", dst.IP, ip, "the destination is of another address family", "name an address of the destination of this family")
	case dst.IP.IsValid() && dst.IP.IsLoopback() && !ip.IsLoopback() && via != ip:
		return refuse("DestAddr", dst.IP, ip, "a loopback destination is reached from the loopback interface only", "name an address of the destination that others can reach")
	case dst.IP.IsValid() && !dst.IP.IsLoopback() && ip.IsLoopback() && via != ip:
		return refuse("DestAddr", dst.IP, ip, "what leaves the loopback interface stays on this host", "name a loopback address as destination, or leave this interface aside")
	}
	info := *tmpl
	info.SrcAddr = identity(src, netip.AddrPortFrom(ip, src.Port))
	info.SrcAddr.Encap = info.Config.Encapsulation
	if info.Config.Encapsulation == Standard && info.Ep.Type != fi.EpMsg { // the ports of these are those of connection management
		info.SrcAddr.Port = info.Config.port(src.Port)
		if p := info.SrcAddr.Port; p != wire.Port {
			return refuse("SrcAddr", p, wire.Port, "with standard encapsulation a FEP is an IP address, and its port is 4793", "leave the port out, or ask for symmetric encapsulation")
		}
		if p := dst.AddrPort().Port(); dst.IP.IsValid() && p != wire.Port {
			return refuse("DestAddr", p, wire.Port, "with standard encapsulation a FEP is an IP address, and its port is 4793", "leave the port out, or ask for symmetric encapsulation")
		}
	}
	info.DestAddr = dst
	info.Domain.Name = l.name
	if info.AddrFormat == fi.FormatSockaddr || info.AddrFormat == fi.FormatSockaddrs {
		info.AddrFormat = fi.FormatSockaddr4
		if ip.Is6() {
			info.AddrFormat = fi.FormatSockaddr6
		}
	}
	most := payloadMTU(l.mtu, ip, info.Config.Security != nil)
	if info.Config.PayloadMTU == 0 {
		info.Config.PayloadMTU = most
	} else if info.Config.PayloadMTU > most {
		return refuse("Config.PayloadMTU", info.Config.PayloadMTU, fmt.Sprintf("%d with an MTU of %d", most, l.mtu),
			"packets with so much payload do not fit the MTU of the interface", fmt.Sprintf("ask for %d or less, or raise the MTU on the whole path (ip link set %s mtu …)", most, l.name))
	}
	if info.Ep.Type == fi.EpDgram { // R-INFO-11
		info.Ep.MaxMsgSize = uint64(info.Config.PayloadMTU)
		if hints.Ep.MaxMsgSize > info.Ep.MaxMsgSize {
			return refuse("Ep.MaxMsgSize", hints.Ep.MaxMsgSize, info.Ep.MaxMsgSize, "a datagram is one packet, and that takes less on this interface", "send shorter messages, or use FI_EP_RDM")
		}
	}
	info.Tx.InjectSize = info.Config.PayloadMTU // R-INFO-12
	if hints.Tx.InjectSize > info.Tx.InjectSize {
		return refuse("Tx.InjectSize", hints.Tx.InjectSize, info.Tx.InjectSize, "an injected message is one packet, and that takes less on this interface", "inject less, or send longer messages without inject")
	}
	info.clone()
	return &info
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

// clone returns a copy of the Info with slices of its own.
func (in *Info) clone() {
	in.Ep.AuthKey = bytes.Clone(in.Ep.AuthKey)
	in.Domain.AuthKey = bytes.Clone(in.Domain.AuthKey)
}

// maxID is the largest PIDonFEP and the largest RI.
const maxID = 1<<12 - 1

// check returns fi.EINVAL for an Info that GetInfo would refuse. The application may have
// changed it, and must not silently get less than it asks for.
func (in *Info) check() error {
	var why reasons
	match(in, &why)
	return why.err()
}

// match checks hints against what the provider can do. It returns the Info that meets them,
// without addresses (R-INFO-01 to 26), and adds the reasons of its refusals to why.
func match(h *Info, why *reasons) *Info {
	in := &Info{Config: h.Config, AddrFormat: h.AddrFormat}
	kind := kindOf(h.Ep.Type)
	in.Caps = grantCaps(h.Caps, kind, why)
	if !h.AddrFormat.Known() {
		why.refuse("AddrFormat", h.AddrFormat, "FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR", "addresses are IP addresses with a port, or strings of them", "leave AddrFormat out, or ask for one of these")
	}
	if err := h.Config.check(); err != nil {
		why.refuse("Config", "", "", strings.TrimPrefix(err.Error(), "uet: "), "set the field to a value in this range, or leave it 0")
	}
	if a := &h.SrcAddr; a.PIDonFEP > maxID || a.RI > maxID {
		why.refuse("SrcAddr", fmt.Sprintf("PIDonFEP %d, RI %d", a.PIDonFEP, a.RI), maxID, "they have 12 bits", "leave them 0 for the default")
	}
	in.matchTx(&h.Tx, kind, why)
	in.matchRx(&h.Rx, kind, why)
	in.matchEp(&h.Ep, why)
	if sec := h.Config.Security; sec != nil && sec.kind == contract.SecOff {
		why.refuse("Config.Security", "a zero Security", "", "it has neither a key nor a certificate", "make one by uet.LoadClusterKey or msg.LoadTLS, or leave the field nil for packets in clear")
	}
	if sec := h.Config.Security; sec != nil && sec.kind == contract.SecTLS && in.Ep.Type != fi.EpMsg {
		why.refuse("Config.Security", "certificates", "a cluster key", "certificates secure connections", "ask for FI_EP_MSG endpoints, or take a cluster key (LoadClusterKey)")
	}
	in.matchDomain(&h.Domain, why)
	in.matchFabric(&h.Fabric, why)
	return in
}

// A kind is what endpoints of one type offer.
type kind struct {
	caps   fi.Caps
	levels fi.Flags // of completion
	orders fi.Order
}

// kindOf returns what endpoints of a type offer (R-INFO-06).
func kindOf(t fi.EpType) *kind {
	if t == fi.EpDgram {
		return &kind{datagramCaps, fi.InjectComplete | fi.TransmitComplete, 0}
	}
	return &kind{primaryCaps | secondaryCaps, fi.Levels, msgOrders}
}

// grantCaps grants the capabilities asked for, and no primary capability beyond them. If
// none is asked for, it grants all but askedCaps.
func grantCaps(want fi.Caps, k *kind, why *reasons) fi.Caps {
	why.caps("Caps", want, k.caps)
	if want&fi.ExactDirectedRecv != 0 && want&(fi.DirectedRecv|fi.TaggedDirectedRecv) == 0 {
		why.refuse("Caps", want, "", "FI_EXACT_DIRECTED_RECV says how directed receives match, and none are asked for", "ask for FI_DIRECTED_RECV or FI_TAGGED_DIRECTED_RECV as well")
	}
	if want&fi.RMAPmem != 0 && want&(fi.RMA|fi.Atomic) == 0 {
		why.refuse("Caps", want, "", "FI_RMA_PMEM says what one-sided operations can make durable, and none are asked for", "ask for FI_RMA or FI_ATOMIC as well")
	}
	if want == 0 {
		return k.caps &^ askedCaps
	}
	c := want
	if c&(fi.Msg|fi.Tagged) != 0 && c&(fi.Send|fi.Recv) == 0 {
		c |= fi.Send | fi.Recv // man fi_getinfo: no modifier means all
	}
	if c&(fi.RMA|fi.Atomic) != 0 && c&sideCaps == 0 {
		c |= sideCaps
	}
	return c | domainCaps
}

func (in *Info) matchTx(h *TxAttr, k *kind, why *reasons) {
	why.tclass("Tx.TClass", h.TClass)
	why.within("Tx.Caps", h.Caps, txCaps, in.Caps)
	why.opFlags("Tx.OpFlags", h.OpFlags, txOpFlags&(k.levels|^fi.Levels))
	why.order("Tx.MsgOrder", h.MsgOrder, k.orders)
	why.atMost("Tx.Size", h.Size, maxQueueSize, "more operations at once than an endpoint holds", "ask for less, and post again when fi.EAGAIN is over")
	why.atMost("Tx.IovLimit", h.IovLimit, IovLimit, "more vector elements than a message may have", "send fewer, longer elements")
	why.atLeast0("Tx.InjectSize", h.InjectSize)
	in.Tx = TxAttr{
		Caps: in.Caps & txCaps, OpFlags: h.OpFlags, MsgOrder: h.MsgOrder, TClass: h.TClass, Size: orDefault(h.Size, defaultTxSize), IovLimit: IovLimit,
	}
	if h.Caps != 0 {
		in.Tx.Caps = h.Caps
	}
}

func (in *Info) matchRx(h *RxAttr, k *kind, why *reasons) {
	if h.OpFlags&fi.MultiRecv != 0 && in.Caps&(fi.MultiRecv|fi.TaggedMultiRecv) == 0 {
		why.refuse("Rx.OpFlags", h.OpFlags, in.Caps, "FI_MULTI_RECV is a default of receives without being a capability of the endpoint", "ask for FI_MULTI_RECV or FI_TAGGED_MULTI_RECV in Caps as well")
	}
	why.within("Rx.Caps", h.Caps, rxCaps, in.Caps)
	why.opFlags("Rx.OpFlags", h.OpFlags, rxOpFlags)
	why.order("Rx.MsgOrder", h.MsgOrder, k.orders)
	why.atMost("Rx.Size", h.Size, maxQueueSize, "more operations at once than an endpoint holds", "ask for less, and post again when fi.EAGAIN is over")
	why.atMost("Rx.IovLimit", h.IovLimit, IovLimit, "more vector elements than a message may have", "receive into fewer, longer elements")
	in.Rx = RxAttr{
		Caps: in.Caps & rxCaps, OpFlags: h.OpFlags, MsgOrder: h.MsgOrder, Size: orDefault(h.Size, defaultRxSize), IovLimit: IovLimit,
	}
	if h.Caps != 0 {
		in.Rx.Caps = h.Caps
	}
}

func (in *Info) matchEp(h *EpAttr, why *reasons) {
	switch h.Type { // R-INFO-01
	case fi.EpUnspec, fi.EpRDM, fi.EpMsg, fi.EpDgram:
	default:
		why.refuse("Ep.Type", h.Type, "FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM", "there is no such endpoint type here", "use FI_EP_RDM, FI_EP_MSG for connections, or FI_EP_DGRAM for datagrams that may be lost")
	}
	if h.Type == fi.EpMsg && contract.Open == nil {
		why.refuse("Ep.Type", h.Type, "FI_EP_RDM, FI_EP_DGRAM", "the program has no connection management, which is a package of its own", `import _ "github.com/uetkit/uetkit/uet/msg"`)
	}
	if h.Protocol != 0 && h.Protocol != protoUET {
		why.refuse("Ep.Protocol", fmt.Sprintf("%#x", h.Protocol), fmt.Sprintf("%#x", uint32(protoUET)), "the one protocol here is Ultra Ethernet Transport", "leave Ep.Protocol 0")
	}
	why.atMost("Ep.ProtocolVersion", int(h.ProtocolVersion), 1, "a later version of the protocol than there is", "leave Ep.ProtocolVersion 0")
	if h.MaxMsgSize > MaxMsgSize {
		why.refuse("Ep.MaxMsgSize", h.MaxMsgSize, uint64(MaxMsgSize), "longer messages than the protocol carries", "send several messages")
	}
	why.atMost("Ep.TxCtxCnt", h.TxCtxCnt, 1, noContexts, moreEndpoints)
	why.atMost("Ep.RxCtxCnt", h.RxCtxCnt, 1, noContexts, moreEndpoints)
	why.key("Ep.AuthKey", h.AuthKey)
	in.Ep = EpAttr{
		Type: fi.EpRDM, Protocol: protoUET, ProtocolVersion: 1, MaxMsgSize: MaxMsgSize, MemTagFormat: fi.TagBits,
		TxCtxCnt: 1, RxCtxCnt: 1, AuthKey: h.AuthKey,
	}
	if h.Type == fi.EpMsg || h.Type == fi.EpDgram {
		in.Ep.Type = h.Type
	}
	if h.MemTagFormat == fi.TagMPI || h.MemTagFormat == fi.TagCCL {
		in.Ep.MemTagFormat = h.MemTagFormat // R-INFO-14; bit patterns are all granted by fi.TagBits
	} else if h.MemTagFormat != fi.TagBits && h.MemTagFormat < fi.TagMaxFormat {
		why.refuse("Ep.MemTagFormat", h.MemTagFormat, "bits, FI_TAG_MPI, FI_TAG_CCL", "there is no such tag format", "leave Ep.MemTagFormat 0: all 64 bits of a tag count")
	}
	if order := in.Tx.MsgOrder; order&(fi.OrderRAW|fi.OrderRMARAW) != 0 {
		in.Ep.MaxOrderRAWSize = MaxMsgSize
	}
	if order := in.Tx.MsgOrder; order&(fi.OrderWAR|fi.OrderRMAWAR) != 0 {
		in.Ep.MaxOrderWARSize = MaxMsgSize
	}
	if order := in.Tx.MsgOrder; order&(fi.OrderWAW|fi.OrderRMAWAW) != 0 {
		in.Ep.MaxOrderWAWSize = MaxMsgSize
	}
	for _, s := range []struct {
		name       string
		hint, have uint64
	}{{"RAW", h.MaxOrderRAWSize, in.Ep.MaxOrderRAWSize}, {"WAR", h.MaxOrderWARSize, in.Ep.MaxOrderWARSize}, {"WAW", h.MaxOrderWAWSize, in.Ep.MaxOrderWAWSize}} {
		if s.hint > s.have {
			why.refuse("Ep.MaxOrder"+s.name+"Size", s.hint, s.have, "Tx.MsgOrder does not ask for this order of writes and reads", "leave Ep.MaxOrder"+s.name+"Size 0")
		}
	}
}

func (in *Info) matchDomain(h *DomainAttr, why *reasons) {
	d := DomainAttr{
		Caps: domainCaps, Threading: fi.ThreadSafe, ControlProgress: fi.ProgressAuto, DataProgress: fi.ProgressAuto,
		ResourceMgmt: fi.RMEnabled, AVType: fi.AVTable, MRKeySize: 8, CQDataSize: CQDataSize,
		CQCnt: maxQueues, CntrCnt: maxQueues, EpCnt: 1 << 10, TxCtxCnt: 1 << 10, RxCtxCnt: 1 << 10, MaxEpTxCtx: 1, MaxEpRxCtx: 1,
		MaxErrData: wire.AddrLen, MRCnt: maxRegions, TClass: h.TClass, AuthKey: h.AuthKey,
	}
	if in.AddrFormat == fi.FormatStr {
		d.MaxErrData = av.MaxRecord
	}
	why.tclass("Domain.TClass", h.TClass)
	if in.Caps&fi.AVUserID != 0 {
		d.Caps |= fi.AVUserID
	}
	why.caps("Domain.Caps", h.Caps, domainCaps|fi.AVUserID)
	const many = "more than a domain has"
	const domains = "ask for less, or open several domains"
	why.atMost("Domain.MRKeySize", h.MRKeySize, d.MRKeySize, "keys of memory are shorter", "ask for at most 8 bytes")
	why.atMost("Domain.CQDataSize", h.CQDataSize, d.CQDataSize, "remote CQ data is shorter", "ask for at most 8 bytes, and put the rest into the message")
	why.atMost("Domain.CQCnt", h.CQCnt, d.CQCnt, many, domains)
	why.atMost("Domain.CntrCnt", h.CntrCnt, d.CntrCnt, many, domains)
	why.atMost("Domain.EpCnt", h.EpCnt, d.EpCnt, many, domains)
	why.atMost("Domain.TxCtxCnt", h.TxCtxCnt, d.TxCtxCnt, many, domains)
	why.atMost("Domain.RxCtxCnt", h.RxCtxCnt, d.RxCtxCnt, many, domains)
	why.atMost("Domain.MaxEpTxCtx", h.MaxEpTxCtx, 1, noContexts, moreEndpoints)
	why.atMost("Domain.MaxEpRxCtx", h.MaxEpRxCtx, 1, noContexts, moreEndpoints)
	why.atMost("Domain.MaxErrData", h.MaxErrData, d.MaxErrData, "errors carry an address, not more", "ask for less")
	why.atMost("Domain.MRCnt", h.MRCnt, d.MRCnt, many, domains)
	d.MRMode = h.MRMode & mrModes // R-INFO-08: nothing is required
	why.key("Domain.AuthKey", h.AuthKey)
	why.among("Domain.Threading", uint8(h.Threading), uint8(fi.ThreadEndpoint))
	why.among("Domain.ControlProgress", uint8(h.ControlProgress), uint8(fi.ProgressControlUnified))
	why.among("Domain.DataProgress", uint8(h.DataProgress), uint8(fi.ProgressControlUnified))
	why.among("Domain.ResourceMgmt", uint8(h.ResourceMgmt), uint8(fi.RMEnabled))
	why.among("Domain.AVType", uint8(h.AVType), uint8(fi.AVTable))
	// R-INFO-18 to 20: independent of the hints.
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
}

func (in *Info) matchFabric(h *FabricAttr, why *reasons) {
	if h.Name != "" && h.Name != FabricName {
		why.refuse("Fabric.Name", h.Name, FabricName, "there is one fabric, with another name", "leave Fabric.Name out")
	}
	if h.ProvName != "" && h.ProvName != ProviderName {
		why.refuse("Fabric.ProvName", h.ProvName, ProviderName, "the one provider here has another name", "leave Fabric.ProvName out")
	}
	in.Fabric = FabricAttr{Name: FabricName, ProvName: ProviderName, ProvVersion: strconv.Itoa(VersionMajor) + "." + strconv.Itoa(VersionMinor)}
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// jobOf reads a JobID from an authorization key: 3 or 4 bytes, big-endian, at most 24 bits
// (R-ADDR-07). An empty key gives 0, "not said".
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

// resolve turns node and service into an address. Without a node the IP address is left
// out. Without a service the port is 0, or the well-known port for a destination.
func resolve(node, service string, flags fi.Flags, format fi.AddrFormat) (wire.Addr, error) {
	if strings.HasPrefix(node, wire.AddrScheme) {
		if service != "" { // R-AV-15
			return wire.Addr{}, fmt.Errorf("node %q has a port of its own and takes no service (%q): %w", node, service, fi.EINVAL)
		}
		a, err := wire.ParseAddr(node)
		if err != nil {
			return wire.Addr{}, fmt.Errorf("node %q: %w: %w", node, err, fi.EINVAL)
		}
		return a, nil
	}
	port := 0
	if service != "" {
		p, err := net.DefaultResolver.LookupPort(context.Background(), "udp", service)
		if err != nil {
			return wire.Addr{}, fmt.Errorf("service %q is no UDP port, and no name of one: %w: %w", service, err, fi.ENODATA)
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
			return wire.Addr{}, fmt.Errorf("node %q is no IP address, and fi.NumericHost takes nothing else: %w", node, fi.ENODATA)
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
			return wire.Addr{}, unresolved(node, err)
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

// unresolved is the error of a name that no address was found for. An address with a port is
// a frequent mistake.
func unresolved(node string, err error) error {
	hint := ": check the name, or give the IP address"
	if host, port, e := net.SplitHostPort(node); e == nil {
		hint = fmt.Sprintf("; a node has no port: say node %q, service %q", host, port)
	}
	if err == nil {
		err = errors.New("no address")
	}
	return fmt.Errorf("node %q: no such host%s (%w): %w", node, hint, err, fi.ENODATA)
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

// A netInterface is a network interface. It is unusable if it is down, if err is not nil,
// or if it has no addrs.
type netInterface struct {
	name  string
	mtu   int
	down  bool
	err   error
	addrs []netip.Addr
}

// interfaces returns the interfaces of the host: those that lead outside first, then within
// each group IPv4 before IPv6.
func interfaces() ([]netInterface, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out, loop []netInterface
	for _, i := range ifs {
		l := netInterface{name: i.Name, mtu: i.MTU, down: i.Flags&net.FlagUp == 0}
		if !l.down {
			l.addrs, l.err = addrsOf(&i)
		}
		if i.Flags&net.FlagLoopback != 0 {
			loop = append(loop, l)
		} else {
			out = append(out, l)
		}
	}
	return append(out, loop...), nil
}

// addrsOf returns the addresses of an interface that packets can be sent from.
func addrsOf(i *net.Interface) ([]netip.Addr, error) {
	addrs, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
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
		out = append(out, ip)
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return boolOrder(b.Is4(), a.Is4()) })
	return out, nil
}

// route returns the local address from which packets to ip leave. It sends nothing.
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

// Bytes of a packet besides the payload: UDP, the PDS request with a CC state, the SES
// header, the trailer; and the bytes that sealing adds.
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
