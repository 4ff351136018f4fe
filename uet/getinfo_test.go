package uet

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestGetInfoWithoutHints(t *testing.T) {
	infos, err := GetInfo("", "", 0, nil)
	ok(t, err)
	names := map[string]bool{}
	for _, in := range infos {
		names[in.Domain.Name] = true
		if in.Ep.Type != fi.EpRDM || in.Ep.Protocol>>31 != 1 || in.Ep.ProtocolVersion != 1 { // R-INFO-01 to 03
			t.Errorf("%s: endpoint %+v", in.Domain.Name, in.Ep)
		}
		if in.Mode != 0 || in.Domain.MRMode != 0 { // R-INFO-07, -08
			t.Errorf("%s: something is asked of the application: %v, %v", in.Domain.Name, in.Mode, in.Domain.MRMode)
		}
		if in.Ep.MaxMsgSize != MaxMsgSize || in.Domain.CQDataSize != 8 || in.Domain.MRKeySize != 8 { // R-INFO-09, -11, -13
			t.Errorf("%s: sizes %d %d %d", in.Domain.Name, in.Ep.MaxMsgSize, in.Domain.CQDataSize, in.Domain.MRKeySize)
		}
		if in.Tx.IovLimit != 64 || in.Rx.IovLimit != 64 || in.Tx.MsgOrder != 0 { // R-INFO-10, -15
			t.Errorf("%s: %+v %+v", in.Domain.Name, in.Tx, in.Rx)
		}
		switch in.Config.PayloadMTU { // R-INFO-28
		case 1024, 2048, 4096, 8192:
		default:
			t.Errorf("%s: payload MTU %d", in.Domain.Name, in.Config.PayloadMTU)
		}
		if in.Tx.InjectSize != in.Config.PayloadMTU { // R-INFO-12
			t.Errorf("%s: inject size %d", in.Domain.Name, in.Tx.InjectSize)
		}
		if in.Fabric.Name != "uet" || in.Fabric.ProvName != "uet" || in.Domain.Name == "" { // R-INFO-27
			t.Errorf("names %q %q %q", in.Fabric.Name, in.Fabric.ProvName, in.Domain.Name)
		}
		if in.Domain.ResourceMgmt != fi.RMEnabled || in.Domain.AVType != fi.AVTable { // R-INFO-19, -20
			t.Errorf("%+v", in.Domain)
		}
		if in.Domain.Caps&fi.LocalComm == 0 || in.Domain.Caps&fi.RemoteComm == 0 {
			t.Errorf("domain caps %v", in.Domain.Caps)
		}
		if in.Domain.MaxErrData < 32 { // R-INFO-26
			t.Errorf("max_err_data %d", in.Domain.MaxErrData)
		}
		if !in.SrcAddr.IP.IsValid() || in.SrcAddr.Port != 0 || in.DestAddr.IP.IsValid() {
			t.Errorf("addresses %v, %v", in.SrcAddr, in.DestAddr)
		}
	}
	if !infos[len(infos)-1].SrcAddr.IP.IsLoopback() {
		t.Error("the loopback interface is not the last choice")
	}
}

// refusedHints cannot be met; field is the one at fault.
var refusedHints = map[string]struct {
	field string
	Info
}{
	"tagged datagrams":      {"Caps", Info{Caps: fi.Tagged, Ep: EpAttr{Type: fi.EpDgram}}},
	"ordered datagrams":     {"Tx.MsgOrder", Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Ep: EpAttr{Type: fi.EpDgram}}},
	"delivered datagrams":   {"Tx.OpFlags", Info{Tx: TxAttr{OpFlags: fi.DeliveryComplete}, Ep: EpAttr{Type: fi.EpDgram}}},
	"long datagrams":        {"Ep.MaxMsgSize", Info{Ep: EpAttr{Type: fi.EpDgram, MaxMsgSize: 1 << 20}}},
	"endpoint type":         {"Ep.Type", Info{Ep: EpAttr{Type: 77}}},
	"protocol":              {"Ep.Protocol", Info{Ep: EpAttr{Protocol: 7}}},
	"protocol version":      {"Ep.ProtocolVersion", Info{Ep: EpAttr{ProtocolVersion: 2}}},
	"persistent memory":     {"Caps", Info{Caps: fi.Msg | fi.RMAPmem}},
	"multicast":             {"Caps", Info{Caps: fi.Multicast}},
	"unknown capability":    {"Caps", Info{Caps: 1 << 63}},
	"multi-receive":         {"Rx.OpFlags", Info{Caps: fi.Msg, Rx: RxAttr{OpFlags: fi.MultiRecv}}},
	"exact, not directed":   {"Caps", Info{Caps: fi.Msg | fi.ExactDirectedRecv}},
	"traffic class":         {"Tx.TClass", Info{Tx: TxAttr{TClass: 7}}},
	"domain's class":        {"Domain.TClass", Info{Domain: DomainAttr{TClass: 7}}},
	"tag format":            {"Ep.MemTagFormat", Info{Ep: EpAttr{MemTagFormat: 3}}},
	"receive contexts":      {"Ep.RxCtxCnt", Info{Ep: EpAttr{RxCtxCnt: 2}}}, // R-EP-19
	"named contexts":        {"Caps", Info{Caps: fi.Msg | fi.NamedRxCtx}},
	"device memory":         {"Caps", Info{Caps: fi.Msg | fi.HMEM}},
	"domain":                {"Domain.Name", Info{Domain: DomainAttr{Name: "no-such-interface"}}},
	"fabric":                {"Fabric.Name", Info{Fabric: FabricAttr{Name: "ethernet"}}},
	"provider":              {"Fabric.ProvName", Info{Fabric: FabricAttr{ProvName: "tcp"}}},
	"message size":          {"Ep.MaxMsgSize", Info{Ep: EpAttr{MaxMsgSize: 1 << 40}}},
	"inject size":           {"Tx.InjectSize", Info{Tx: TxAttr{InjectSize: 1 << 20}}},
	"negative inject size":  {"Tx.InjectSize", Info{Tx: TxAttr{InjectSize: -1}}},
	"send queue":            {"Tx.Size", Info{Tx: TxAttr{Size: 1 << 30}}},
	"negative send queue":   {"Tx.Size", Info{Tx: TxAttr{Size: -1}}},
	"receive queue":         {"Rx.Size", Info{Rx: RxAttr{Size: 1 << 30}}},
	"negative receives":     {"Rx.Size", Info{Rx: RxAttr{Size: -1}}},
	"vector":                {"Tx.IovLimit", Info{Tx: TxAttr{IovLimit: 65}}},
	"receive vector":        {"Rx.IovLimit", Info{Rx: RxAttr{IovLimit: 65}}},
	"commit complete":       {"Tx.OpFlags", Info{Tx: TxAttr{OpFlags: fi.CommitComplete}}},
	"send flag":             {"Tx.OpFlags", Info{Tx: TxAttr{OpFlags: fi.Peek}}},
	"receive flag":          {"Rx.OpFlags", Info{Rx: RxAttr{OpFlags: fi.Inject}}},
	"contexts":              {"Ep.TxCtxCnt", Info{Ep: EpAttr{TxCtxCnt: 2}}},
	"order size":            {"Ep.MaxOrderRAWSize", Info{Ep: EpAttr{MaxOrderRAWSize: 1}}},
	"order of no reads":     {"Ep.MaxOrderWARSize", Info{Tx: TxAttr{MsgOrder: fi.OrderRAR}, Ep: EpAttr{MaxOrderWARSize: 1}}},
	"order":                 {"Tx.MsgOrder", Info{Tx: TxAttr{MsgOrder: 1 << 63}}},
	"receive order":         {"Rx.MsgOrder", Info{Rx: RxAttr{MsgOrder: 1 << 63}}},
	"key size":              {"Domain.MRKeySize", Info{Domain: DomainAttr{MRKeySize: 9}}},
	"cq data":               {"Domain.CQDataSize", Info{Domain: DomainAttr{CQDataSize: 16}}},
	"queues":                {"Domain.CQCnt", Info{Domain: DomainAttr{CQCnt: 1 << 30}}},
	"counters":              {"Domain.CntrCnt", Info{Domain: DomainAttr{CntrCnt: 1 << 30}}},
	"endpoints":             {"Domain.EpCnt", Info{Domain: DomainAttr{EpCnt: 1 << 30}}},
	"domain's tx contexts":  {"Domain.TxCtxCnt", Info{Domain: DomainAttr{TxCtxCnt: 1 << 30}}},
	"domain's rx contexts":  {"Domain.RxCtxCnt", Info{Domain: DomainAttr{RxCtxCnt: 1 << 30}}},
	"tx contexts per ep":    {"Domain.MaxEpTxCtx", Info{Domain: DomainAttr{MaxEpTxCtx: 2}}},
	"rx contexts per ep":    {"Domain.MaxEpRxCtx", Info{Domain: DomainAttr{MaxEpRxCtx: 2}}},
	"error data":            {"Domain.MaxErrData", Info{Domain: DomainAttr{MaxErrData: 1 << 20}}},
	"threading":             {"Domain.Threading", Info{Domain: DomainAttr{Threading: fi.ThreadEndpoint + 1}}},
	"control progress":      {"Domain.ControlProgress", Info{Domain: DomainAttr{ControlProgress: fi.ProgressControlUnified + 1}}},
	"data progress":         {"Domain.DataProgress", Info{Domain: DomainAttr{DataProgress: fi.ProgressControlUnified + 1}}},
	"resource management":   {"Domain.ResourceMgmt", Info{Domain: DomainAttr{ResourceMgmt: fi.RMEnabled + 1}}},
	"vector type":           {"Domain.AVType", Info{Domain: DomainAttr{AVType: fi.AVTable + 1}}},
	"negative queues":       {"Domain.CQCnt", Info{Domain: DomainAttr{CQCnt: -1}}},
	"negative vector":       {"Tx.IovLimit", Info{Tx: TxAttr{IovLimit: -1}}},
	"source beyond PIDs":    {"SrcAddr", Info{SrcAddr: wire.Addr{PIDonFEP: 1 << 12}}},
	"source beyond RIs":     {"SrcAddr", Info{SrcAddr: wire.Addr{RI: 1 << 12}}},
	"memory regions":        {"Domain.MRCnt", Info{Domain: DomainAttr{MRCnt: 1 << 30}}},
	"domain capability":     {"Domain.Caps", Info{Domain: DomainAttr{Caps: fi.Msg}}},
	"address format":        {"AddrFormat", Info{AddrFormat: 0x7777}},
	"tx beyond info caps":   {"Tx.Caps", Info{Caps: fi.Msg, Tx: TxAttr{Caps: fi.Tagged}}},
	"rx beyond info caps":   {"Rx.Caps", Info{Caps: fi.Msg, Rx: RxAttr{Caps: fi.Tagged}}},
	"rx capability for tx":  {"Tx.Caps", Info{Tx: TxAttr{Caps: fi.Recv}}},
	"long key":              {"Ep.AuthKey", Info{Ep: EpAttr{AuthKey: []byte{1, 2, 3, 4, 5}}}},
	"key over 24 bits":      {"Domain.AuthKey", Info{Domain: DomainAttr{AuthKey: []byte{1, 0, 0, 0}}}},
	"payload mtu":           {"Config", Info{Config: Config{PayloadMTU: 1500}}},
	"certificates":          {"Config.Security", Info{Config: Config{Security: &Security{kind: contract.SecTLS}}}},
	"another host's source": {"SrcAddr", Info{SrcAddr: wire.SockAddr(netip.MustParseAddrPort("192.0.2.77:1"))}},
	"loopback to outside":   {"DestAddr", Info{Domain: DomainAttr{Name: "lo"}, DestAddr: wire.SockAddr(netip.MustParseAddrPort("[2001:db8::1]:1"))}},
}

func TestGetInfoRefusesHonestly(t *testing.T) {
	// R-INFO-24 and fabtests: fi.ENODATA for hints that cannot be served. R-CM-17: multicast is one of them.
	for name, h := range refusedHints {
		t.Run(name, func(t *testing.T) {
			_, err := GetInfo("", "", 0, &h.Info)
			want(t, err, fi.ENODATA)
		})
	}
}

func TestOpenRefusesWhatGetInfoDoes(t *testing.T) {
	t.Parallel()
	// fi.EINVAL: an Info that the application changed is refused, so that nobody gets less
	// than it says.
	r := newRig(t, nil)
	src := r.info.SrcAddr
	for name, h := range refusedHints {
		in := h.Info
		switch h.field {
		case "Domain.Name", "AddrFormat", "DestAddr":
			continue // not about an endpoint
		case "SrcAddr":
			in.SrcAddr.IP = src.IP
			if in.SrcAddr.Port != 0 {
				continue // Enable checks it
			}
		default:
			in.SrcAddr = src
		}
		if in.Tx.InjectSize > 0 || in.Ep.Type == fi.EpDgram && in.Ep.MaxMsgSize > 0 {
			continue // reduced to what is available
		}
		if ep, err := r.domain.OpenEndpoint(&in, nil); !errors.Is(err, fi.EINVAL) {
			t.Errorf("%s: endpoint: %v", name, err)
			if err == nil {
				ep.Close()
			}
		}
		if !strings.HasPrefix(h.field, "Domain.") {
			continue
		}
		if d, err := r.fabric.OpenDomain(&in, nil); !errors.Is(err, fi.EINVAL) {
			t.Errorf("%s: domain: %v", name, err)
			if err == nil {
				d.Close()
			}
		}
	}
}

func TestGetInfoEndpointTypes(t *testing.T) {
	// R-INFO-01: connected endpoints are offered if asked for, with the destination to connect
	// to. The default is reliable datagrams, as programs that name no type expect.
	for typ, want := range map[fi.EpType]fi.EpType{fi.EpUnspec: fi.EpRDM, fi.EpRDM: fi.EpRDM, fi.EpMsg: fi.EpMsg} {
		infos, err := GetInfo("127.0.0.1", "5555", 0, &Info{Ep: EpAttr{Type: typ}})
		ok(t, err)
		for _, in := range infos {
			if in.Ep.Type != want || in.DestAddr.AddrPort() != netip.MustParseAddrPort("127.0.0.1:5555") || in.Handle != nil {
				t.Errorf("asked for %v: %v to %v, handle %v", typ, in.Ep.Type, in.DestAddr, in.Handle)
			}
		}
	}
}

func TestGetInfoGrantsWhatIsAsked(t *testing.T) {
	// fabtests getinfo_test: each supported combination of primary capabilities is granted,
	// without others.
	modifiers := fi.Send | fi.Recv
	bits := []fi.Flags{fi.Msg, fi.Tagged, fi.DirectedRecv, fi.Send, fi.Recv}
	for m := range 1 << len(bits) {
		var want fi.Flags
		for i, b := range bits {
			if m>>i&1 != 0 {
				want |= b
			}
		}
		in := loopback(t, &Info{Caps: want | fi.Source})
		switch extra := in.Caps & primaryCaps &^ want; {
		case in.Caps&want != want:
			t.Errorf("asked %v, granted %v", want, in.Caps)
		case want != 0 && extra&^modifiers != 0, want&modifiers != 0 && extra != 0:
			t.Errorf("asked %v, granted %v as well", want, extra)
		}
		if in.Caps&fi.Source == 0 {
			t.Errorf("asked for FI_SOURCE, granted %v", in.Caps)
		}
	}
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} { // R-INFO-18
		in := loopback(t, &Info{Domain: DomainAttr{DataProgress: p, ControlProgress: p}})
		if in.Domain.DataProgress != p || in.Domain.ControlProgress != p {
			t.Errorf("asked for progress %v, granted %v", p, in.Domain.DataProgress)
		}
	}
	for _, th := range []fi.Threading{fi.ThreadSafe, fi.ThreadFid, fi.ThreadDomain, fi.ThreadCompletion, fi.ThreadEndpoint} {
		if in := loopback(t, &Info{Domain: DomainAttr{Threading: th}}); in.Domain.Threading != th {
			t.Errorf("asked for threading %v, granted %v", th, in.Domain.Threading)
		}
	}
	// R-INFO-05: capabilities with a cost are granted only if asked for, the others always.
	always := fi.MultiRecv | fi.TaggedMultiRecv | fi.Source | fi.TaggedDirectedRecv | fi.LocalComm | fi.RemoteComm
	for _, c := range []fi.Caps{fi.SourceErr, fi.Fence, fi.AVUserID, fi.ExactDirectedRecv | fi.DirectedRecv, always} {
		if in := loopback(t, &Info{Caps: fi.Msg | fi.Tagged | c}); in.Caps&c != c {
			t.Errorf("asked for %v, granted %v", c, in.Caps)
		}
	}
	if in := loopback(t, nil); in.Caps&always != always || in.Caps&(fi.SourceErr|fi.Fence|fi.AVUserID|fi.ExactDirectedRecv) != 0 || in.Tx.Caps&^in.Caps != 0 || in.Rx.Caps&^in.Caps != 0 {
		t.Errorf("without hints: %v, tx %v, rx %v", in.Caps, in.Tx.Caps, in.Rx.Caps)
	}
	// R-INFO-14: a bit pattern is granted by all bits.
	for asked, want := range map[uint64]uint64{0: fi.TagBits, fi.TagMPI: fi.TagMPI, fi.TagCCL: fi.TagCCL, 0xaaaaaaaa: fi.TagBits} {
		if in := loopback(t, &Info{Ep: EpAttr{MemTagFormat: asked}}); in.Ep.MemTagFormat != want {
			t.Errorf("tag format %#x: %#x", asked, in.Ep.MemTagFormat)
		}
	}
	// R-INFO-21: the flags of sends that may be defaults.
	for _, f := range []fi.Flags{fi.Inject, fi.Completion, fi.InjectComplete, fi.TransmitComplete, fi.DeliveryComplete} {
		if in := loopback(t, &Info{Tx: TxAttr{OpFlags: f}}); in.Tx.OpFlags != f {
			t.Errorf("asked for %v, granted %v", f, in.Tx.OpFlags)
		}
	}
	if in := loopback(t, &Info{Tx: TxAttr{TClass: fi.TCLowLatency}, Domain: DomainAttr{TClass: fi.TCBulkData}}); in.Tx.TClass != fi.TCLowLatency || in.Domain.TClass != fi.TCBulkData { // R-INFO-23
		t.Errorf("classes %#x, %#x", in.Tx.TClass, in.Domain.TClass)
	}
	// R-INFO-15, -16: all orders are granted. Where writes and reads are ordered, they are at any length.
	in := loopback(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Rx: RxAttr{MsgOrder: fi.OrderSAS}})
	if in.Tx.MsgOrder != fi.OrderSAS || in.Rx.MsgOrder != fi.OrderSAS || in.Ep.MaxOrderRAWSize|in.Ep.MaxOrderWARSize|in.Ep.MaxOrderWAWSize != 0 {
		t.Errorf("order: %+v %+v %+v", in.Tx, in.Rx, in.Ep)
	}
	for bit := range 64 {
		o := fi.Order(1) << bit
		if bit < 9 || bit >= 32 && bit < 40 {
			in := loopback(t, &Info{Tx: TxAttr{MsgOrder: o}, Rx: RxAttr{MsgOrder: o}})
			raw, war, waw := o&(fi.OrderRAW|fi.OrderRMARAW) != 0, o&(fi.OrderWAR|fi.OrderRMAWAR) != 0, o&(fi.OrderWAW|fi.OrderRMAWAW) != 0
			if in.Tx.MsgOrder != o || in.Rx.MsgOrder != o || (in.Ep.MaxOrderRAWSize == MaxMsgSize) != raw || (in.Ep.MaxOrderWARSize == MaxMsgSize) != war || (in.Ep.MaxOrderWAWSize == MaxMsgSize) != waw {
				t.Errorf("order %v: %+v %+v", o, in.Tx, in.Ep)
			}
		} else {
			_, err := GetInfo("127.0.0.1", "", fi.Source, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS | o}})
			want(t, err, fi.ENODATA)
			_, err = GetInfo("127.0.0.1", "", fi.Source, &Info{Rx: RxAttr{MsgOrder: o}})
			want(t, err, fi.ENODATA)
		}
	}
	// R-INFO-12, -24: an injected message fits one packet, not a byte more.
	if most := in.Tx.InjectSize; loopback(t, &Info{Tx: TxAttr{InjectSize: most}}).Tx.InjectSize < most {
		t.Errorf("%d bytes to inject are not granted", most)
	} else {
		_, err := GetInfo("127.0.0.1", "", fi.Source, &Info{Tx: TxAttr{InjectSize: most + 1}})
		want(t, err, fi.ENODATA)
	}
	// R-INFO-04, -05: RMA and its events are granted if asked for; without a modifier all are.
	for _, c := range []fi.Caps{fi.RMA, fi.Atomic} {
		if in := loopback(t, &Info{Caps: c | fi.RMAEvent}); in.Caps&rmaCaps != c|sideCaps || in.Caps&fi.RMAEvent == 0 || in.Caps&(fi.Msg|fi.Send) != 0 {
			t.Errorf("asked for %v, granted %v", c, in.Caps)
		}
	}
	// R-INFO-08: no bit outside those asked for.
	if in := loopback(t, &Info{Domain: DomainAttr{MRMode: fi.MRLocal | fi.MRProvKey}}); in.Domain.MRMode != fi.MRProvKey {
		t.Errorf("memory registration mode %v", in.Domain.MRMode)
	}
}

func TestGetInfoAddresses(t *testing.T) {
	src := netip.MustParseAddr("127.0.0.1")
	t.Run("source", func(t *testing.T) {
		infos, err := GetInfo("127.0.0.1", "4793", fi.Source, nil)
		ok(t, err)
		for _, in := range infos {
			if in.SrcAddr.AddrPort() != netip.AddrPortFrom(src, 4793) || in.DestAddr.IP.IsValid() {
				t.Errorf("source %v, destination %v", in.SrcAddr, in.DestAddr)
			}
		}
	})
	t.Run("service only", func(t *testing.T) {
		infos, err := GetInfo("", "5000", fi.Source, nil)
		ok(t, err)
		for _, in := range infos {
			if in.SrcAddr.Port != 5000 {
				t.Errorf("source %v", in.SrcAddr)
			}
		}
		_, err = GetInfo("", "5000", 0, nil)
		want(t, err, fi.EINVAL) // a service without a node names no peer
	})
	t.Run("destination", func(t *testing.T) {
		infos, err := GetInfo("127.0.0.1", "5000", fi.NumericHost, nil)
		ok(t, err)
		if in := infos[0]; in.SrcAddr.IP != src || in.SrcAddr.Port != 0 || in.DestAddr.AddrPort() != netip.AddrPortFrom(src, 5000) {
			t.Errorf("source %v, destination %v", in.SrcAddr, in.DestAddr)
		}
		infos, err = GetInfo("127.0.0.1", "", 0, nil)
		ok(t, err)
		if in := infos[0]; in.DestAddr.Port != wire.Port {
			t.Errorf("destination %v, want the well-known port", in.DestAddr)
		}
	})
	t.Run("hinted source and destination", func(t *testing.T) {
		infos, err := GetInfo("127.0.0.1", "5000", 0, &Info{SrcAddr: wire.SockAddr(netip.AddrPortFrom(src, 6000))})
		ok(t, err)
		if in := infos[0]; in.SrcAddr.Port != 6000 || in.DestAddr.Port != 5000 {
			t.Errorf("source %v, destination %v", in.SrcAddr, in.DestAddr)
		}
	})
	t.Run("string", func(t *testing.T) {
		infos, err := GetInfo("fi_addr_uet://127.0.0.1:5001/3/9/77", "", fi.Source, nil)
		ok(t, err)
		if a := infos[0].SrcAddr; a.Port != 5001 || a.PIDonFEP != 3 || a.RI != 9 || a.Initiator != 77 {
			t.Errorf("source %v", a)
		}
		_, err = GetInfo("fi_addr_uet://127.0.0.1:5001", "5000", 0, nil) // R-AV-15
		want(t, err, fi.EINVAL)
		_, err = GetInfo("fi_addr_uet://nowhere", "", 0, nil)
		want(t, err, fi.EINVAL)
	})
	t.Run("address format", func(t *testing.T) {
		infos, err := GetInfo("", "", 0, &Info{AddrFormat: fi.FormatSockaddr4})
		ok(t, err)
		for _, in := range infos {
			if !in.SrcAddr.IP.Is4() || in.AddrFormat != fi.FormatSockaddr4 {
				t.Errorf("source %v, format %v", in.SrcAddr, in.AddrFormat)
			}
		}
	})
	t.Run("not of this host", func(t *testing.T) {
		_, err := GetInfo("192.0.2.77", "", fi.Source, nil)
		want(t, err, fi.ENODATA)
	})
	t.Run("no such host", func(t *testing.T) {
		_, err := GetInfo("no such host", "", 0, nil)
		want(t, err, fi.ENODATA)
		_, err = GetInfo("localhost", "", fi.NumericHost, nil)
		want(t, err, fi.ENODATA)
	})
	t.Run("no such service", func(t *testing.T) {
		_, err := GetInfo("127.0.0.1", "no such service", 0, nil)
		want(t, err, fi.ENODATA)
	})
	t.Run("flags", func(t *testing.T) {
		_, err := GetInfo("", "", fi.More, nil)
		want(t, err, fi.EBADFLAGS)
	})
}

func TestGetInfoHintsAreNotKept(t *testing.T) {
	key := []byte{0, 0, 5}
	in := loopback(t, &Info{Ep: EpAttr{AuthKey: key}})
	key[2] = 6
	if in.Ep.AuthKey[2] != 5 {
		t.Error("the Info shares the key of the hints")
	}
}

func TestPayloadMTUFitsTheInterface(t *testing.T) {
	// R-INFO-28
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		mtu    int
		ip     netip.Addr
		sealed bool
		want   int
	}{
		{1280, v6, false, 1024}, {1500, v4, false, 1024}, {2200, v4, false, 2048}, {4096, v4, false, 2048}, {4200, v4, false, 4096},
		{9000, v4, false, 8192}, {9000, v6, false, 8192}, {8192 + headerBytes + 20, v4, false, 8192}, {8192 + headerBytes + 19, v4, false, 4096},
		{8192 + headerBytes + 39, v6, false, 4096}, {65536, v4, false, 8192},
		// A security header and an ICV take room, too.
		{8192 + headerBytes + sealBytes + 20, v4, true, 8192}, {8192 + headerBytes + sealBytes + 19, v4, true, 4096}, {1500, v6, true, 1024},
	} {
		if got := payloadMTU(c.mtu, c.ip, c.sealed); got != c.want {
			t.Errorf("payloadMTU(%d, %v) = %d, want %d", c.mtu, c.ip, got, c.want)
		}
	}
}

func TestJobOf(t *testing.T) {
	// R-ADDR-07: 3 or 4 bytes, big-endian, 24 bits.
	for _, c := range []struct {
		key  []byte
		want uint32
		bad  bool
	}{
		{nil, 0, false}, {[]byte{1, 2, 3}, 0x010203, false}, {[]byte{0, 1, 2, 3}, 0x010203, false},
		{[]byte{1, 0, 0, 0}, 0, true}, {[]byte{1}, 0, true}, {make([]byte, 8), 0, true},
	} {
		if got, err := jobOf(c.key); got != c.want || (err != nil) != c.bad {
			t.Errorf("jobOf(%v) = %#x, %v", c.key, got, err)
		}
	}
}
