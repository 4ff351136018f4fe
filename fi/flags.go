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

// The flag bits. Which of them a call takes, and which capabilities an endpoint may
// have, says the comment of the call and GetInfo of package uet; the others are named
// so that programs can ask for them and are refused.
const (
	Msg          Flags = 1 << 1     // capability: untagged messages
	RMA          Flags = 1 << 2     // capability: remote memory access
	Tagged       Flags = 1 << 3     // capability: tagged messages; completion: of one
	Atomic       Flags = 1 << 4     // capability: atomic operations
	Multicast    Flags = 1 << 5     // capability: multicast
	Collective   Flags = 1 << 6     // capability: collective operations
	Read         Flags = 1 << 8     // starts RMA reads; on eq.Attr and av.Attr: read-only, or shared
	Write        Flags = 1 << 9     // starts RMA writes; on eq.Attr: the application may Write
	Recv         Flags = 1 << 10    // may receive; BindCQ, BindCntr: of receives; completion: of one
	Send         Flags = 1 << 11    // may send; completion: of a send
	Transmit           = Send       // BindCQ, BindCntr: of sends
	RemoteRead   Flags = 1 << 12    // is the target of RMA reads
	RemoteWrite  Flags = 1 << 13    // is the target of RMA writes
	MultiRecv    Flags = 1 << 16    // a receive takes several messages; completion: its buffer is released
	RemoteCQData Flags = 1 << 17    // a send carries 64 bits for the completion of the receive; completion: it does
	More         Flags = 1 << 18    // more calls follow at once: it may wait for them
	Peek         Flags = 1 << 19    // look for a message, or read an event, and leave it there
	Trigger      Flags = 1 << 20    // triggered operations
	Fence        Flags = 1 << 21    // wait for the operations before it to the same peer
	Completion   Flags = 1 << 24    // write a completion on an endpoint that is bound with SelectiveCompletion
	Event              = Completion // av.Attr: insert asynchronously
	Inject       Flags = 1 << 25    // the buffer may be used again when the call returns

	InjectComplete   Flags = 1 << 26 // complete when the buffer may be used again
	TransmitComplete Flags = 1 << 27 // complete when the peer's transport has the message
	DeliveryComplete Flags = 1 << 28 // complete when the data is visible at the target
	Affinity         Flags = 1 << 29 // Attr.SignalingVector is set; a hint
	CommitComplete   Flags = 1 << 30 // complete when the data is persistent
	MatchComplete    Flags = 1 << 31 // complete when the message met its receive

	AVUserID           Flags = 1 << 41      // the application gives the number that a source is reported as
	FirewallAddr       Flags = 1 << 42      // the address is behind a firewall
	Peer               Flags = 1 << 43      // peer providers
	XPU                Flags = 1 << 44      // triggered by other processors
	TaggedDirectedRecv Flags = 1 << 45      // capability: tagged receives may name a source
	TaggedMultiRecv    Flags = 1 << 46      // capability: tagged multi-receive
	HMEM               Flags = 1 << 47      // capability: memory of devices
	ExactDirectedRecv  Flags = 1 << 48      // directed receives name exactly one source
	RMAPmem            Flags = 1 << 49      // capability: RMA to persistent memory
	FetchAtomic        Flags = 1 << 58      // query: atomic operations that return the old values
	CompareAtomic      Flags = 1 << 59      // query: atomic operations that compare
	SourceErr          Flags = 1 << 50      // capability: errors tell the address of an unknown source
	LocalComm          Flags = 1 << 51      // capability: peers on the same host
	RemoteComm         Flags = 1 << 52      // capability: peers on other hosts
	SharedAV           Flags = 1 << 53      // capability: address vectors shared by processes
	RMAEvent           Flags = 1 << 56      // capability: events of RMA at the target
	Source             Flags = 1 << 57      // capability: completions tell the source
	AuthKey                  = Source       // on calls: an authorization key
	NamedRxCtx         Flags = 1 << 58      // capability: receive contexts that can be addressed
	Discard                  = NamedRxCtx   // on tagged calls: drop the message that was claimed or peeked
	DirectedRecv       Flags = 1 << 59      // capability: receives may name a source
	Claim                    = DirectedRecv // on tagged calls: reserve the peeked message, or receive the reserved one

	// SelectiveCompletion goes with Transmit or Recv to Endpoint.BindCQ only: operations
	// write a completion only if they have Completion, errors always.
	SelectiveCompletion Flags = 1 << 59
	// SyncErr goes to the insertion of addresses only: each has an error of its own.
	SyncErr Flags = 1 << 58
	// MRSingleUse goes to the registration of memory only: the key is good for one operation.
	MRSingleUse Flags = 1 << 41
	// Symmetric goes to opening an address vector only: all processes insert
	// the same addresses in the same order.
	Symmetric Flags = 1 << 59

	ProvAttrOnly Flags = 1 << 54 // to GetInfo only: list providers, look at no interface
	NumericHost  Flags = 1 << 55 // to GetInfo only: the node is an IP address, no name
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

// String names the bits as fi_tostr(3) does, without the prefix. If a bit
// means something else to one call or object, String gives the common name.
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

// The ordering bits. XAY: an X is not done before a Y that was posted earlier, to one
// peer; R is a read, W a write, S a send.
const (
	OrderRAR       Order = 1 << 0  // reads after reads
	OrderRAW       Order = 1 << 1  // reads after writes
	OrderRAS       Order = 1 << 2  // reads after sends
	OrderWAR       Order = 1 << 3  // writes after reads
	OrderWAW       Order = 1 << 4  // writes after writes
	OrderWAS       Order = 1 << 5  // writes after sends
	OrderSAR       Order = 1 << 6  // sends after reads
	OrderSAW       Order = 1 << 7  // sends after writes
	OrderSAS       Order = 1 << 8  // sends after sends
	OrderRMARAR    Order = 1 << 32 // as OrderRAR, of RMA only
	OrderRMARAW    Order = 1 << 33
	OrderRMAWAR    Order = 1 << 34
	OrderRMAWAW    Order = 1 << 35
	OrderAtomicRAR Order = 1 << 36 // as OrderRAR, of atomics only
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
	ModeContext2  Mode = 1 << 52 // contexts are struct fi_context2
	ModeRxCQData  Mode = 1 << 56 // receives get buffers for remote CQ data
	ModeAsyncIov  Mode = 1 << 57 // vectors stay valid until completion
	ModeMsgPrefix Mode = 1 << 58 // buffers have room in front
	ModeContext   Mode = 1 << 59 // contexts are struct fi_context
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
	MRLocal      MRMode = 1 << 2  // local buffers must be registered
	MRRaw        MRMode = 1 << 3  // keys are longer than 64 bits
	MRVirtAddr   MRMode = 1 << 4  // the target is named by virtual address
	MRAllocated  MRMode = 1 << 5  // memory must be there before it is registered
	MRProvKey    MRMode = 1 << 6  // the provider chooses keys
	MRMMUNotify  MRMode = 1 << 7  // the application tells of changed mappings
	MRRMAEvent   MRMode = 1 << 8  // regions must ask for RMA events
	MREndpoint   MRMode = 1 << 9  // regions are bound to endpoints
	MRHMEM       MRMode = 1 << 10 // memory of devices must be registered
	MRCollective MRMode = 1 << 11 // of collectives, too
	MRXPUDesc    MRMode = 1 << 12 // descriptors for other processors
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
