// Package metrics exports the counters of endpoints to Prometheus.
//
// It is a separate package so that a program that imports only uet does not build the
// client library.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// A Collector collects the counters of the endpoints that were added to it. Endpoints with
// the same name are added up. The counts of removed endpoints stay, so a counter never
// decreases. Its methods may be called from any goroutine.
//
// A scrape holds each endpoint's lock while it copies the counters.
type Collector struct {
	mu    sync.Mutex
	live  map[*uet.Endpoint]string
	gone  map[string]*sum // by name
	conns map[Connections]string
	ended map[string]*uet.ConnStats // by name
}

// Connections has counters of connections. It is a *uet.PassiveEndpoint, for the
// connections that it accepted, or a *uet.Domain, for the connections that its endpoints
// requested.
type Connections interface{ ConnStats() uet.ConnStats }

var (
	_ Connections = (*uet.PassiveEndpoint)(nil)
	_ Connections = (*uet.Domain)(nil)
)

var _ prometheus.Collector = (*Collector)(nil)

// A sum adds up the counters of endpoints with one name.
type sum struct {
	counters [numCounters]uint64
	drops    map[string]uint64
}

// New makes a Collector. Register it with a prometheus.Registerer.
func New() *Collector {
	return &Collector{
		live: map[*uet.Endpoint]string{}, gone: map[string]*sum{}, conns: map[Connections]string{}, ended: map[string]*uet.ConnStats{},
	}
}

// Add adds an endpoint under a name, which becomes the label "endpoint". Use few names,
// such as "control" and "data", rather than one per address.
func (c *Collector) Add(ep *uet.Endpoint, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[ep] = name
}

// Remove removes an endpoint and keeps its counts. The endpoint may be closed already.
// Remove does nothing if the endpoint was not added.
func (c *Collector) Remove(ep *uet.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, ok := c.live[ep]
	if !ok {
		return
	}
	delete(c.live, ep)
	s := c.gone[name]
	if s == nil {
		s = newSum()
		c.gone[name] = s
	}
	s.add(ep)
}

// AddConns adds the counters of connections under a name, which becomes the label
// "endpoint" here, too.
func (c *Collector) AddConns(x Connections, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[x] = name
}

// RemoveConns removes connections and keeps their counts. Call it before closing a domain.
// It does nothing if the connections were not added.
func (c *Collector) RemoveConns(x Connections) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, ok := c.conns[x]
	if !ok {
		return
	}
	delete(c.conns, x)
	s := c.ended[name]
	if s == nil {
		s = &uet.ConnStats{}
		c.ended[name] = s
	}
	addConns(s, x.ConnStats())
	s.Open, s.Waiting = 0, 0
}

func addConns(s *uet.ConnStats, o uet.ConnStats) {
	s.Open += o.Open
	s.Waiting += o.Waiting
	s.Opened += o.Opened
	s.Begun += o.Begun
	s.Refused += o.Refused
	s.Untrusted += o.Untrusted
	s.Mismatched += o.Mismatched
	s.Wrong += o.Wrong
	s.NoRoom += o.NoRoom
}

func newSum() *sum { return &sum{drops: map[string]uint64{}} }

// add adds the counters of an endpoint and returns its open PDCs.
func (s *sum) add(ep *uet.Endpoint) (pdcs uint64) {
	st := ep.Stats()
	for i := range counters {
		s.counters[i] += counters[i].get(&st)
	}
	for i, n := range st.Drops {
		s.drops[transport.DropReason(i).String()] += n
	}
	s.drops["kernel"] += st.Socket.KernelDrops
	return st.PDCOpened + st.PDCAccepted - st.PDCClosed
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("uet_"+name, help, append([]string{"endpoint"}, labels...), nil)
}

var (
	endpoints = desc("endpoints", "Endpoints that are open.")
	pdcs      = desc("pdcs", "Packet delivery contexts that exist.")
	drops     = desc("dropped_datagrams_total", "Received datagrams that were thrown away.", "reason")

	packets    = desc("datagrams_total", "Datagrams of all kinds.", "direction")
	octets     = desc("datagram_bytes_total", "Bytes of UDP payload.", "direction")
	messages   = desc("messages_total", "Messages that completed.", "direction")
	operations = desc("operations_total", "Messages, writes, reads and atomic operations sent that completed, by delivery mode.", "mode")
	payload    = desc("message_bytes_total", "Bytes of messages that completed.", "direction")
	acks       = desc("acks_total", "ACKs.", "direction")
	resends    = desc("retransmissions_total", "Packets that were sent again.", "cause")
	spurious   = desc("spurious_retransmissions_total", "Packets that were sent again though they had arrived.")
	dups       = desc("duplicates_total", "Packets that came more than once.")
	ooo        = desc("out_of_order_total", "Packets that came out of order.")
	marks      = desc("congestion_marks_total", "Packets that came with the ECN mark CE.")
	failures   = desc("pdc_errors_total", "Packet delivery contexts that ended in error.")
	nacks      = desc("nacks_total", "NACKs.", "direction")
	credits    = desc("credits_total", "Grants of receiver credit: made here, used, below an earlier one, above what was asked for; and packets sent without.", "what")
	creditWait = desc("credit_wait_seconds_total", "How long packets waited for receiver credit, to whichever peer.")
	early      = desc("unexpected_messages_total", "Messages that came before a receive for them.")
)

const numCounters = 32

// counters are all counters except the drops.
var counters = [numCounters]struct {
	desc  *prometheus.Desc
	label string // value of the second label; "" means none
	get   func(*uet.Stats) uint64
	unit  float64 // what 1 of the value exported is in the counter; 0 means 1
}{
	{desc: packets, label: "tx", get: func(s *uet.Stats) uint64 { return s.TxPackets }},
	{desc: packets, label: "rx", get: func(s *uet.Stats) uint64 { return s.RxPackets }},
	{desc: octets, label: "tx", get: func(s *uet.Stats) uint64 { return s.TxBytes }},
	{desc: octets, label: "rx", get: func(s *uet.Stats) uint64 { return s.RxBytes }},
	{desc: messages, label: "tx", get: func(s *uet.Stats) uint64 { return s.MsgsTx }},
	{desc: messages, label: "rx", get: func(s *uet.Stats) uint64 { return s.MsgsRx }},
	{desc: operations, label: "rud", get: func(s *uet.Stats) uint64 { return s.Ops(wire.RUD) }},
	{desc: operations, label: "rod", get: func(s *uet.Stats) uint64 { return s.Ops(wire.ROD) }},
	{desc: operations, label: "rudi", get: func(s *uet.Stats) uint64 { return s.Ops(wire.RUDI) }},
	{desc: operations, label: "uud", get: func(s *uet.Stats) uint64 { return s.Ops(wire.UUD) }},
	{desc: payload, label: "tx", get: func(s *uet.Stats) uint64 { return s.BytesTx }},
	{desc: payload, label: "rx", get: func(s *uet.Stats) uint64 { return s.BytesRx }},
	{desc: acks, label: "tx", get: func(s *uet.Stats) uint64 { return s.AcksTx }},
	{desc: acks, label: "rx", get: func(s *uet.Stats) uint64 { return s.AcksRx }},
	{desc: resends, label: "rto", get: func(s *uet.Stats) uint64 { return s.RtxRTO }},
	{desc: resends, label: "sack", get: func(s *uet.Stats) uint64 { return s.RtxSACK }},
	{desc: resends, label: "nack", get: func(s *uet.Stats) uint64 { return s.RtxNack }},
	{desc: resends, label: "probe", get: func(s *uet.Stats) uint64 { return s.RtxProbe }},
	{desc: spurious, get: func(s *uet.Stats) uint64 { return s.RtxSpurious }},
	{desc: dups, get: func(s *uet.Stats) uint64 { return s.RxDup }},
	{desc: ooo, get: func(s *uet.Stats) uint64 { return s.RxOOO }},
	{desc: marks, get: func(s *uet.Stats) uint64 { return s.RxCE }},
	{desc: nacks, label: "tx", get: func(s *uet.Stats) uint64 { return total(&s.NacksTx) }},
	{desc: nacks, label: "rx", get: func(s *uet.Stats) uint64 { return total(&s.NacksRx) }},
	{desc: failures, get: func(s *uet.Stats) uint64 { return s.PDCErrors }},
	{desc: credits, label: "granted", get: func(s *uet.Stats) uint64 { return s.CreditsGranted }},
	{desc: credits, label: "used", get: func(s *uet.Stats) uint64 { return s.CreditsUsed }},
	{desc: credits, label: "old", get: func(s *uet.Stats) uint64 { return s.CreditsOld }},
	{desc: credits, label: "excess", get: func(s *uet.Stats) uint64 { return s.CreditsExcess }},
	{desc: credits, label: "without", get: func(s *uet.Stats) uint64 { return s.CreditPersists }},
	{desc: creditWait, get: func(s *uet.Stats) uint64 { return uint64(s.CreditWaited) }, unit: 1e9},
	{desc: early, get: func(s *uet.Stats) uint64 { return s.Unexpected }},
}

func total(by *[256]uint64) (n uint64) {
	for _, v := range by {
		n += v
	}
	return n
}

// gauges describe the present state.
var gauges = []struct {
	desc *prometheus.Desc
	get  func(*load) float64
}{
	{desc("posted_sends", "Sends that have not ended."), func(l *load) float64 { return float64(l.Sends) }},
	{desc("posted_receives", "Receives that have not ended."), func(l *load) float64 { return float64(l.Recvs) }},
	{desc("queued_messages", "Messages of which not all packets have left."), func(l *load) float64 { return float64(l.Queued) }},
	{desc("unexpected_waiting", "Messages that no receive has matched."), func(l *load) float64 { return float64(l.Unexpected) }},
	{desc("unexpected_waiting_bytes", "Memory that they take."), func(l *load) float64 { return float64(l.UnexpectedBytes) }},
	{desc("unread_completions", "Entries of completion queues that nobody has read."), func(l *load) float64 { return float64(l.Unread) }},
	{desc("completion_queue_entries", "Entries that the completion queues have room for."), func(l *load) float64 { return float64(l.Room) }},
	{desc("peers", "Peers to which there is a congestion window."), func(l *load) float64 { return float64(l.Peers) }},
	{desc("rtt_seconds", "Longest smoothed round trip time to a peer."), func(l *load) float64 { return l.RTT.Seconds() }},
	{desc("congestion_window_bytes", "Congestion windows of all peers together."), func(l *load) float64 { return float64(l.Window) }},
	{desc("in_flight_bytes", "Bytes in flight to all peers together."), func(l *load) float64 { return float64(l.InFlight) }},
}

// A load adds up the Load of endpoints with one name.
type load uet.Load

func (l *load) add(o uet.Load) {
	l.Sends += o.Sends
	l.Recvs += o.Recvs
	l.Queued += o.Queued
	l.Unexpected += o.Unexpected
	l.UnexpectedBytes += o.UnexpectedBytes
	l.Unread += o.Unread
	l.Room += o.Room
	l.Peers += o.Peers
	l.RTT = max(l.RTT, o.RTT)
	l.Window += o.Window
	l.InFlight += o.InFlight
}

var (
	connections = desc("connections", "Connections that are open.")
	requests    = desc("connection_requests_waiting", "Requests for connections that wait for an answer.")
	opened      = desc("connections_total", "Connections that were opened.")
	handshakes  = desc("handshakes_total", "Handshakes that others began.")
	refusals    = desc("connections_refused_total", "Handshakes and requests of others that were refused.", "reason")
)

// refused has the counter of each reason.
var refused = []struct {
	reason string
	get    func(*uet.ConnStats) uint64
}{
	{"busy", func(s *uet.ConnStats) uint64 { return s.Refused }},
	{"untrusted", func(s *uet.ConnStats) uint64 { return s.Untrusted }},
	{"mismatched", func(s *uet.ConnStats) uint64 { return s.Mismatched }},
	{"wrong", func(s *uet.ConnStats) uint64 { return s.Wrong }},
	{"no_room", func(s *uet.ConnStats) uint64 { return s.NoRoom }},
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- endpoints
	ch <- pdcs
	ch <- drops
	for i := range counters {
		if i == 0 || counters[i].desc != counters[i-1].desc {
			ch <- counters[i].desc
		}
	}
	for i := range gauges {
		ch <- gauges[i].desc
	}
	for _, d := range []*prometheus.Desc{connections, requests, opened, handshakes, refusals} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	sums := map[string]*sum{}
	get := func(name string) *sum {
		s := sums[name]
		if s == nil {
			s = newSum()
			sums[name] = s
		}
		return s
	}
	for name, old := range c.gone {
		s := get(name)
		s.counters = old.counters
		for reason, n := range old.drops {
			s.drops[reason] = n
		}
	}
	eps, open, loads := map[string]int{}, map[string]uint64{}, map[string]*load{}
	for ep, name := range c.live {
		open[name] += get(name).add(ep)
		eps[name]++
		if loads[name] == nil {
			loads[name] = &load{}
		}
		loads[name].add(ep.Load())
	}
	conns := map[string]*uet.ConnStats{}
	for name, s := range c.ended {
		old := *s
		conns[name] = &old
	}
	for x, name := range c.conns {
		if conns[name] == nil {
			conns[name] = &uet.ConnStats{}
		}
		addConns(conns[name], x.ConnStats())
	}
	c.mu.Unlock()
	for name, s := range conns {
		for _, m := range []struct {
			desc *prometheus.Desc
			kind prometheus.ValueType
			v    float64
		}{
			{connections, prometheus.GaugeValue, float64(s.Open)}, {requests, prometheus.GaugeValue, float64(s.Waiting)},
			{opened, prometheus.CounterValue, float64(s.Opened)}, {handshakes, prometheus.CounterValue, float64(s.Begun)},
		} {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.v, name)
		}
		for _, r := range refused {
			ch <- prometheus.MustNewConstMetric(refusals, prometheus.CounterValue, float64(r.get(s)), name, r.reason)
		}
	}
	for name, s := range sums {
		ch <- prometheus.MustNewConstMetric(endpoints, prometheus.GaugeValue, float64(eps[name]), name)
		ch <- prometheus.MustNewConstMetric(pdcs, prometheus.GaugeValue, float64(open[name]), name)
		l := loads[name]
		if l == nil {
			l = &load{} // no endpoint with the name is left
		}
		for i := range gauges {
			ch <- prometheus.MustNewConstMetric(gauges[i].desc, prometheus.GaugeValue, gauges[i].get(l), name)
		}
		for reason, n := range s.drops {
			ch <- prometheus.MustNewConstMetric(drops, prometheus.CounterValue, float64(n), name, reason)
		}
		for i := range counters {
			labels := []string{name}
			if l := counters[i].label; l != "" {
				labels = append(labels, l)
			}
			v := float64(s.counters[i])
			if unit := counters[i].unit; unit != 0 {
				v /= unit
			}
			ch <- prometheus.MustNewConstMetric(counters[i].desc, prometheus.CounterValue, v, labels...)
		}
	}
}
