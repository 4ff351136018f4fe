package netswitch

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// maxEvent bounds the length of an event in bytes.
const maxEvent = 1 << 20

func newServer(e engine) *http.Server {
	return &http.Server{
		Handler: newHandler(e), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
}

// newHandler is the control interface. Errors are one line of text.
func newHandler(e engine) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{e}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := e.Stats(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		st, err := e.Stats()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, st)
	})
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { answer(w, e.Config()) })
	mux.HandleFunc("GET /series", func(w http.ResponseWriter, _ *http.Request) {
		s := e.Series()
		if s == nil {
			s = []result.Sample{}
		}
		answer(w, s)
	})
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, _ *http.Request) {
		if err := e.Start(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /events", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
		if err != nil {
			http.Error(w, "event: "+err.Error(), http.StatusBadRequest)
			return
		}
		var ev fabric.Event
		if err := decodeStrict(b, &ev); err != nil {
			http.Error(w, "event: "+err.Error(), http.StatusBadRequest)
			return
		}
		switch err := e.Apply(ev); {
		case errors.Is(err, errEnded):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, "event: "+err.Error(), http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// errEnded is the error of a switch that no longer forwards.
var errEnded = errors.New("the switch is ending")

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// A collector exports an engine's counters to Prometheus.
type collector struct{ e engine }

var (
	linePackets = prometheus.NewDesc("uetswitch_line_packets_total", "Packets that entered a line.", []string{"line"}, nil)
	lineBytes   = prometheus.NewDesc("uetswitch_line_bytes_total", "Bytes of IP packets that entered a line.", []string{"line"}, nil)
	lineSent    = prometheus.NewDesc("uetswitch_line_sent_packets_total", "Packets that left a line.", []string{"line"}, nil)
	lineSentB   = prometheus.NewDesc("uetswitch_line_sent_bytes_total", "Bytes of IP packets that left a line.", []string{"line"}, nil)
	lineWaiting = prometheus.NewDesc("uetswitch_line_waiting_bytes", "Bytes that wait in a line's queues.", []string{"line"}, nil)
	lineWhys    = prometheus.NewDesc("uetswitch_decisions_total", "Decisions about packets, by line and reason.", []string{"line", "why"}, nil)
	received    = prometheus.NewDesc("uetswitch_received_packets_total", "Packets that entered the switch.", nil, nil)
	sent        = prometheus.NewDesc("uetswitch_sent_packets_total", "Packets that left the switch.", nil, nil)
	drops       = prometheus.NewDesc("uetswitch_own_drops_total", "Packets that the switch itself lost, by place.", []string{"where"}, nil)
	lateP       = prometheus.NewDesc("uetswitch_late_seconds", "How late packets were: leaving after they were due, waiting to be read.", []string{"what", "quantile"}, nil)
	odd         = prometheus.NewDesc("uetswitch_odd_packets_total", "Packets that were not forwarded as they came, by reason.", []string{"reason"}, nil)
	logLines    = prometheus.NewDesc("uetswitch_log_lines_total", "Decisions for the log, by what became of them.", []string{"fate"}, nil)
)

// Describe implements prometheus.Collector.
func (collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		linePackets, lineBytes, lineSent, lineSentB, lineWaiting, lineWhys, received, sent, drops, lateP, odd, logLines,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (x collector) Collect(c chan<- prometheus.Metric) {
	st, err := x.e.Stats()
	if err != nil {
		c <- prometheus.NewInvalidMetric(received, err)
		return
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter(received, st.Fabric.Received)
	counter(sent, st.Fabric.Sent)
	for name := range st.Fabric.Lines {
		l := st.Fabric.Lines[name]
		counter(linePackets, l.Packets, name)
		counter(lineBytes, l.Bytes, name)
		counter(lineSent, l.SentPkts, name)
		counter(lineSentB, l.SentB, name)
		gauge(lineWaiting, float64(l.Waiting), name)
		for why, n := range l.Whys {
			counter(lineWhys, n, name, why)
		}
	}
	h := &st.Health
	counter(drops, h.RingFull, "ring")
	counter(drops, h.SendFailed, "send")
	counter(drops, h.LinkDrops, "link")
	for _, l := range []struct {
		what string
		Late
	}{{"leave", h.Leave}, {"wait", h.Wait}} {
		gauge(lateP, l.P50.Seconds(), l.what, "0.5")
		gauge(lateP, l.P99.Seconds(), l.what, "0.99")
		gauge(lateP, l.Max.Seconds(), l.what, "1")
	}
	counter(odd, h.Unresolved, "unresolved")
	counter(odd, h.Oversize, "oversize")
	counter(odd, h.Malformed, "malformed")
	counter(odd, h.Checksums, "checksum")
	counter(logLines, h.LogLines, "written")
	counter(logLines, h.LogDropped, "dropped")
}
