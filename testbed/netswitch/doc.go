// Package netswitch is the software Ultra Ethernet switch on Linux: the forwarding
// core of testbed/fabric between packet sockets, one per port.
//
// Each port is an interface of the namespace or container that the switch runs in.
// Hosts have the switch's address there as their gateway; the kernel answers their
// ARP, and the switch takes every IP packet that is sent to its Ethernet address and is
// not for an address of its own. It learns where hosts are from what they send,
// and asks for those it has not heard. The kernel must not forward as well, so
// Open sets ip_forward to 0 or refuses.
//
// One goroutine on a thread of its own forwards; the core has no lock. Packets come
// in through a ring that the kernel fills in the sender's time, and leave in batches
// of one system call. When nothing is there and nothing is due it sleeps. A timer of a virtual
// machine is tens of microseconds late, so it is set earlier by as much
// as it was late before, and the rest is waited for awake. On a machine that hosts keep
// busy the thread needs real-time priority to be in time (CAP_SYS_NICE), and takes it
// if it may. Others that have to read or change something (HTTP, samples) hand a
// function to that goroutine. Decisions for the log go to a writer through a bounded
// list; those that find it full are counted.
//
// A switch that is too slow would falsify a test through it. Health counts the packets
// that it lost itself and tells how late packets left. Calibrate measures in two seconds
// how much it can forward on this machine, which a testbed prints into each report;
// Bench measures the same with care.
//
// The HTTP interface:
//
//	GET  /healthz  200 when it forwards
//	GET  /stats    Stats
//	GET  /series   a list of result.Sample, one each 100 ms since the timeline's zero
//	GET  /config   Config, with the interfaces that were chosen
//	GET  /metrics  for Prometheus
//	POST /start    makes now the timeline's zero, if no UET packet has
//	POST /events   one fabric.Event, done now; 400 and a line with the reason
package netswitch
