package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// The rows H compare uetperf with TCP of the kernel while threads that never sleep share the
// processors of the ends, and count what is sent again and what processor time it takes.

// A hogs says whose processor a busy loop shares.
type hogs string

const (
	hogReceiver hogs = "receiver"
	hogSender   hogs = "sender"
	hogEach     hogs = "each end"
)

// start starts the busy loops and returns what ends them.
func (h hogs) start(srv, cli side) (stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, c := range running {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for _, s := range h.sides(srv, cli) {
		c := exec.Command("taskset", "-c", s.cpu, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			stop()
			return nil, err
		}
		running = append(running, c)
	}
	return stop, nil
}

// sides returns the ends whose processors are shared. The client sends.
func (h hogs) sides(srv, cli side) []side {
	switch h {
	case hogReceiver:
		return []side{srv}
	case hogSender:
		return []side{cli}
	case hogEach:
		return []side{srv, cli}
	}
	return nil
}

// Runs of the rows H.
const busyFor = time.Second

func busyStream(progress string) []string {
	return []string{"tsend", "-s", "1M", "-W", "64", "-t", busyFor.String(), "--progress", progress}
}

var busyPong = []string{"tsend", "-s", "64", "-t", busyFor.String(), "--progress", "auto"}

// busyRows returns the rows H1, H2 and H3, which have the same name for each place of a busy
// loop, and H5, H8 and H9. H4 is among rankRows.
func busyRows() (rows []row) {
	const everywhere = "lo,veth"
	places := []hogs{hogReceiver, hogSender, hogEach}
	for _, progress := range []string{"auto", "manual"} {
		for _, h := range places {
			rows = append(rows, row{name: "H1", nets: everywhere, what: fmt.Sprintf("bw 1 MiB, %s, busy loop at %s, against Go TCP", progress, h), cmd: "bw", uet: busyStream(progress),
				hogs: h, tcp: "stream", key: "GBps", bar: 0.8, scale: 1})
		}
	}
	for _, h := range places {
		rows = append(rows, row{name: "H1h", nets: everywhere, what: fmt.Sprintf("bw 1 MiB, auto, busy loop at %s, against one hot buffer", h), cmd: "bw", uet: busyStream("auto"),
			hogs: h, tcp: "hot", key: "GBps", scale: 1})
	}
	for _, key := range []string{"p50", "p99"} {
		for _, h := range places[:2] {
			rows = append(rows, row{name: "H2", nets: everywhere, what: fmt.Sprintf("lat 64 B, auto, %s, busy loop at %s, against Go TCP", key, h), cmd: "lat", uet: busyPong,
				hogs: h, tcp: "pong", key: key, lower: true, bar: 2, scale: 1})
		}
	}
	for _, progress := range []string{"auto", "manual"} {
		for _, h := range places {
			rows = append(rows, row{name: "H3", nets: everywhere, what: fmt.Sprintf("sent again, %%, bw 1 MiB, %s, busy loop at %s", progress, h), cmd: "bw", uet: busyStream(progress),
				hogs: h, key: "resent%", lower: true, absolute: true, bar: 1})
		}
	}
	start := []string{"tsend", "-s", "1M", "-n", "40", "-w", "0"}
	rate := []string{"tsend", "-s", "8", "-W", "512", "-t", busyFor.String(), "--progress", "auto"}
	return append(rows,
		row{name: "H5", nets: everywhere, what: "the first 40 MB sealed (psk), ms, against clear", cmd: "bw", uet: sealed(start, "--sec", "psk"), clean: start, key: "ms", lower: true, bar: 1.3, scale: 1},
		row{name: "H5", nets: everywhere, what: "the first 40 MB sealed (psk), packets dropped for their rate", cmd: "bw", uet: sealed(start, "--sec", "psk"), key: "rated", lower: true, absolute: true, bar: 0.5},
		row{name: "H8", nets: "lo,veth,veth9000", what: "bw 1 MiB, auto, processor time of both ends, s/GB", cmd: "bw", uet: busyStream("auto"), key: "cpu/GB", lower: true, absolute: true, bar: 0.35},
		row{name: "H8", nets: "lo,veth,veth9000", what: "the same against iperf3", cmd: "bw", uet: busyStream("auto"), iperf: true, key: "cpu/GB", lower: true, scale: 1},
		row{name: "H8", nets: everywhere, what: "rate 8 B, window 512, auto, processor time, s per million", cmd: "rate", uet: rate, key: "cpu/M", lower: true, absolute: true, bar: 0.42},
		row{name: "H9", nets: "veth", what: "bw 1 MiB, manual, against iperf3", cmd: "bw", uet: busyStream("manual"), iperf: true, key: "GBps", bar: 0.7, scale: 1},
		row{name: "H9", nets: "veth9000", what: "bw 1 MiB, manual, against iperf3", cmd: "bw", uet: busyStream("manual"), iperf: true, key: "GBps", bar: 0.85, scale: 1},
	)
}

// figure returns a value of the last run of a record of uetperf, in the unit of the rows.
func figure(out []byte, key string) (float64, error) {
	type counters struct {
		Sent  float64 `json:"tx_pkts"`
		RTO   float64 `json:"rtx_rto"`
		SACK  float64 `json:"rtx_sack"`
		NACK  float64 `json:"rtx_nack"`
		Probe float64 `json:"rtx_probe"`
		Drops map[string]float64
	}
	var rec struct {
		Runs []struct {
			Latency struct {
				P50  float64 `json:"p50"`
				P99  float64 `json:"p99"`
				Mean float64 `json:"mean"`
			} `json:"latency_ns"`
			Duration float64  `json:"duration_ns"`
			Bytes    float64  `json:"bytes"`
			Msgs     float64  `json:"msgs"`
			Goodput  float64  `json:"goodput_bps"`
			Rate     float64  `json:"msgs_per_s"`
			Mine     counters `json:"transport"`
			Theirs   counters `json:"peer_transport"`
			CPU      struct {
				User       float64 `json:"user_ns"`
				Sys        float64 `json:"sys_ns"`
				TheirsUser float64 `json:"peer_user_ns"`
				TheirsSys  float64 `json:"peer_sys_ns"`
			} `json:"cpu"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(out, &rec); err != nil || len(rec.Runs) == 0 {
		return 0, fmt.Errorf("uetperf's record: %v in %q", err, out)
	}
	x := rec.Runs[len(rec.Runs)-1]
	cpu := x.CPU.User + x.CPU.Sys + x.CPU.TheirsUser + x.CPU.TheirsSys
	switch key {
	case "p50":
		return x.Latency.P50 / 1e3, nil
	case "p99":
		return x.Latency.P99 / 1e3, nil
	case "mean":
		return x.Latency.Mean / 1e3, nil
	case "GBps":
		return x.Goodput / 8e9, nil
	case "Mmsgs":
		return x.Rate / 1e6, nil
	case "kmsgs":
		return x.Rate / 1e3, nil
	case "ms":
		return x.Duration / 1e6, nil
	case "resent%":
		m := x.Mine
		return 100 * (m.RTO + m.SACK + m.NACK + m.Probe) / m.Sent, nil
	case "rated":
		return x.Mine.Drops["rate"] + x.Theirs.Drops["rate"], nil
	case "cpu/GB":
		return cpu / x.Bytes, nil
	case "cpu/M":
		return cpu / x.Msgs / 1e3, nil
	}
	return 0, fmt.Errorf("no figure %q", key)
}

// iperfRun measures a stream of iperf3: bandwidth, and the processor time of both ends.
func iperfRun(srv, cli side) (map[string]float64, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addr, ":")
	c := srv.command("iperf3", "-s", "-1", "-B", srv.addr, "-p", port, "--forceflush")
	lines, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("%w (Debian: iperf3)", err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	said := bufio.NewScanner(lines)
	for said.Scan() && !strings.Contains(said.Text(), "listening") {
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until the end of c
	out, err := cli.command("iperf3", "-c", srv.addr, "-p", port, "-t", fmt.Sprint(busyFor.Seconds()), "-J").Output()
	if err != nil {
		return nil, fmt.Errorf("iperf3: %w: %.200s", err, out)
	}
	return iperfFigures(out)
}

func iperfFigures(out []byte) (map[string]float64, error) {
	var rec struct {
		End struct {
			Got struct {
				Seconds float64 `json:"seconds"`
				Bytes   float64 `json:"bytes"`
			} `json:"sum_received"`
			CPU struct {
				Mine   float64 `json:"host_total"` // in percent of the time
				Theirs float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &rec); err != nil {
		return nil, fmt.Errorf("iperf3's record: %w", err)
	}
	e := rec.End
	if e.Got.Bytes == 0 || e.Got.Seconds == 0 {
		return nil, errors.New("iperf3 transferred nothing")
	}
	return map[string]float64{
		"GBps":   e.Got.Bytes / e.Got.Seconds / 1e9,
		"cpu/GB": (e.CPU.Mine + e.CPU.Theirs) / 100 * e.Got.Seconds / e.Got.Bytes * 1e9,
	}, nil
}

// tcp runs one end of a baseline on a TCP connection of package net: a stream of messages of 1
// MiB, or a ping-pong of 64 bytes. The messages of a stream have 64 buffers at each end, as those
// of uetperf have; those of hot have one, which stays in the cache.
func tcp(args []string) error {
	kind, args := args[0], args[1:]
	fs := flag.NewFlagSet("tcp", flag.ExitOnError)
	serve := fs.Bool("serve", false, "server end")
	addr := fs.String("addr", "127.0.0.1:0", "server's address")
	fs.Parse(args)
	ends := map[string][2]func(net.Conn) (map[string]float64, error){
		"stream": {tcpSend(64), tcpReceive(64)}, "hot": {tcpSend(1), tcpReceive(1)}, "pong": {tcpPing, tcpEcho},
	}
	end, ok := ends[kind]
	if !ok {
		return fmt.Errorf("unknown baseline %q", kind)
	}
	if *serve {
		l, err := net.Listen("tcp", *addr)
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_, err = end[1](c)
		return err
	}
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "tcp", *addr)
	if err != nil {
		return err
	}
	defer c.Close()
	res, err := end[0](c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

// tcpSend sends for a time and then waits until the receiver says how much arrived.
func tcpSend(buffers int) func(net.Conn) (map[string]float64, error) {
	return func(c net.Conn) (map[string]float64, error) {
		b := make([]byte, buffers<<20)
		for i := range b {
			b[i] = byte(i) // so that it is memory, not the page of zeros
		}
		begin := time.Now()
		for i := 0; time.Since(begin) < busyFor; i = (i + 1) % buffers {
			if _, err := c.Write(b[i<<20 : (i+1)<<20]); err != nil {
				return nil, err
			}
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return nil, err
		}
		var got int64
		err := binary.Read(c, binary.BigEndian, &got)
		return map[string]float64{"GBps": float64(got) / time.Since(begin).Seconds() / 1e9}, err
	}
}

func tcpReceive(buffers int) func(net.Conn) (map[string]float64, error) {
	return func(c net.Conn) (map[string]float64, error) {
		b := make([]byte, buffers<<20)
		var got int64
		for i := 0; ; i = (i + 1) % buffers {
			n, err := io.ReadFull(c, b[i<<20:(i+1)<<20])
			got += int64(n)
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil, errors.Join(binary.Write(c, binary.BigEndian, got), c.Close())
			} else if err != nil {
				return nil, err
			}
		}
	}
}

// tcpPing reports half of round trips.
func tcpPing(c net.Conn) (map[string]float64, error) {
	b := make([]byte, 64)
	var h []time.Duration
	for begin := time.Now(); time.Since(begin) < busyFor || len(h) == 0; {
		t := time.Now()
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, err
		}
		h = append(h, time.Since(t))
	}
	slices.Sort(h)
	return map[string]float64{"p50": float64(h[len(h)/2]) / 2e3, "p99": float64(h[len(h)*99/100]) / 2e3}, nil
}

func tcpEcho(c net.Conn) (map[string]float64, error) {
	b := make([]byte, 64)
	for {
		if _, err := io.ReadFull(c, b); err == io.EOF {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if _, err := c.Write(b); err != nil {
			return nil, err
		}
	}
}
