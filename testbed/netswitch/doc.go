// Package netswitch is the software Ultra Ethernet switch on Linux. It connects the
// forwarding core of testbed/fabric to packet sockets, one per port.
//
// Each port is an interface of the namespace or container that the switch runs in. Hosts
// use the switch's address there as their gateway. The kernel answers their ARP requests.
// The switch receives every IP packet that is sent to its Ethernet address and not to its
// own IP address. It learns where hosts are from the packets they send, and sends ARP
// requests for others. The kernel must not forward as well, so Open sets ip_forward to 0 or
// fails.
//
// One goroutine on a thread of its own forwards; the core has no lock. Packets come in
// through a ring that the kernel fills in the sender's time, and leave in batches of one
// system call. The thread sleeps while nothing arrives and nothing is due. A timer of a
// virtual machine is tens of microseconds late, so it is set earlier by as much as it was
// late before, and the thread spins for the rest. If hosts keep the machine busy, the
// thread needs real-time priority to be in time (CAP_SYS_NICE), and uses it if permitted.
// Other goroutines that read or change something (HTTP, samples) pass a function to the
// forwarding goroutine. Decisions for the log go to a writer through a bounded list; those
// that find it full are counted.
//
// A switch that is too slow would falsify a test. Health counts the packets that the switch
// itself lost and reports how late packets left. Calibrate measures in two seconds how much
// it can forward on this machine; the testbed prints the result into each report. Bench
// measures the same more accurately.
//
// The HTTP interface:
//
//	GET  /healthz  200 when it forwards
//	GET  /stats    Stats
//	GET  /series   a list of result.Sample, one each 100 ms since the timeline's zero
//	GET  /config   Config, with the interfaces that were chosen
//	GET  /metrics  for Prometheus
//	POST /start    makes now the timeline's zero, if no UET packet has done so
//	POST /events   one fabric.Event, carried out now; 400 and a line with the reason
package netswitch
