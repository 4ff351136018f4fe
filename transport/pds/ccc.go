package pds

import "time"

// A CCC is the congestion control context of one direction of traffic to one
// peer (UE 3.6.1). PDS asks it whether a packet may leave and tells it what
// became of each; several RUD PDCs to one peer share one CCC, a ROD PDC has its
// own. Sizes are nominal bytes: UDP length + 40 (UE 3.6.12). Nothing in a CCC
// may assume that ACKs arrive in order.
type CCC interface {
	// CanSend reports whether a packet of n nominal bytes may leave now.
	CanSend(n int) bool
	// OnSend counts a packet of n nominal bytes that leaves now, first time or
	// again. It reports whether the packet should ask for an immediate ACK because
	// the window is (nearly) closed (UE 3.6.13).
	OnSend(now time.Duration, n int) (wantAR bool)
	// OnAck tells of an ACK, also of one that reports nothing new. newly is the
	// nominal bytes of packets that this ACK reports for the first time as
	// arrived (by CACK, SACK or by name). rtt is the sample of the packet the
	// ACK names, service time taken off; zero or less when there is no valid
	// sample (UE 3.5.20.3: retransmitted packets). ce is the M flag: the packet
	// arrived with congestion marked. pend and restore are rcv_cwnd_pend and rc
	// of ACK_CC (destination flow control, UE 3.6.13); zero and false when the
	// ACK has no such field.
	OnAck(now time.Duration, newly int, rtt time.Duration, ce bool, pend uint8, restore bool)
	// OnLoss tells that n nominal bytes in flight are taken for lost; rto says
	// that a timer, not a SACK gap or NACK, found out.
	OnLoss(now time.Duration, n int, rto bool)
	// OnSpurious tells that a packet was sent again by a timer in vain: what OnLoss said
	// a timer had found, if it did, was late and not lost.
	OnSpurious()
	// OnNack tells that a packet of n nominal bytes was refused (not lost in
	// the network); trimmed says that a switch cut it for want of room.
	OnNack(now time.Duration, n int, trimmed bool)
	// OnGone takes n nominal bytes out of flight without judgement (the PDC
	// was closed).
	OnGone(n int)
	// SRTT is the smoothed round trip time, 0 before the first sample.
	SRTT() time.Duration
	// RTO is the retransmission timeout without back-off: never below the
	// configured initial value.
	RTO() time.Duration
	// Window is the congestion window in nominal bytes; InFlight what counts
	// against it.
	Window() int
	InFlight() int
}
