package uet

import (
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Names and versions that GetInfo reports.
const (
	ProviderName = "uet"
	FabricName   = "uet" // R-INFO-27
	// VersionMajor and VersionMinor are the provider's version.
	VersionMajor, VersionMinor = 0, 1
)

// Limits that GetInfo reports.
const (
	// MaxMsgSize is the longest message in bytes (R-INFO-11): 0xFFFFFFFE, or less where int
	// has 32 bits.
	MaxMsgSize = transport.MaxMessage
	// IovLimit is the most vector elements of a message (R-INFO-10).
	IovLimit = 64
	// CQDataSize is the size of remote CQ data in bytes (R-INFO-13).
	CQDataSize = 8

	defaultTxSize = 1024
	defaultRxSize = 4096
	maxQueueSize  = 1 << 16
)

// Info describes one way to communicate (struct fi_info). GetInfo makes it; the
// Open calls read it.
type Info struct {
	Caps fi.Caps
	Mode fi.Mode
	// AddrFormat is the format of addresses as bytes: in the lookups of a domain's address
	// vectors, and in errors about unknown sources. In Go, addresses are wire.Addr. Without
	// hints GetInfo returns fi.FormatSockaddr4 or fi.FormatSockaddr6. Hints may choose one
	// of these, text (fi.FormatStr), or with fi.FormatUnspec the UET record, the only
	// binary format that has PIDonFEP, RI and initiator (R-INFO-22).
	AddrFormat fi.AddrFormat
	// SrcAddr is the local address. Port 0 stands for an ephemeral port.
	SrcAddr wire.Addr
	// DestAddr is the address that node and service resolved to, or the zero Addr.
	DestAddr wire.Addr

	Tx     TxAttr
	Rx     RxAttr
	Ep     EpAttr
	Domain DomainAttr
	Fabric FabricAttr

	// Handle is the origin of an FI_EP_MSG endpoint to be opened: a request (R-EQ-41), a
	// passive endpoint (R-CM-18), or nil.
	Handle Handle

	// Config are the settings of the provider.
	Config Config
}

// TxAttr describes the sending side of an endpoint (struct fi_tx_attr).
type TxAttr struct {
	Caps    fi.Caps
	OpFlags fi.Flags // defaults of calls without a flags argument (R-EP-09)
	// MsgOrder asks for ROD (R-ORD-01): fi.OrderSAS for messages; fi.OrderRAR, fi.OrderRAW, fi.OrderWAR and
	// fi.OrderWAW, or their RMA and atomic forms, for reads, writes and atomics; fi.OrderSAR, fi.OrderSAW,
	// fi.OrderRAS and fi.OrderWAS for both together. What goes by ROD to a peer is executed there in the order of
	// the posts, whichever of these bits asked for it, and a read brings what was there then.
	MsgOrder fi.Order
	// TClass is the traffic class of packets (R-INFO-23); 0 means the domain's.
	TClass fi.TClass
	// InjectSize is the longest message, in bytes, that the inject calls take.
	InjectSize int
	// Size is how many sends may be outstanding.
	Size     int
	IovLimit int
}

// RxAttr describes the receiving side of an endpoint (struct fi_rx_attr).
type RxAttr struct {
	Caps     fi.Caps
	OpFlags  fi.Flags
	MsgOrder fi.Order
	// Size is how many receives may be posted.
	Size     int
	IovLimit int
}

// EpAttr describes an endpoint (struct fi_ep_attr).
type EpAttr struct {
	Type            fi.EpType
	Protocol        uint32
	ProtocolVersion uint32
	MaxMsgSize      uint64
	// MaxOrderRAWSize, MaxOrderWARSize and MaxOrderWAWSize are the bytes up to which reads
	// and writes are ordered: MaxMsgSize where MsgOrder asks for it, else 0 (R-INFO-16).
	MaxOrderRAWSize uint64
	MaxOrderWARSize uint64
	MaxOrderWAWSize uint64
	// MemTagFormat is fi.TagBits, fi.TagMPI or fi.TagCCL; the last two limit
	// what receives may ignore (R-TAG-05, R-TAG-06).
	MemTagFormat uint64
	TxCtxCnt     int
	RxCtxCnt     int
	// AuthKey is the JobID in 3 or 4 bytes, big-endian (R-ADDR-07).
	AuthKey []byte
}

// DomainAttr describes a domain (struct fi_domain_attr).
type DomainAttr struct {
	Name            string // the network interface (R-INFO-27)
	Caps            fi.Caps
	Threading       fi.Threading
	ControlProgress fi.Progress
	DataProgress    fi.Progress
	ResourceMgmt    fi.ResourceMgmt
	AVType          fi.AVType
	MRMode          fi.MRMode
	MRKeySize       int
	CQDataSize      int
	// CQCnt and CntrCnt are how many queues and counters may be open at once. 0 takes the
	// default when a domain is opened.
	CQCnt      int
	CntrCnt    int
	EpCnt      int
	TxCtxCnt   int
	RxCtxCnt   int
	MaxEpTxCtx int
	MaxEpRxCtx int
	MaxErrData int
	MRCnt      int
	TClass     fi.TClass
	// AuthKey is the JobID for endpoints that have no key of their own.
	AuthKey []byte
}

// FabricAttr describes a fabric (struct fi_fabric_attr).
type FabricAttr struct {
	Name        string
	ProvName    string
	ProvVersion string
}

// protoUET is the protocol number: provider-defined, so the top bit is set
// (R-INFO-02). It is not exchanged on the wire.
const protoUET = 0x8000_0555

// The capabilities and modes of this provider. R-INFO-24: anything else in hints means
// fi.ENODATA.
const (
	txCaps = fi.Msg | fi.Tagged | fi.Send | fi.Fence | fi.RMA | fi.Atomic | fi.Read | fi.Write | fi.RMAPmem
	rxCaps = fi.Msg | fi.Tagged | fi.Recv | fi.DirectedRecv | fi.TaggedDirectedRecv | fi.ExactDirectedRecv |
		fi.Source | fi.SourceErr | fi.MultiRecv | fi.TaggedMultiRecv | fi.RMA | fi.Atomic | fi.RemoteRead | fi.RemoteWrite | fi.RMAEvent | fi.RMAPmem

	sideCaps      = fi.Read | fi.Write | fi.RemoteRead | fi.RemoteWrite // which side of fi.RMA and fi.Atomic
	rmaCaps       = fi.RMA | fi.Atomic | sideCaps
	primaryCaps   = fi.Msg | fi.Tagged | fi.Send | fi.Recv | fi.DirectedRecv | rmaCaps
	secondaryCaps = fi.TaggedDirectedRecv | fi.ExactDirectedRecv | fi.Source | fi.SourceErr | fi.MultiRecv | fi.TaggedMultiRecv | fi.Fence | fi.RMAEvent | fi.RMAPmem |
		fi.AVUserID | fi.LocalComm | fi.RemoteComm
	// datagramCaps are those of FI_EP_DGRAM (R-INFO-06).
	datagramCaps = fi.Msg | fi.Send | fi.Recv | fi.DirectedRecv | fi.ExactDirectedRecv | fi.Source | fi.SourceErr | fi.MultiRecv |
		fi.AVUserID | fi.LocalComm | fi.RemoteComm
	domainCaps = fi.LocalComm | fi.RemoteComm
	// askedCaps are granted only if asked for: they have a cost, or change what calls do.
	askedCaps = fi.SourceErr | fi.Fence | fi.ExactDirectedRecv | fi.AVUserID | rmaCaps | fi.RMAEvent | fi.RMAPmem

	// R-INFO-21
	txOpFlags = fi.Inject | fi.Completion | fi.InjectComplete | fi.TransmitComplete | fi.DeliveryComplete | fi.MatchComplete
	rxOpFlags = fi.Completion | fi.MultiRecv

	// msgOrders are the orders offered: all.
	msgOrders = sendOrder | rmaOrder | atomicOrder
)
