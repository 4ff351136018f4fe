package main

import (
	"math"
	"net"
	"testing"
)

func TestFigure(t *testing.T) {
	record := []byte(`{"runs": [{}, {"bytes": 2e9, "msgs": 4e6, "duration_ns": 5e6, "goodput_bps": 24e9, "msgs_per_s": 7e6,
		"latency_ns": {"p50": 1000, "p99": 8000, "mean": 9000},
		"transport": {"tx_pkts": 1000, "rtx_rto": 1, "rtx_sack": 2, "rtx_nack": 4, "rtx_probe": 8, "drops": {"rate": 16, "crc": 1}},
		"peer_transport": {"tx_pkts": 10, "rtx_rto": 100, "drops": {"rate": 32}},
		"cpu": {"user_ns": 1e8, "sys_ns": 2e8, "peer_user_ns": 4e8, "peer_sys_ns": 8e8}}]}`)
	for key, want := range map[string]float64{
		"p50": 1, "p99": 8, "mean": 9, "GBps": 3, "Mmsgs": 7, "kmsgs": 7000, "ms": 5,
		"resent%": 1.5, "rated": 48, "cpu/GB": 0.75, "cpu/M": 0.375,
	} {
		if got, err := figure(record, key); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", key, got, err, want)
		}
	}
	if _, err := figure(record, "p51"); err == nil {
		t.Error("an unknown figure was taken")
	}
	if _, err := figure([]byte(`{"runs": []}`), "p50"); err == nil {
		t.Error("a record without runs was taken")
	}
}

func TestIperfFigures(t *testing.T) {
	f, err := iperfFigures([]byte(`{"end": {"sum_sent": {"bytes": 9e9}, "sum_received": {"seconds": 2, "bytes": 4e9}, "cpu_utilization_percent": {"host_total": 40, "host_user": 1, "remote_total": 60}}}`))
	if err != nil || f["GBps"] != 2 || f["cpu/GB"] != 0.5 {
		t.Error(f, err)
	}
	if _, err := iperfFigures([]byte(`{"error": "unable to connect"}`)); err == nil {
		t.Error("a failed run was taken")
	}
}

// The baselines of TCP run over a real connection.
func TestTCP(t *testing.T) {
	for _, c := range []struct {
		key            string
		client, server func(net.Conn) (map[string]float64, error)
	}{{"GBps", tcpSend(2), tcpReceive(2)}, {"p50", tcpPing, tcpEcho}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			s, err := l.Accept()
			if err == nil {
				_, err = c.server(s)
			}
			served <- err
		}()
		d, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.client(d)
		d.Close()
		l.Close()
		if err != nil || got[c.key] <= 0 {
			t.Error(c.key, got, err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestBusyRows(t *testing.T) {
	srv, cli := side{cpu: "1"}, side{cpu: "0"}
	for h, want := range map[hogs]string{"": "", hogReceiver: "1", hogSender: "0", hogEach: "10"} {
		got := ""
		for _, s := range h.sides(srv, cli) {
			got += s.cpu
		}
		if got != want {
			t.Errorf("busy loop at %q: processors %q, want %q", h, got, want)
		}
	}
	seen := map[string]bool{}
	for _, r := range busyRows() {
		if id := r.name + r.what + r.nets; seen[id] {
			t.Errorf("%s %s twice", r.name, r.what)
		} else {
			seen[id] = true
		}
		if !r.absolute && !r.iperf && r.tcp == "" && r.clean == nil {
			t.Errorf("%s %s is held against nothing", r.name, r.what)
		}
	}
}
