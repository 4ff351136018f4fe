package fi

import (
	"strconv"
	"strings"
)

// Flags are the 64 flag bits of libfabric: operation flags, completion flags
// and capabilities share them.
type Flags uint64

// Caps are capability bits (fi_getinfo(3)); they are Flags.
type Caps = Flags

// The flag bits.
const (
	Msg          Flags = 1 << 1
	RMA          Flags = 1 << 2
	Tagged       Flags = 1 << 3
	Atomic       Flags = 1 << 4
	Multicast    Flags = 1 << 5
	Collective   Flags = 1 << 6
	Read         Flags = 1 << 8
	Write        Flags = 1 << 9
	Recv         Flags = 1 << 10
	Send         Flags = 1 << 11
	Transmit           = Send
	RemoteRead   Flags = 1 << 12
	RemoteWrite  Flags = 1 << 13
	MultiRecv    Flags = 1 << 16
	RemoteCQData Flags = 1 << 17
	More         Flags = 1 << 18
	Peek         Flags = 1 << 19
	Trigger      Flags = 1 << 20
	Fence        Flags = 1 << 21
	Completion   Flags = 1 << 24
	Event              = Completion
	Inject       Flags = 1 << 25

	InjectComplete   Flags = 1 << 26
	TransmitComplete Flags = 1 << 27
	DeliveryComplete Flags = 1 << 28
	Affinity         Flags = 1 << 29
	CommitComplete   Flags = 1 << 30
	MatchComplete    Flags = 1 << 31

	AVUserID           Flags = 1 << 41
	FirewallAddr       Flags = 1 << 42
	Peer               Flags = 1 << 43
	XPU                Flags = 1 << 44
	TaggedDirectedRecv Flags = 1 << 45
	TaggedMultiRecv    Flags = 1 << 46
	HMEM               Flags = 1 << 47
	ExactDirectedRecv  Flags = 1 << 48
	RMAPmem            Flags = 1 << 49
	SourceErr          Flags = 1 << 50
	LocalComm          Flags = 1 << 51
	RemoteComm         Flags = 1 << 52
	SharedAV           Flags = 1 << 53
	RMAEvent           Flags = 1 << 56
	Source             Flags = 1 << 57
	AuthKey                  = Source // on calls
	NamedRxCtx         Flags = 1 << 58
	Discard                  = NamedRxCtx // on tagged calls
	DirectedRecv       Flags = 1 << 59
	Claim                    = DirectedRecv // on tagged calls

	// SelectiveCompletion goes with Transmit or Recv to Endpoint.BindCQ only.
	SelectiveCompletion Flags = 1 << 59
	// SyncErr goes to address vector insertion only: per-entry errors.
	SyncErr Flags = 1 << 58
	// Symmetric goes to opening an address vector only: all processes insert
	// the same addresses in the same order.
	Symmetric Flags = 1 << 59

	ProvAttrOnly Flags = 1 << 54 // to GetInfo only
	NumericHost  Flags = 1 << 55 // to GetInfo only
)

// Levels are the completion level flags.
const Levels = InjectComplete | TransmitComplete | DeliveryComplete | CommitComplete | MatchComplete

var flagNames = [...]bitName{
	{uint64(Msg), "MSG"},
	{uint64(RMA), "RMA"},
	{uint64(Tagged), "TAGGED"},
	{uint64(Atomic), "ATOMIC"},
	{uint64(Multicast), "MULTICAST"},
	{uint64(Collective), "COLLECTIVE"},
	{uint64(Read), "READ"},
	{uint64(Write), "WRITE"},
	{uint64(Recv), "RECV"},
	{uint64(Send), "SEND"},
	{uint64(RemoteRead), "REMOTE_READ"},
	{uint64(RemoteWrite), "REMOTE_WRITE"},
	{uint64(MultiRecv), "MULTI_RECV"},
	{uint64(RemoteCQData), "REMOTE_CQ_DATA"},
	{uint64(More), "MORE"},
	{uint64(Peek), "PEEK"},
	{uint64(Trigger), "TRIGGER"},
	{uint64(Fence), "FENCE"},
	{uint64(Completion), "COMPLETION"},
	{uint64(Inject), "INJECT"},
	{uint64(InjectComplete), "INJECT_COMPLETE"},
	{uint64(TransmitComplete), "TRANSMIT_COMPLETE"},
	{uint64(DeliveryComplete), "DELIVERY_COMPLETE"},
	{uint64(Affinity), "AFFINITY"},
	{uint64(CommitComplete), "COMMIT_COMPLETE"},
	{uint64(MatchComplete), "MATCH_COMPLETE"},
	{uint64(AVUserID), "AV_USER_ID"},
	{uint64(FirewallAddr), "FIREWALL_ADDR"},
	{uint64(Peer), "PEER"},
	{uint64(XPU), "XPU"},
	{uint64(TaggedDirectedRecv), "TAGGED_DIRECTED_RECV"},
	{uint64(TaggedMultiRecv), "TAGGED_MULTI_RECV"},
	{uint64(HMEM), "HMEM"},
	{uint64(ExactDirectedRecv), "EXACT_DIRECTED_RECV"},
	{uint64(RMAPmem), "RMA_PMEM"},
	{uint64(SourceErr), "SOURCE_ERR"},
	{uint64(LocalComm), "LOCAL_COMM"},
	{uint64(RemoteComm), "REMOTE_COMM"},
	{uint64(SharedAV), "SHARED_AV"},
	{uint64(RMAEvent), "RMA_EVENT"},
	{uint64(Source), "SOURCE"},
	{uint64(NamedRxCtx), "NAMED_RX_CTX"},
	{uint64(DirectedRecv), "DIRECTED_RECV"},
	{uint64(ProvAttrOnly), "PROV_ATTR_ONLY"},
	{uint64(NumericHost), "NUMERICHOST"},
}

// String names the bits as fi_tostr(3) does, without the prefix. Bits of which
// one call or object means something else than the others have the common name.
func (f Flags) String() string { return join(uint64(f), flagNames[:]) }

// join names the bits of v that have a name, and gives the rest as a number.
func join(v uint64, names []bitName) string {
	var set []string
	for _, n := range names {
		if v&n.bit != 0 {
			set = append(set, n.name)
			v &^= n.bit
		}
	}
	if v != 0 || set == nil {
		rest := strconv.FormatUint(v, 16)
		if v != 0 {
			rest = "0x" + rest
		}
		set = append(set, rest)
	}
	return strings.Join(set, "|")
}

type bitName struct {
	bit  uint64
	name string
}

// Order is a set of message ordering bits (fi_endpoint(3), msg_order).
type Order uint64

// The ordering bits: the second letter pair after the first.
const (
	OrderRAR       Order = 1 << 0
	OrderRAW       Order = 1 << 1
	OrderRAS       Order = 1 << 2
	OrderWAR       Order = 1 << 3
	OrderWAW       Order = 1 << 4
	OrderWAS       Order = 1 << 5
	OrderSAR       Order = 1 << 6
	OrderSAW       Order = 1 << 7
	OrderSAS       Order = 1 << 8
	OrderRMARAR    Order = 1 << 32
	OrderRMARAW    Order = 1 << 33
	OrderRMAWAR    Order = 1 << 34
	OrderRMAWAW    Order = 1 << 35
	OrderAtomicRAR Order = 1 << 36
	OrderAtomicRAW Order = 1 << 37
	OrderAtomicWAR Order = 1 << 38
	OrderAtomicWAW Order = 1 << 39
)

func (o Order) String() string { return join(uint64(o), orderNames[:]) }

var orderNames = [...]bitName{
	{uint64(OrderRAR), "RAR"},
	{uint64(OrderRAW), "RAW"},
	{uint64(OrderRAS), "RAS"},
	{uint64(OrderWAR), "WAR"},
	{uint64(OrderWAW), "WAW"},
	{uint64(OrderWAS), "WAS"},
	{uint64(OrderSAR), "SAR"},
	{uint64(OrderSAW), "SAW"},
	{uint64(OrderSAS), "SAS"},
	{uint64(OrderRMARAR), "RMA_RAR"},
	{uint64(OrderRMARAW), "RMA_RAW"},
	{uint64(OrderRMAWAR), "RMA_WAR"},
	{uint64(OrderRMAWAW), "RMA_WAW"},
	{uint64(OrderAtomicRAR), "ATOMIC_RAR"},
	{uint64(OrderAtomicRAW), "ATOMIC_RAW"},
	{uint64(OrderAtomicWAR), "ATOMIC_WAR"},
	{uint64(OrderAtomicWAW), "ATOMIC_WAW"},
}

// Mode is a set of mode bits (fi_getinfo(3)): what a provider asks of the
// application. This one asks nothing.
type Mode uint64

// The mode bits.
const (
	ModeContext2  Mode = 1 << 52
	ModeRxCQData  Mode = 1 << 56
	ModeAsyncIov  Mode = 1 << 57
	ModeMsgPrefix Mode = 1 << 58
	ModeContext   Mode = 1 << 59
)

func (m Mode) String() string { return join(uint64(m), modeNames[:]) }

var modeNames = [...]bitName{
	{uint64(ModeContext2), "CONTEXT2"},
	{uint64(ModeRxCQData), "RX_CQ_DATA"},
	{uint64(ModeAsyncIov), "ASYNC_IOV"},
	{uint64(ModeMsgPrefix), "MSG_PREFIX"},
	{uint64(ModeContext), "CONTEXT"},
}

// MRMode is a set of memory registration mode bits (fi_mr(3)).
type MRMode uint64

// The memory registration modes.
const (
	MRLocal      MRMode = 1 << 2
	MRRaw        MRMode = 1 << 3
	MRVirtAddr   MRMode = 1 << 4
	MRAllocated  MRMode = 1 << 5
	MRProvKey    MRMode = 1 << 6
	MRMMUNotify  MRMode = 1 << 7
	MRRMAEvent   MRMode = 1 << 8
	MREndpoint   MRMode = 1 << 9
	MRHMEM       MRMode = 1 << 10
	MRCollective MRMode = 1 << 11
	MRXPUDesc    MRMode = 1 << 12
)

func (m MRMode) String() string { return join(uint64(m), mrNames[:]) }

var mrNames = [...]bitName{
	{uint64(MRLocal), "MR_LOCAL"},
	{uint64(MRRaw), "MR_RAW"},
	{uint64(MRVirtAddr), "MR_VIRT_ADDR"},
	{uint64(MRAllocated), "MR_ALLOCATED"},
	{uint64(MRProvKey), "MR_PROV_KEY"},
	{uint64(MRMMUNotify), "MR_MMU_NOTIFY"},
	{uint64(MRRMAEvent), "MR_RMA_EVENT"},
	{uint64(MREndpoint), "MR_ENDPOINT"},
	{uint64(MRHMEM), "MR_HMEM"},
	{uint64(MRCollective), "MR_COLLECTIVE"},
	{uint64(MRXPUDesc), "MR_XPU_DESC"},
}
