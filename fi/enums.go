package fi

import "strconv"

// An Addr names a peer: an index of an address vector (fi_addr_t).
type Addr uint64

// Special addresses.
const (
	AddrUnspec   Addr = ^Addr(0) // any source, or no address
	AddrNotAvail Addr = ^Addr(0) // the source is not known
)

// EpType is an endpoint type (fi_endpoint(3)).
type EpType uint8

// The endpoint types.
const (
	EpUnspec EpType = iota // any
	EpMsg                  // connected to one peer
	EpDgram                // unreliable datagrams
	EpRDM                  // reliable, without connections
)

func (t EpType) String() string {
	return nameOf(t, "FI_EP_UNSPEC", "FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM")
}

// AVType is an address vector type (fi_av(3)).
type AVType uint8

// The address vector types.
const (
	AVUnspec AVType = iota // the provider chooses
	AVMap                  // handles of any value
	AVTable                // handles are indices, from 0 on
)

func (t AVType) String() string { return nameOf(t, "FI_AV_UNSPEC", "FI_AV_MAP", "FI_AV_TABLE") }

// Progress is a progress model (fi_domain(3)).
type Progress uint8

// The progress models.
const (
	ProgressUnspec         Progress = iota // the provider chooses
	ProgressAuto                           // without calls of the application
	ProgressManual                         // only in calls of the application
	ProgressControlUnified                 // manual, and one call drives control and data
)

func (p Progress) String() string {
	return nameOf(p, "FI_PROGRESS_UNSPEC", "FI_PROGRESS_AUTO", "FI_PROGRESS_MANUAL", "FI_PROGRESS_CONTROL_UNIFIED")
}

// Threading is a threading model (fi_domain(3)).
type Threading uint8

// The threading models.
const (
	ThreadUnspec     Threading = iota // the provider chooses
	ThreadSafe                        // any call from any thread
	ThreadFid                         // one thread at a time per object
	ThreadDomain                      // one thread at a time per domain
	ThreadCompletion                  // one thread at a time per completion queue
	ThreadEndpoint                    // one thread at a time per endpoint
)

func (t Threading) String() string {
	return nameOf(t, "FI_THREAD_UNSPEC", "FI_THREAD_SAFE", "FI_THREAD_FID", "FI_THREAD_DOMAIN", "FI_THREAD_COMPLETION", "FI_THREAD_ENDPOINT")
}

// ResourceMgmt says whether queues are guarded against overrun (fi_domain(3)).
type ResourceMgmt uint8

// The resource management models.
const (
	RMUnspec   ResourceMgmt = iota // the provider chooses
	RMDisabled                     // the application keeps queues from overrunning
	RMEnabled                      // the provider does
)

func (r ResourceMgmt) String() string {
	return nameOf(r, "FI_RM_UNSPEC", "FI_RM_DISABLED", "FI_RM_ENABLED")
}

// AddrFormat is the form of addresses as bytes (fi_getinfo(3)).
type AddrFormat uint32

// The address formats in use.
const (
	FormatUnspec    AddrFormat = 0  // the provider's own
	FormatSockaddr  AddrFormat = 1  // FI_SOCKADDR: any socket address
	FormatSockaddr4 AddrFormat = 2  // FI_SOCKADDR_IN
	FormatSockaddr6 AddrFormat = 3  // FI_SOCKADDR_IN6
	FormatStr       AddrFormat = 9  // FI_ADDR_STR
	FormatSockaddrs AddrFormat = 17 // FI_SOCKADDR_IP: either of IN and IN6
)

// Known reports whether f is one of these.
func (f AddrFormat) Known() bool { return f == FormatUnspec || f.String() != FormatUnspec.String() }

func (f AddrFormat) String() string {
	switch f {
	case FormatSockaddr:
		return "FI_SOCKADDR"
	case FormatSockaddr4:
		return "FI_SOCKADDR_IN"
	case FormatSockaddr6:
		return "FI_SOCKADDR_IN6"
	case FormatStr:
		return "FI_ADDR_STR"
	case FormatSockaddrs:
		return "FI_SOCKADDR_IP"
	}
	return "FI_FORMAT_UNSPEC"
}

// WaitObj is how a blocking call waits (fi_cq(3), fi_eq(3)).
type WaitObj uint8

// The wait objects.
const (
	WaitNone      WaitObj = iota // blocking calls are refused
	WaitUnspec                   // only by blocking calls
	WaitSet                      // by the wait set that it joins
	WaitFD                       // by a file descriptor as well
	WaitMutexCond                // by a channel as well (libfabric: a mutex and a condition variable)
	WaitYield                    // by yielding the processor
	WaitPollFD                   // by a list of descriptors to poll
)

func (w WaitObj) String() string {
	return nameOf(w, "FI_WAIT_NONE", "FI_WAIT_UNSPEC", "FI_WAIT_SET", "FI_WAIT_FD", "FI_WAIT_MUTEX_COND", "FI_WAIT_YIELD", "FI_WAIT_POLLFD")
}

// WaitCond is when a wait object of a CQ is signalled (fi_cq(3)).
type WaitCond uint8

// The wait conditions.
const (
	CondNone      WaitCond = iota // at each entry
	CondThreshold                 // when as many entries are there as the call says
)

func (c WaitCond) String() string { return nameOf(c, "FI_CQ_COND_NONE", "FI_CQ_COND_THRESHOLD") }

// CntrEvents is what a counter counts (fi_cntr(3)).
type CntrEvents uint8

// What counters count: completions, or the bytes of the users in them.
const (
	CntrComp  CntrEvents = iota // completions
	CntrBytes                   // their bytes
)

func (e CntrEvents) String() string {
	return nameOf(e, "FI_CNTR_EVENTS_COMP", "FI_CNTR_EVENTS_BYTES")
}

// CQFormat selects the fields of a completion entry (fi_cq(3)).
type CQFormat uint8

// The completion entry formats.
const (
	CQUnspec  CQFormat = iota // the provider chooses
	CQContext                 // the context
	CQMsg                     // and flags and length
	CQData                    // and buffer and remote CQ data
	CQTagged                  // and the tag
)

func (f CQFormat) String() string {
	return nameOf(f, "FI_CQ_FORMAT_UNSPEC", "FI_CQ_FORMAT_CONTEXT", "FI_CQ_FORMAT_MSG", "FI_CQ_FORMAT_DATA", "FI_CQ_FORMAT_TAGGED")
}

// EQEvent is the kind of an event (fi_eq(3)).
type EQEvent uint32

// The events.
const (
	Notify       EQEvent = iota // something about an object; its manual says what
	ConnReq                     // a peer asks for a connection
	Connected                   // a connection is established
	Shutdown                    // a connection ended
	MRComplete                  // a registration of memory is done
	AVComplete                  // an insertion of addresses is done
	JoinComplete                // a join of a multicast group is done
)

func (e EQEvent) String() string {
	return nameOf(e, "FI_NOTIFY", "FI_CONNREQ", "FI_CONNECTED", "FI_SHUTDOWN", "FI_MR_COMPLETE", "FI_AV_COMPLETE", "FI_JOIN_COMPLETE")
}

// Tag formats (fi_endpoint(3), mem_tag_format).
const (
	TagBits uint64 = 0 // all 64 bits are the user's
	TagMPI  uint64 = 1 // 32 bits of tag, 8 bits of payload identifier
	TagCCL  uint64 = 2 // exact match only
	// TagMaxFormat and above are bit patterns, no numbered formats.
	TagMaxFormat uint64 = 1 << 16
)

// KeyNotAvail is the key of a region that is not registered yet.
const KeyNotAvail = ^uint64(0)

func nameOf[T ~uint8 | ~uint32](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown (" + strconv.Itoa(int(v)) + ")"
}
