package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/uetkit/uetkit/uet/metrics"
)

// A metricsServer shows counters to Prometheus. A nil one serves nothing.
type metricsServer struct {
	listener  net.Listener
	http      *http.Server
	registry  *prometheus.Registry
	endpoints *metrics.Collector
	done      chan struct{}
}

// openMetrics listens on the address.
func openMetrics(addr string) (*metricsServer, error) {
	l, err := net.Listen("tcp", addr)
	var bad *net.AddrError
	var port *net.DNSError
	if errors.As(err, &bad) || errors.As(err, &port) {
		return nil, &usage{fmt.Errorf("--metrics %q is not IP:PORT, such as 127.0.0.1:9464", addr)}
	}
	if err != nil {
		return nil, &usage{fmt.Errorf("--metrics %s: %w", addr, err)}
	}
	m := &metricsServer{listener: l, registry: prometheus.NewRegistry(), endpoints: metrics.New()}
	m.registry.MustRegister(m.endpoints, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// serve begins to answer requests.
func (m *metricsServer) serve(clients func() int) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "uetperf_clients", Help: "Clients that are being served."}, func() float64 { return float64(clients()) },
	))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	m.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		_ = m.http.Serve(m.listener)
	}()
}

func (m *metricsServer) url() string { return "http://" + m.listener.Addr().String() + "/metrics" }

func (m *metricsServer) close() {
	if m.http == nil {
		_ = m.listener.Close()
		return
	}
	_ = m.http.Close()
	<-m.done
}
