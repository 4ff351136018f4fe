package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The rows M and H4 compare ranks of mp with those of an MPI: the same loops, the same launcher, in
// turn, over TCP. They are measured if the compilers of the MPIs are there (Debian: openmpi-bin,
// libopenmpi-dev, mpich, libmpich-dev).

//go:embed mpi/ranks.c
var ranksC []byte

// An mpi is an implementation to compare with.
type mpi struct {
	name   string
	cc     string
	launch []string // in front of the number of ranks
	env    []string
	over   []string // options of the MPI alone: TCP on loopback
}

var mpis = []mpi{
	{
		name: "openmpi", cc: "mpicc.openmpi", launch: []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"},
		over: []string{"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"},
	},
	{
		name: "mpich", cc: "mpicc.mpich", launch: []string{"mpiexec.hydra"},
		env: []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"},
	},
}

// A rankRow is a bar of ranks: tests that one job runs. The ratio is time of the best MPI
// through that of mp, so that more is better.
type rankRow struct {
	name, what string
	ranks      int
	against    []string // names of MPIs
	tests      []string
	bar        func(test string, bytes int) float64
	loss       int  // of 1,000 packets, TCP and UDP; 0: on the loopback interface of the host
	busy       bool // a busy loop runs on each of the first two processors
}

func atLeast(x float64) func(string, int) float64 { return func(string, int) float64 { return x } }

var rankRows = []rankRow{
	{name: "M1", what: "half a round trip", ranks: 2, against: []string{"openmpi", "mpich"}, tests: []string{"lat:8"}, bar: atLeast(1)},
	{name: "M2", what: "stream, window 64", ranks: 2, against: []string{"openmpi", "mpich"}, tests: []string{"bw:65536", "bw:1048576"}, bar: atLeast(1.2)},
	{name: "M3", what: "8 B messages, window 64", ranks: 2, against: []string{"openmpi", "mpich"}, tests: []string{"bw:8"}, bar: atLeast(5)},
	{name: "M4", what: "collectives, a processor each", ranks: 2, against: []string{"openmpi", "mpich"}, tests: collectives(16 << 20), bar: atLeast(1)},
	{name: "M5", what: "collectives", ranks: 4, against: []string{"openmpi"}, tests: collectives(4 << 20), bar: shared},
	{name: "M5b", what: "collectives", ranks: 8, against: []string{"openmpi"}, tests: collectives(1 << 20), bar: shared},
	{name: "M6", what: "1 % lost, 99th percentile", ranks: 2, against: []string{"openmpi"}, tests: []string{"lat.p99:8"}, bar: atLeast(10), loss: 10},
	{name: "M6b", what: "1 % lost, 99th percentile", ranks: 4, against: []string{"openmpi"}, tests: []string{"allreduce.p99:8"}, bar: atLeast(10), loss: 10},
	{name: "H4", what: "collectives, two busy loops", ranks: 4, against: []string{"openmpi"}, tests: collectives(1 << 20), bar: atLeast(1), busy: true},
	{name: "H4b", what: "collectives, two busy loops", ranks: 8, against: []string{"openmpi"}, tests: collectives(64 << 10), bar: atLeast(1), busy: true},
	{name: "M7", what: "Init and a barrier", ranks: 4, against: []string{"openmpi", "mpich"}, bar: atLeast(1)},
	{name: "M7b", what: "Init and a barrier", ranks: 64, against: []string{"mpich"}, bar: atLeast(1)},
}

// shared is the bar of ranks that share processors.
func shared(_ string, bytes int) float64 {
	if bytes < 64<<10 {
		return 0.8
	}
	return 1
}

func collectives(most int) []string {
	tests := []string{"barrier:0"}
	for _, kind := range []string{"allreduce", "bcast", "alltoall"} {
		for _, n := range []int{8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20} {
			if n <= most && (kind != "alltoall" || n <= 64<<10) {
				tests = append(tests, fmt.Sprintf("%s:%d", kind, n))
			}
		}
	}
	return tests
}

// rankPrograms builds the programs of these rows in dir. It returns the names of the MPIs that
// are there.
func rankPrograms(dir, tree string) (there []string, err error) {
	if err := build(filepath.Join(dir, "rank"), tree, "./testbed/bars/rank"); err != nil {
		return nil, fmt.Errorf("build rank: %w", err)
	}
	source := filepath.Join(dir, "ranks.c")
	if err := os.WriteFile(source, ranksC, 0o600); err != nil {
		return nil, err
	}
	for _, m := range mpis {
		cc, err := exec.LookPath(m.cc)
		if err != nil {
			continue
		}
		if out, err := exec.Command(cc, "-O2", "-w", "-o", filepath.Join(dir, m.name), source).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", m.cc, err, out)
		}
		there = append(there, m.name)
	}
	return there, nil
}

// figures are microseconds by test and bytes, as "lat 8".
type figures map[string]float64

// parseFigures reads what a program of ranks printed.
func parseFigures(out string) (figures, error) {
	f := figures{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue // of a launcher
		}
		us, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		f[words[0]+" "+words[1]] = us
	}
	if len(f) == 0 {
		return nil, fmt.Errorf("no figures in %q", out)
	}
	return f, nil
}

// ended returns what an MPI printed before it said that these are all figures, and whether it did. It may still hang or
// be killed when it ends (mpi/ranks.c), and its launcher tells of that on the same stream.
func ended(out string) (figures string, ok bool) {
	figures, _, ok = strings.Cut("\n"+out, "\nend\n")
	return figures, ok
}

// run starts a job of an MPI, or one of mp by the launcher of that MPI, behind prefix.
func (m mpi) run(dir string, prefix []string, mine bool, ranks int, seconds string, tests []string) (figures, error) {
	args := slices.Concat(prefix, m.launch)
	program := filepath.Join(dir, m.name)
	env := append(os.Environ(), m.env...)
	if mine {
		root, err := freePort()
		if err != nil {
			return nil, err
		}
		program = filepath.Join(dir, "rank")
		if m.name == "openmpi" {
			args = append(args, "-x", "MP_ROOT="+root)
		}
	} else {
		args = append(args, m.over...)
	}
	args = append(args, "-n", strconv.Itoa(ranks), program, seconds)
	c := exec.Command(args[0], append(args[1:], tests...)...)
	c.Env = env
	var errs strings.Builder
	c.Stderr = &errs
	limit := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Signal(os.Interrupt) })
	out, err := c.Output()
	limit.Stop()
	said, all := ended(string(out))
	if err != nil && (mine || !all) {
		return nil, fmt.Errorf("%s: %w: %.300s", strings.Join(args, " "), err, errs.String())
	}
	return parseFigures(said)
}

// lossyHost makes a network namespace with nothing but a loopback interface, on which loss of
// 1,000 packets of TCP and UDP are lost where they arrive: the sender does not see it. It needs
// root and nft. end removes it.
func lossyHost(loss int) (name string, end func(), err error) {
	name = fmt.Sprintf("bars%dl", os.Getpid())
	end = func() { _ = exec.Command("ip", "netns", "del", name).Run() }
	for _, line := range []string{
		"ip netns add " + name,
		"ip -n " + name + " link set lo up",
		"ip netns exec " + name + " nft add table inet bars",
		"ip netns exec " + name + " nft add chain inet bars in { type filter hook input priority 0 ; }",
		fmt.Sprintf("ip netns exec %s nft add rule inet bars in meta l4proto { tcp, udp } numgen random mod 1000 < %d drop", name, loss),
	} {
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			end()
			return "", nil, fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return name, end, nil
}

// freePort returns an address on loopback that is free now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// measure runs the job by mp and by the MPIs in turn and prints a line for each test.
func (r rankRow) measure(dir string, there []string, reps int) error {
	against := slices.DeleteFunc(slices.Clone(mpis), func(m mpi) bool {
		return !slices.Contains(r.against, m.name) || !slices.Contains(there, m.name)
	})
	if len(against) == 0 {
		return errors.New("no MPI to compare with is installed")
	}
	var prefix []string
	if r.loss > 0 {
		ns, end, err := lossyHost(r.loss)
		if err != nil {
			return err
		}
		defer end()
		prefix = []string{"ip", "netns", "exec", ns}
	}
	if r.busy {
		end, err := hogEach.start(side{cpu: "0"}, side{cpu: "1"})
		if err != nil {
			return err
		}
		defer end()
	}
	const seconds = "0.1"
	mine, best := map[string][]float64{}, map[string][]float64{}
	for range reps {
		us, theirs := figures{}, figures{}
		for _, m := range against {
			// By each launcher, because they place the ranks differently. The better counts on
			// both sides.
			for _, own := range []bool{true, false} {
				f, err := m.run(dir, prefix, own, r.ranks, seconds, r.tests)
				if err != nil {
					return err
				}
				to := theirs
				if own {
					to = us
				}
				for k, v := range f {
					if old, ok := to[k]; !ok || v < old {
						to[k] = v
					}
				}
			}
		}
		for k, v := range us {
			mine[k], best[k] = append(mine[k], v), append(best[k], theirs[k])
		}
	}
	tests := r.tests
	if len(tests) == 0 {
		tests = []string{"init:0"}
	}
	for _, test := range tests {
		name, size, _ := strings.Cut(test, ":")
		bytes, _ := strconv.Atoi(size)
		r.print(name, bytes, mine[name+" "+size], best[name+" "+size])
	}
	return nil
}

func (r rankRow) print(test string, bytes int, mine, best []float64) {
	var q []float64
	for i := range mine {
		q = append(q, best[i]/mine[i])
	}
	if len(q) == 0 {
		fmt.Printf("%-4s %-5s %s %d: no figures\n", r.name, "lo", test, bytes)
		return
	}
	ratio, bar, ok := median(q), r.bar(test, bytes), "reached"
	if ratio < bar {
		ok = "MISSED"
	}
	what := fmt.Sprintf("%s, %d ranks: %s %d B, µs, against %s", r.what, r.ranks, test, bytes, strings.Join(r.against, ", "))
	fmt.Printf("%-4s %-5s %-64s %10.4g %10.4g %7.2f ≥%6.2f  %.2f … %.2f  %s\n", r.name, "lo", what, median(mine), median(best), ratio, bar, slices.Min(q), slices.Max(q), ok)
}

// measureRanks measures the rows M and H4 that only names; all if it is empty.
func measureRanks(dir, only string, reps int) error {
	var rows []rankRow
	for _, r := range rankRows {
		if only == "" || slices.Contains(strings.Split(only, ","), r.name) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	there, err := rankPrograms(dir, ".")
	if err != nil {
		return err
	}
	if len(there) == 0 {
		fmt.Println("M    lo    no MPI is installed: left out")
		return nil
	}
	for _, r := range rows {
		if err := r.measure(dir, there, reps); err != nil {
			fmt.Printf("%-4s %-5s %-64s failed: %v\n", r.name, "lo", r.what, err)
		}
	}
	return nil
}
