package fi

// An Opt is an endpoint option (fi_endpoint(3), fi_setopt, level
// FI_OPT_ENDPOINT).
type Opt int

// The options. Those without a unit are about what uetkit does not have.
const (
	OptMinMultiRecv          Opt = iota // bytes: a multi-receive buffer with less room is released
	OptCMDataSize                       // bytes: most private data of connection management
	OptBufferedMin                      // buffered receives
	OptBufferedLimit                    // buffered receives
	OptSendBufSize                      // bytes: send buffer of the socket
	OptRecvBufSize                      // bytes: receive buffer of the socket
	OptTxSize                           // operations: sends outstanding
	OptRxSize                           // operations: receives outstanding
	OptHMEMP2P                          // memory of devices
	OptXPUTrigger                       // other processors
	OptCUDAAPIPermitted                 // memory of devices
	OptSharedMemoryPermitted            // shared memory between processes
	OptMaxMsgSize                       // bytes: longest untagged message
	OptMaxTaggedSize                    // bytes: longest tagged message
	OptMaxRMASize                       // RMA
	OptMaxAtomicSize                    // atomics
	OptInjectMsgSize                    // bytes: longest injected untagged message
	OptInjectTaggedSize                 // bytes: longest injected tagged message
	OptInjectRMASize                    // RMA
	OptInjectAtomicSize                 // atomics
)

// A TClass is a traffic class (fi_endpoint(3), tclass): 0 for not said, TCDSCP
// of a code point, or one of the labels.
type TClass uint32

// The traffic classes with a label.
const (
	TCUnspec          TClass = 0
	TCBestEffort      TClass = 0x200
	TCLowLatency      TClass = 0x201
	TCDedicatedAccess TClass = 0x202
	TCBulkData        TClass = 0x203
	TCScavenger       TClass = 0x204
	TCNetworkCtrl     TClass = 0x205

	tcDSCP TClass = 0x100
)

// TCDSCP is the traffic class of a differentiated services code point, 0 to 63
// (fi_tc_dscp_set).
func TCDSCP(dscp uint8) TClass { return tcDSCP | TClass(dscp) }

// DSCP is the code point of packets of a class (fi_tc_dscp_get). The labels take
// what RFC 4594 and RFC 8622 give the service they resemble: low latency EF,
// dedicated access AF41, bulk data AF11, scavenger LE, network control CS6. ok
// is false for no class.
func (c TClass) DSCP() (dscp uint8, ok bool) {
	switch c {
	case TCUnspec, TCBestEffort:
		return 0, true
	case TCLowLatency:
		return 46, true
	case TCDedicatedAccess:
		return 34, true
	case TCBulkData:
		return 10, true
	case TCScavenger:
		return 1, true
	case TCNetworkCtrl:
		return 48, true
	}
	if c&^0x3f == tcDSCP {
		return uint8(c & 0x3f), true
	}
	return 0, false
}
