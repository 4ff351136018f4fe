// Package metrics shows the counters of endpoints to Prometheus.
//
// It is a package of its own so that a program that imports uet alone does not
// build the client library.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet"
)

// A Collector collects the counters of the endpoints that were added to it.
// Endpoints of one name are shown as one, and what they counted stays when they
// are removed: a counter never goes back. Its methods may be called from any
// goroutine.
//
// A scrape takes each endpoint's lock for the time of a copy.
type Collector struct {
	mu   sync.Mutex
	live map[*uet.Endpoint]string
	gone map[string]*sum // by name
}

var _ prometheus.Collector = (*Collector)(nil)

// A sum is what endpoints of one name counted.
type sum struct {
	counters [numCounters]uint64
	drops    map[string]uint64
}

// New makes a Collector. Register it with a prometheus.Registerer.
func New() *Collector {
	return &Collector{live: map[*uet.Endpoint]string{}, gone: map[string]*sum{}}
}

// Add shows an endpoint under a name, the label "endpoint". Names are few:
// "control" and "data", not an address each.
func (c *Collector) Add(ep *uet.Endpoint, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[ep] = name
}

// Remove forgets an endpoint and keeps what it has counted. It may be closed
// already. It does nothing to one that is not there.
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

	packets  = desc("datagrams_total", "Datagrams of all kinds.", "direction")
	octets   = desc("datagram_bytes_total", "Bytes of UDP payload.", "direction")
	messages = desc("messages_total", "Messages that completed.", "direction")
	payload  = desc("message_bytes_total", "Bytes of messages that completed.", "direction")
	acks     = desc("acks_total", "ACKs.", "direction")
	resends  = desc("retransmissions_total", "Packets that were sent again.", "cause")
	spurious = desc("spurious_retransmissions_total", "Packets that were sent again though they had arrived.")
	dups     = desc("duplicates_total", "Packets that came more than once.")
	ooo      = desc("out_of_order_total", "Packets that came out of order.")
	marks    = desc("congestion_marks_total", "Packets that came with the ECN mark CE.")
	failures = desc("pdc_errors_total", "Packet delivery contexts that ended in error.")
	early    = desc("unexpected_messages_total", "Messages that came before a receive for them.")
)

const numCounters = 20

// counters are all but the drops.
var counters = [numCounters]struct {
	desc  *prometheus.Desc
	label string // the second one; "": there is none
	get   func(*uet.Stats) uint64
}{
	{packets, "tx", func(s *uet.Stats) uint64 { return s.TxPackets }},
	{packets, "rx", func(s *uet.Stats) uint64 { return s.RxPackets }},
	{octets, "tx", func(s *uet.Stats) uint64 { return s.TxBytes }},
	{octets, "rx", func(s *uet.Stats) uint64 { return s.RxBytes }},
	{messages, "tx", func(s *uet.Stats) uint64 { return s.MsgsTx }},
	{messages, "rx", func(s *uet.Stats) uint64 { return s.MsgsRx }},
	{payload, "tx", func(s *uet.Stats) uint64 { return s.BytesTx }},
	{payload, "rx", func(s *uet.Stats) uint64 { return s.BytesRx }},
	{acks, "tx", func(s *uet.Stats) uint64 { return s.AcksTx }},
	{acks, "rx", func(s *uet.Stats) uint64 { return s.AcksRx }},
	{resends, "rto", func(s *uet.Stats) uint64 { return s.RtxRTO }},
	{resends, "sack", func(s *uet.Stats) uint64 { return s.RtxSACK }},
	{resends, "nack", func(s *uet.Stats) uint64 { return s.RtxNack }},
	{resends, "probe", func(s *uet.Stats) uint64 { return s.RtxProbe }},
	{spurious, "", func(s *uet.Stats) uint64 { return s.RtxSpurious }},
	{dups, "", func(s *uet.Stats) uint64 { return s.RxDup }},
	{ooo, "", func(s *uet.Stats) uint64 { return s.RxOOO }},
	{marks, "", func(s *uet.Stats) uint64 { return s.RxCE }},
	{failures, "", func(s *uet.Stats) uint64 { return s.PDCErrors }},
	{early, "", func(s *uet.Stats) uint64 { return s.Unexpected }},
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
	eps, open := map[string]int{}, map[string]uint64{}
	for ep, name := range c.live {
		open[name] += get(name).add(ep)
		eps[name]++
	}
	c.mu.Unlock()
	for name, s := range sums {
		ch <- prometheus.MustNewConstMetric(endpoints, prometheus.GaugeValue, float64(eps[name]), name)
		ch <- prometheus.MustNewConstMetric(pdcs, prometheus.GaugeValue, float64(open[name]), name)
		for reason, n := range s.drops {
			ch <- prometheus.MustNewConstMetric(drops, prometheus.CounterValue, float64(n), name, reason)
		}
		for i := range counters {
			labels := []string{name}
			if l := counters[i].label; l != "" {
				labels = append(labels, l)
			}
			ch <- prometheus.MustNewConstMetric(counters[i].desc, prometheus.CounterValue, float64(s.counters[i]), labels...)
		}
	}
}
