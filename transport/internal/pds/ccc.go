package pds

import "time"

// A CCC is the congestion control context of one direction of traffic to one peer (UE
// 3.6.1). PDS asks it whether a packet may leave and tells it what became of each packet.
// All RUD PDCs to one peer share one CCC; a ROD PDC has its own. Sizes are nominal bytes:
// UDP length + 40 (UE 3.6.12). A CCC must not assume that ACKs arrive in order.
type CCC interface {
	// CanSend reports whether a packet of n nominal bytes may leave now.
	CanSend(n int) bool
	// OnSend counts a packet of n nominal bytes that leaves now, for the first time or
	// again. It reports whether the packet should ask for an immediate ACK because the
	// window is (nearly) closed (UE 3.6.13).
	OnSend(now time.Duration, n int) (wantAR bool)
	// OnAck tells of every ACK, even of one that reports nothing new. newly is the nominal
	// bytes of packets that this ACK is the first to report as arrived (by CACK, SACK or by
	// name). rtt is the round trip of the packet that the ACK names, less the service time;
	// zero or less without a valid sample (UE 3.5.20.3: retransmitted packets). ce is the M
	// flag: the packet arrived with a congestion mark. pend and restore are rcv_cwnd_pend
	// and rc of ACK_CC (destination flow control, UE 3.6.13); zero and false if the ACK has
	// no such field.
	OnAck(now time.Duration, newly int, rtt time.Duration, ce bool, pend uint8, restore bool)
	// OnTaken tells, before OnAck, that others take the processor of this side for milliseconds.
	OnTaken()
	// OnLoss tells that n nominal bytes in flight are taken for lost. rto says that a timer
	// found the loss, not a SACK gap or NACK.
	OnLoss(now time.Duration, n int, rto bool)
	// OnSpurious tells that a timer resent a packet needlessly: the packet or its ACK was
	// late, not lost.
	OnSpurious()
	// OnNack tells that a packet of n nominal bytes was refused, not lost in the network.
	// trimmed says that a switch cut it for lack of room.
	OnNack(now time.Duration, n int, trimmed bool)
	// OnGone takes n nominal bytes out of flight and draws no conclusion about the path.
	OnGone(n int)
	// SRTT is the smoothed round trip time, 0 before the first sample.
	SRTT() time.Duration
	// RTO is the retransmission timeout without back-off. It is never below the configured
	// initial value.
	RTO() time.Duration
	// Window is the congestion window, InFlight the part of it in use, in nominal bytes.
	Window() int
	InFlight() int
}

// Unequal is what a CCC has beyond a CCC if it heeds that paths differ.
type Unequal interface {
	// OnPassed tells, after OnAck, that packets of n nominal bytes arrived that a switch had trimmed before the
	// last hop, and that were sent once more. The ACK has a round trip, rtt, and no congestion mark.
	OnPassed(n int, rtt time.Duration)
}
