// Command bars measures the performance bars of docs/perf.md. It compares uetperf with raw
// UDP, sealed transfers with quic-go and with clear ones, durable writes with the disk, transfers beside busy loops with TCP,
// many endpoints with few, and ranks of mp with those of MPIs. The compared runs are interleaved, each end of uetperf
// pinned to a core of its own.
//
//	go run ./testbed/bars [-reps 5] [-only F1,F3] [-net lo,veth,veth9000]
//
// For the veth rows it makes two network namespaces with a veth pair of MTU 1500 or 9000
// (root) and removes them.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) > 1 {
		end := map[string]func([]string) error{"raw": raw, "quic": quicStream, "gcm": gcm, "tcp": tcp, "sync": syncing}[os.Args[1]]
		if end != nil {
			if err := end(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "bars: %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	reps := flag.Int("reps", 5, "repetitions of each run")
	only := flag.String("only", "", "rows to measure, by comma; empty: all")
	nets := flag.String("net", "lo,veth,veth9000", "networks, by comma: lo; veth, of MTU 1500; veth9000")
	other := flag.String("against", "", "another build of uetperf to compare with, pair by pair, instead of the bars; or its source tree: both are then linked in 15 random layouts")
	flag.Parse()
	if err := run(*reps, *only, *other, strings.Split(*nets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		os.Exit(1)
	}
}

// A side is the place of one end of the path, where programs run.
type side struct {
	addr   string
	prefix []string // ip netns exec NAME
	cpu    string
}

func (s side) command(args ...string) *exec.Cmd {
	a := append(append(slices.Clone(s.prefix), "taskset", "-c", s.cpu), args...)
	c := exec.Command(a[0], a[1:]...)
	c.Stderr = os.Stderr
	return c
}

// serve starts a server and returns its address: the last word of the first line that it
// prints. Its port is its own, so that nothing else on the machine uses it. stop ends the
// server.
func (s side) serve(args ...string) (host string, stop func(), err error) {
	c := s.command(args...)
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { c.Process.Kill(); c.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) == 0 {
		stop()
		return "", nil, fmt.Errorf("%s: the server did not start: %q, %v", args[0], line, err)
	}
	return words[len(words)-1], stop, nil
}

// A row is one bar: a uetperf run and the raw run it is compared with.
type row struct {
	name    string
	nets    string   // where it applies
	what    string   // for people
	uet     []string // uetperf arguments behind the host
	cmd     string   // uetperf command
	raw     []string // raw baseline
	key     string   // what is compared
	lower   bool     // lower is better
	bar     float64  // ratio that must be reached
	scale   float64  // raw value × scale is what uetperf is held against
	sameCPU bool     // both ends on one core
	clean   []string // instead of raw UDP: uetperf with these arguments
	relayed bool     // a relay is a third party: neither end is pinned
	quic    bool     // instead of raw UDP: a stream of quic-go
	gcm     bool     // clean and then AES-GCM, one after the other
	hogs    hogs     // where busy loops run meanwhile
	tcp     string   // instead of raw UDP: this kind of baseline on TCP
	iperf   bool     // instead of raw UDP: iperf3
	sync    bool     // instead of raw UDP: a loop that writes to a mapped file and makes it durable
	hub     int      // instead of uetperf: testbed/bars/hub with that many leaves
	// sharePort lets the leaves share a port.
	sharePort bool

	absolute bool // the bar is a value, not a ratio
}

var rows = []row{
	{name: "F1", nets: "lo,veth", what: "lat 64 B tsend, manual progress, p50", cmd: "lat", uet: pong,
		raw: []string{"pong", "-mode", "spin"}, key: "p50", lower: true, bar: 1.35, scale: 1},
	{name: "F1b", nets: "lo,veth", what: "the same against raw sockets that the runtime's poller does not watch", cmd: "lat", uet: pong,
		raw: []string{"pong", "-mode", "bare"}, key: "p50", lower: true, scale: 1},
	{name: "F1k", nets: "lo,veth", what: "the same against raw sockets that make the same calls", cmd: "lat", uet: pong,
		raw: []string{"pong", "-mode", "calls"}, key: "p50", lower: true, scale: 1},
	{name: "F2", nets: "lo,veth", what: "lat 64 B tsend, auto progress, p50", cmd: "lat", uet: []string{"tsend", "-s", "64", "-n", "20000", "-w", "2000", "--progress", "auto"},
		raw: []string{"pong", "-mode", "hybrid"}, key: "p50", lower: true, bar: 1.6, scale: 1},
	{name: "F3", nets: "lo,veth", what: "bw 1 MiB tsend, window 64, manual progress", cmd: "bw", uet: stream,
		raw: []string{"flow"}, key: "GBps", bar: 0.70, scale: 1024.0 / 1100},
	{name: "F2b", nets: "lo,veth", what: "bw 1 MiB tsend, window 64, auto progress", cmd: "bw", uet: []string{"tsend", "-s", "1M", "-W", "64", "-t", "2s", "--progress", "auto"},
		raw: []string{"flow"}, key: "GBps", bar: 0.56, scale: 1024.0 / 1100},
	{name: "F4", nets: "lo,veth", what: "rate 8 B tsend, window 512", cmd: "rate", uet: []string{"tsend", "-s", "8", "-W", "512", "-t", "2s", "--progress", "manual"},
		raw: []string{"msgs"}, key: "Mmsgs", bar: 0.20, scale: 1},
	{name: "F5", nets: "lo", what: "bw 1 MiB tsend, 1 % lost, against the same relay without", cmd: "bw", uet: lossy("bw", "1%"), clean: lossy("bw", "0%"), relayed: true, key: "GBps", bar: 0.85, scale: 1},
	{name: "F5b", nets: "lo", what: "bw 1 MiB tsend, 5 % lost, against the same relay without", cmd: "bw", uet: lossy("bw", "5%"), clean: lossy("bw", "0%"), relayed: true, key: "GBps", bar: 0.60, scale: 1},
	{name: "F6", nets: "lo", what: "lat 4 KiB tsend, 1 % lost, mean, against the same relay without", cmd: "lat", uet: lossy("lat", "1%"), clean: lossy("lat", "0%"), relayed: true, key: "mean", lower: true, bar: 3, scale: 1},
	{name: "S1", nets: "lo,veth", what: "bw 1 MiB tsend, msg, tls, window 64, against a stream of quic-go", cmd: "bw", uet: sealed(stream, "-e", "msg", "--sec", "tls"),
		quic: true, key: "GBps", bar: 3, scale: 1},
	{name: "S1b", nets: "lo,veth", what: "bw 1 MiB tsend, rdm, psk, window 64, against 1/(1/F3 + 1/GCM)", cmd: "bw", uet: sealed(stream, "--sec", "psk"),
		clean: stream, gcm: true, key: "GBps", bar: 0.7, scale: 1},
	{name: "S2", nets: "lo,veth", what: "lat 64 B tsend, rdm, psk, manual progress, p50, against F1", cmd: "lat", uet: sealed(pong, "--sec", "psk"),
		clean: pong, key: "p50", lower: true, bar: 1.25, scale: 1},
	{name: "R1", nets: "lo,veth", what: "bw 1 MiB write, window 64, manual progress, against F3", cmd: "bw", uet: access(stream, "write"), clean: stream, key: "GBps", bar: 0.97, scale: 1},
	{name: "R1b", nets: "lo,veth", what: "bw 1 MiB read, window 64, manual progress, against write", cmd: "bw", uet: access(stream, "read"), clean: access(stream, "write"), key: "GBps", bar: 0.8, scale: 1},
	{name: "R2", nets: "lo,veth", what: "lat 8 B fetch-add, whole trip, p50, against half a round trip of 64 B", cmd: "lat", uet: []string{"fadd", "-s", "8", "-n", "20000", "-w", "2000"}, clean: pong, key: "p50", lower: true, bar: 2.4, scale: 1},
	{name: "R2b", nets: "lo,veth", what: "rate 8 B fetch-add, window 256, against tsend", cmd: "rate", uet: []string{"fadd", "-s", "8", "-W", "256", "-t", "2s", "--progress", "manual"},
		clean: []string{"tsend", "-s", "8", "-W", "256", "-t", "2s", "--progress", "manual"}, key: "Mmsgs", scale: 1},
	{name: "R3", nets: "lo,veth", what: "bw 1 MiB durable write, window 256, against syncs of 8 MiB", cmd: "bw",
		uet: []string{"write", "-s", "1M", "-W", "256", "-t", "2s", "--complete", "commit"}, sync: true, key: "GBps", bar: 0.8, scale: 1},
	{name: "R4", nets: "lo,veth", what: "bw 1 MiB tsend by rendezvous, window 64, manual progress, against read", cmd: "bw",
		uet: slices.Concat(stream, []string{"--rendezvous", "32K"}), clean: access(stream, "read"), key: "GBps", bar: 0.95, scale: 1},
	{name: "F10", nets: "lo", what: "lat 64 B tsend, auto progress, both ends on one core, p50", cmd: "lat", uet: []string{"tsend", "-s", "64", "-n", "10000", "-w", "1000", "--progress", "auto"},
		raw: []string{"pong", "-mode", "block"}, key: "p50", lower: true, bar: 1.3, scale: 1, sameCPU: true},
}

// The runs of F1 and F3.
var (
	pong   = []string{"tsend", "-s", "64", "-n", "20000", "-w", "2000"}
	stream = []string{"tsend", "-s", "1M", "-W", "64", "-t", "2s", "--progress", "manual"}
)

// access has a run access memory instead of sending.
func access(args []string, op string) []string { return append([]string{op}, args[1:]...) }

// sealed adds security to the arguments of a run.
func sealed(args []string, sec ...string) []string {
	return append(append(slices.Clone(args), sec...), "--keys", keysFolder)
}

// keysFolder is a placeholder for the folder of keys, which is made for the run.
const keysFolder = "KEYS"

// lossy returns the arguments of a run through the relay of uetperf.
func lossy(cmd, loss string) []string {
	if cmd == "lat" {
		return []string{"tsend", "-s", "4K", "-t", "2s", "--impair", "loss=" + loss}
	}
	return []string{"tsend", "-s", "1M", "-W", "64", "-t", "2s", "--impair", "loss=" + loss}
}

func run(reps int, only, other string, nets []string) error {
	dir, err := os.MkdirTemp("", "bars")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	uetperf := filepath.Join(dir, "uetperf")
	if err := link(uetperf, ".", 0); err != nil {
		return fmt.Errorf("build uetperf (run from the project's root): %w", err)
	}
	if err := build(filepath.Join(dir, hubProgram), ".", "./testbed/bars/hub"); err != nil {
		return fmt.Errorf("build hub: %w", err)
	}
	if out, err := exec.Command(uetperf, "keys", filepath.Join(dir, keysFolder)).CombinedOutput(); err != nil {
		return fmt.Errorf("uetperf keys: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var rivals [][2]string
	if other != "" {
		if rivals, err = rivalsIn(dir, uetperf, other); err != nil {
			return err
		}
		fmt.Printf("%-4s %-5s %-64s %10s %10s %7s  %s\n", "row", "net", "what", "this", "other", "ratio", "95 % interval of its median")
	} else {
		fmt.Printf("%-4s %-5s %-64s %10s %10s %7s %7s  %s\n", "row", "net", "what", "uetkit", "against", "ratio", "bar", "spread of the ratio")
	}
	all := slices.Concat(rows, busyRows(), manyRows())
	for _, nw := range nets {
		srv, cli, cleanup, err := network(nw)
		if err != nil {
			return fmt.Errorf("network %s: %w", nw, err)
		}
		for _, r := range all {
			if only != "" && !slices.Contains(strings.Split(only, ","), r.name) || !slices.Contains(strings.Split(r.nets, ","), nw) {
				continue
			}
			if other != "" && r.hub > 0 {
				continue // it is not a run of uetperf
			}
			measure := func() error { return r.measure(self, uetperf, nw, srv, cli, reps) }
			if other != "" {
				measure = func() error { return r.compare(rivals, nw, srv, cli, reps) }
			}
			if err := measure(); err != nil {
				fmt.Printf("%-4s %-5s %-64s failed: %v\n", r.name, nw, r.what, err)
			}
		}
		cleanup()
		if nw == "lo" && other == "" {
			if err := measureRanks(dir, only, reps); err != nil {
				return err
			}
		}
	}
	return nil
}

// layouts is how many random layouts of two source trees are compared. Where the linker puts
// a function moves a figure by up to 1 %, which the pairs of one layout do not show.
const layouts = 15

// link builds uetperf from a source tree, with its functions in an order that the seed
// chooses; 0 means the usual one.
func link(program, tree string, seed int) error {
	return build(program, tree, "./cmd/uetperf", "-ldflags", fmt.Sprintf("-randlayout=%d", seed))
}

// build builds a command of a source tree.
func build(program, tree, command string, flags ...string) error {
	c := exec.Command("go", slices.Concat([]string{"build", "-o", program}, flags, []string{command})...)
	c.Dir = tree
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // a program with cgo is slower by 2 % in F10
	c.Stderr = os.Stderr
	return c.Run()
}

// rivalsIn returns the pairs of programs to compare, all in dir, where their keys are. Other
// is a program, or a source tree.
func rivalsIn(dir, this, other string) ([][2]string, error) {
	path, err := filepath.Abs(other)
	if err != nil {
		return nil, err
	}
	if at, err := os.Stat(path); err != nil {
		return nil, err
	} else if !at.IsDir() {
		name := filepath.Join(dir, "other")
		return [][2]string{{this, name}}, os.Symlink(path, name)
	}
	var out [][2]string
	for seed := 1; seed <= layouts; seed++ {
		pair := [2]string{filepath.Join(dir, fmt.Sprintf("this%d", seed)), filepath.Join(dir, fmt.Sprintf("other%d", seed))}
		for i, tree := range []string{".", path} {
			if err := link(pair[i], tree, seed); err != nil {
				return nil, fmt.Errorf("build uetperf in %s: %w", tree, err)
			}
		}
		out = append(out, pair)
	}
	return out, nil
}

// pinned are the sides with the processors that the row asks for.
func (r row) pinned(srv, cli side) (side, side) {
	if r.sameCPU {
		srv.cpu = cli.cpu
	}
	if r.relayed {
		srv.cpu, cli.cpu = "0,1", "0,1"
	}
	return srv, cli
}

// compare runs two builds of uetperf in pairs, each of them first in every other pair.
func (r row) compare(rivals [][2]string, nw string, srv, cli side, pairs int) error {
	srv, cli = r.pinned(srv, cli)
	end, err := r.hogs.start(srv, cli)
	if err != nil {
		return err
	}
	defer end()
	var a, b, q []float64
	for i := range pairs {
		bins := rivals[i%len(rivals)]
		var v [2]float64
		for k := range bins {
			k ^= i & 1
			var err error
			if v[k], err = r.uetRun(bins[k], srv, cli); err != nil {
				return err
			}
		}
		a, b, q = append(a, v[0]), append(b, v[1]), append(q, v[0]/v[1])
	}
	better := "higher is better"
	if r.lower {
		better = "lower is better"
	}
	lo, hi := interval(q)
	fmt.Printf("%-4s %-5s %-64s %10.3g %10.3g %7.3f  %.3f … %.3f  %s\n", r.name, nw, r.what, median(a), median(b), median(q), lo, hi, better)
	return nil
}

// interval is the 95 % confidence interval of a median, by order statistics: the number of
// values below it has a binomial distribution with p = 1/2.
func interval(v []float64) (lo, hi float64) {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	k, p, tail := 0, math.Pow(0.5, float64(n)), 0.0
	for ; k < n/2; k++ { // v[k] … v[n-1-k] covers it with probability 1 - 2·tail
		if tail+p > 0.025 {
			break
		}
		tail += p
		p *= float64(n-k) / float64(k+1)
	}
	k = max(k-1, 0)
	return v[k], v[n-1-k]
}

// measure runs uetperf and the raw baseline in turn.
func (r row) measure(self, uetperf, nw string, srv, cli side, reps int) error {
	srv, cli = r.pinned(srv, cli)
	end, err := r.hogs.start(srv, cli)
	if err != nil {
		return err
	}
	defer end()
	var u, b, q []float64
	for range reps {
		x, err := r.uetRun(uetperf, srv, cli)
		if err != nil {
			return err
		}
		base, err := r.against(self, uetperf, nw, srv, cli)
		if err != nil {
			return err
		}
		u, b, q = append(u, x), append(b, base), append(q, x/base)
	}
	ratio := median(q)
	ok := "reached"
	if r.bar == 0 {
		ok = "no bar"
	} else if r.lower && ratio > r.bar || !r.lower && ratio < r.bar {
		ok = "MISSED"
	}
	sign := "≥"
	if r.lower {
		sign = "≤"
	}
	fmt.Printf("%-4s %-5s %-64s %10.3g %10.3g %7.2f %s%6.2f  %.2f … %.2f  %s\n", r.name, nw, r.what, median(u), median(b), ratio, sign, r.bar, slices.Min(q), slices.Max(q), ok)
	return nil
}

// against measures the baseline of a row.
func (r row) against(self, uetperf, nw string, srv, cli side) (float64, error) {
	if r.absolute {
		return 1, nil
	}
	if r.clean != nil {
		c := r
		c.uet = r.clean
		base, err := c.uetRun(uetperf, srv, cli)
		if err != nil || !r.gcm {
			return base, err
		}
		size := 1024 // what fits an MTU of 1500
		if nw == "lo" {
			size = 8192
		}
		g, err := gcmRun(self, srv, cli, size)
		return 1 / (1/base + 1/g), err
	}
	if r.iperf {
		y, err := iperfRun(srv, cli)
		return y[r.key] * r.scale, err
	}
	if r.sync {
		return syncRun(self, srv)
	}
	args := append([]string{"raw"}, r.raw...)
	switch {
	case r.quic:
		args = []string{"quic"}
	case r.tcp != "":
		args = []string{"tcp", r.tcp}
	}
	y, err := rawRun(self, srv, cli, args)
	return y[r.key] * r.scale, err
}

// uetRun runs uetperf once and returns the value that the row compares.
func (r row) uetRun(bin string, srv, cli side) (float64, error) {
	if r.hub > 0 {
		return hubRun(filepath.Dir(bin), srv, cli, r)
	}
	folder := filepath.Join(filepath.Dir(bin), keysFolder)
	host, stop, err := srv.serve(bin, "serve", "--listen", srv.addr+":0", "--once", "--keys", folder)
	if err != nil {
		return 0, err
	}
	defer stop()
	args := append([]string{bin, r.cmd, host}, r.uet...)
	if i := slices.Index(args, keysFolder); i > 0 {
		args[i] = folder
	}
	out, err := cli.command(append(args, "-J", "-", "-q")...).Output()
	if err != nil {
		return 0, fmt.Errorf("uetperf %s: %w", r.cmd, err)
	}
	return figure(out, r.key)
}

func rawRun(self string, srv, cli side, args []string) (map[string]float64, error) {
	kind := args[:min(len(args), 2)] // "raw" and "tcp" have a second word
	host, stop, err := srv.serve(slices.Concat([]string{self}, kind, []string{"-serve", "-addr", srv.addr + ":0"}, args[len(kind):])...)
	if err != nil {
		return nil, err
	}
	defer stop()
	out, err := cli.command(slices.Concat([]string{self}, kind, []string{"-addr", host}, args[len(kind):])...).Output()
	if err != nil {
		return nil, err
	}
	m := map[string]float64{}
	return m, json.Unmarshal(out, &m)
}

// syncRun measures in GB/s what the disk makes durable where the server has its files.
func syncRun(self string, srv side) (float64, error) {
	out, err := srv.command(self, "sync").Output()
	if err != nil {
		return 0, err
	}
	var m map[string]float64
	if err := json.Unmarshal(out, &m); err != nil {
		return 0, err
	}
	return m["GBps"], nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// network makes a network and returns its two sides.
func network(name string) (srv, cli side, cleanup func(), err error) {
	if name == "lo" {
		return side{addr: "127.0.0.1", cpu: "1"}, side{addr: "127.0.0.1", cpu: "0"}, func() {}, nil
	}
	ip := func(args ...string) {
		if err == nil {
			if out, e := exec.Command("ip", args...).CombinedOutput(); e != nil {
				err = fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), e, out)
			}
		}
	}
	a, b := fmt.Sprintf("bars%da", os.Getpid()), fmt.Sprintf("bars%db", os.Getpid())
	cleanup = func() {
		exec.Command("ip", "netns", "del", a).Run()
		exec.Command("ip", "netns", "del", b).Run()
	}
	ip("netns", "add", a)
	ip("netns", "add", b)
	mtu := "1500"
	if name == "veth9000" {
		mtu = "9000"
	}
	ip("link", "add", "v0", "netns", a, "type", "veth", "peer", "name", "v0", "netns", b)
	for i, ns := range []string{a, b} {
		ip("-n", ns, "addr", "add", fmt.Sprintf("198.18.5.%d/24", i+1), "dev", "v0")
		ip("-n", ns, "link", "set", "v0", "mtu", mtu, "up")
		ip("-n", ns, "link", "set", "lo", "up")
	}
	if err != nil {
		cleanup()
		return
	}
	exe := func(ns string) []string { return []string{"ip", "netns", "exec", ns} }
	return side{addr: "198.18.5.1", prefix: exe(a), cpu: "1"}, side{addr: "198.18.5.2", prefix: exe(b), cpu: "0"}, cleanup, nil
}
