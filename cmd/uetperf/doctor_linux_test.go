package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// doctorSays runs uetperf doctor inside another command. It wants an exit status and lines
// of output.
func doctorSays(t *testing.T, wrap, args []string, code int, lines ...string) {
	t.Helper()
	cmd := uetperf(append([]string{"doctor"}, args...)...)
	if wrap != nil {
		name := cmd.Path
		cmd = exec.Command(wrap[0], append(append(wrap[1:len(wrap):len(wrap)], name), cmd.Args[1:]...)...)
		// The test binary is uetperf if its first argument is a link of that name.
		cmd.Args[len(wrap)] = link(t, name)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ee *exec.ExitError
	got := 0
	if errors.As(err, &ee) {
		got = ee.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Errorf("exit status %d, want %d", got, code)
	}
	for _, l := range lines {
		if !regexp.MustCompile("(?m)^" + l).Match(out.Bytes()) {
			t.Errorf("no line %q", l)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// link makes a link to a program by whose name the program knows that it is uetperf.
func link(t *testing.T, exe string) string {
	t.Helper()
	name := t.TempDir() + "/uetperf"
	if err := os.Symlink(exe, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not here", p)
		}
	}
}

func TestDoctorFindsSmallBuffers(t *testing.T) {
	t.Parallel()
	needs(t, "setpriv")
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Skip(err)
	}
	var most int
	if _, err := fmt.Sscan(string(b), &most); err != nil || most >= 8<<20 {
		t.Skipf("net.core.rmem_max is %s: there is nothing to find", strings.TrimSpace(string(b)))
	}
	// Drop the capability that allows exceeding the limit.
	wrap := []string{"setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin"}
	if os.Geteuid() != 0 {
		wrap = []string{"env"}
	}
	want, code := "bad   buffers +socket buffers: receive .* of 8 MiB, .*: bursts overrun it", 1
	if 2*most >= 1<<20 {
		want, code = "warn  buffers +socket buffers: receive .* of (8|16) MiB, .*: bursts may overrun them", 0
	}
	doctorSays(t, wrap, nil, code, want, " +→ sysctl -w net.core.rmem_max=8388608 ", "ok    privileges +none, and none are needed")
}

func TestDoctorFindsFewFiles(t *testing.T) {
	t.Parallel()
	doctorSays(t, []string{"sh", "-c", `ulimit -n 50; exec "$0" "$@"`}, nil, 1, "bad   files +at most 50 files may be open", " +→ ulimit -n 4096")
}

func TestDoctorFindsOneProcessor(t *testing.T) {
	t.Parallel()
	needs(t, "taskset")
	doctorSays(t, []string{"taskset", "-c", "0"}, nil, 0, "warn  processors +1 of [0-9]+ processors may be used")
}

// A server that is stopped most of the time is reported as late, not as gone.
func TestDoctorFindsASlowPeer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for {
			_ = s.cmd.Process.Signal(syscall.SIGSTOP)
			select {
			case <-tick.C:
			case <-stop:
				_ = s.cmd.Process.Signal(syscall.SIGCONT)
				return
			}
			_ = s.cmd.Process.Signal(syscall.SIGCONT)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	doctorSays(t, nil, []string{s.addr, "--timeout", "10s"}, 0, "ok    reach ", "warn  slow_peer +the server lets its process run within .*: it is busy with others, or stopped, and answers late")
}

// A wiredNet is two network namespaces joined by a veth pair, with a server in the second.
type wiredNet struct {
	t    *testing.T
	a, b string
}

func newWire(t *testing.T, serve ...string) *wiredNet {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	needs(t, "ip", "nft")
	n := &wiredNet{t, fmt.Sprintf("why-a%d", os.Getpid()), fmt.Sprintf("why-b%d", os.Getpid())}
	t.Cleanup(func() {
		for _, ns := range []string{n.a, n.b} {
			_ = exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	for _, c := range []string{
		"ip netns add A", "ip netns add B", "ip link add why0 netns A type veth peer name why0 netns B",
		"ip -n A addr add 198.18.77.1/24 dev why0", "ip -n B addr add 198.18.77.2/24 dev why0",
		"ip -n A link set why0 mtu 9000 up", "ip -n B link set why0 mtu 9000 up", "ip -n A link set lo up", "ip -n B link set lo up",
	} {
		if out, err := n.cmd(c).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", c, err, out)
		}
	}
	// A host says few things a second by ICMP; tests ask for more. Without the tool they may wait.
	_ = n.cmd("ip netns exec B sysctl -qw net.ipv4.icmp_ratelimit=0").Run()
	s := n.cmd("ip netns exec B " + n.program() + " serve --until-eof " + strings.Join(serve, " "))
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = s.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil { // the server is up
		t.Fatal(err)
	}
	go func() { _, _ = out.Read(make([]byte, 4096)) }()
	return n
}

func (n *wiredNet) program() string {
	exe, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	return link(n.t, exe)
}

// cmd returns a command in which A and B stand for the namespaces.
func (n *wiredNet) cmd(s string) *exec.Cmd {
	f := strings.Fields(s)
	for i, w := range f {
		switch w {
		case "A":
			f[i] = n.a
		case "B":
			f[i] = n.b
		}
	}
	return exec.Command(f[0], f[1:]...)
}

// rules replaces the packet filter of a namespace by rules in the chain c. Without rules
// there is no filter.
func (n *wiredNet) rules(ns, chain string, rules ...string) {
	n.t.Helper()
	script := "flush ruleset\n"
	if rules != nil {
		script += "add table ip why\nadd chain ip why c { " + chain + " }\n"
		for _, r := range rules {
			script += "add rule ip why c " + r + "\n"
		}
	}
	c := n.cmd("ip netns exec " + ns + " nft -f -")
	c.Stdin = strings.NewReader(script)
	if out, err := c.CombinedOutput(); err != nil {
		n.t.Skipf("nft: %v: %s", err, out)
	}
}

// Tests of all kinds pass a packet filter that keeps no state and lets through, in each
// direction, only the ports that --data-ports and the server's own are.
func TestNarrowFirewall(t *testing.T) {
	n := newWire(t, "--data-ports", "20000-20015")
	const in = "type filter hook input priority 0 ;"
	n.rules("A", in, `iifname "why0" udp dport != 21000-21015 drop`)
	n.rules("B", in, `iifname "why0" udp dport != { 4793-4798, 20000-20015 } drop`)
	for _, args := range []string{
		"lat HOST tsend -n 100", "bw HOST -P 3 --paths 2 -n 200 -c", "bw HOST --bidir -n 200", "bw HOST -e msg -n 200 -c", "rr HOST --churn -n 20", "rr HOST -e msg --churn -n 20",
		"lat HOST fadd -n 100", "bw HOST write -n 200", "incast HOST -P 4 -t 300ms", "bw HOST --mode uud -s 1K -n 200", "bw HOST -n 200 --impair loss=1%",
	} {
		cmd := n.cmd("ip netns exec A " + n.program() + " " + strings.Replace(args, "HOST", "198.18.77.2 --data-ports 21000-21015 --timeout 3s", 1))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	wrap := []string{"ip", "netns", "exec", n.a}
	doctorSays(t, wrap, []string{"198.18.77.2", "--timeout", "2s", "--data-ports", "21000-21015"}, 0,
		"ok    ports +a firewall has to let UDP ports 4793 to 4798 of the server pass, and for data 20000-20015 at the server, 21000-21015 here", "(ok|warn) +data ")
	doctorSays(t, wrap, []string{"198.18.77.2", "--timeout", "2s"}, 3, "bad   reach ")
}

// The doctor finds each way in which a real packet filter gets in the way.
func TestDoctorFindsWhatIsInBetween(t *testing.T) {
	n := newWire(t)
	const in = "type filter hook input priority 0 ;"
	for _, c := range []struct {
		name, ns, chain, rule string
		code                  int
		lines                 []string
	}{
		{"nothing", "A", "", "", 0, []string{"ok    nat ", "ok    mtu +packets of 9000 B", "ok    ecn ", "(ok|warn) +data "}},
		{
			"refused", "B", in, "udp dport 4793-4798 reject with icmp type admin-prohibited", 3,
			[]string{"bad   firewall +(UDP port 4793: )?198.18.77.2 says by ICMP .*administratively prohibited", "UNREACHABLE"},
		},
		{"control dropped", "B", in, "udp dport 4793 drop", 3, []string{"bad   firewall +UDP port 4793 of 198.18.77.2 is silent, while its port for probes"}},
		{"all dropped", "B", in, "udp dport 4793-4798 drop", 3, []string{"bad   reach +nothing comes back from 198.18.77.2:4793"}},
		{"probes dropped", "B", in, "udp dport 4798 drop", 1, []string{"bad   firewall +control at UDP port 4793 works, and port 4798 is silent"}},
		{
			"data dropped", "B", in, "udp dport != 4793-4798 drop", 1,
			[]string{"bad   firewall +control at UDP port 4793 works, and data between other ports does not arrive", " +→ let UDP ports pass, both ways: any of net.ipv4.ip_local_port_range at both hosts"},
		},
		{"black hole", "B", in, "ip length > 3000 drop", 1, []string{"bad   mtu +.* packets above 2304 B do not pass there .*black hole.*ours carry 8192 B", " +→ --mtu 2048"}},
		{"black hole back", "A", in, "ip length > 3000 drop", 1, []string{"bad   mtu +.* packets above 2304 B do not pass back"}},
		{"lossy", "B", in, "udp dport != 4793-4798 numgen random mod 25 0 drop", 0, []string{`warn  data +.*: the path lost [0-9]+ of [0-9]+ on the way there, `}},
		{"bleached", "A", "type filter hook output priority 0 ;", `oifname "why0" ip ecn set not-ect`, 0, []string{"ok    loopback ", "warn  ecn +ECN is bleached on the way there: sent 2, arrived 0"}},
		{"bleached back", "B", "type filter hook output priority 0 ;", `oifname "why0" ip ecn set not-ect`, 0, []string{"warn  ecn +ECN is bleached on the way back: sent 2, arrived 0"}},
		{
			"translated", "A", "type nat hook postrouting priority 100 ;", "ip protocol udp masquerade to :20000-20100", 3,
			[]string{"bad   nat +what leaves 198.18.77.1:[0-9]+ arrives from 198.18.77.1:20[01][0-9]+: somebody in between rewrites addresses"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.t = t
			if c.rule != "" {
				n.rules(c.ns, c.chain, c.rule)
				defer n.rules(c.ns, "")
			}
			doctorSays(t, []string{"ip", "netns", "exec", n.a}, []string{"198.18.77.2", "--timeout", "2s", "--gso", "off"}, c.code, c.lines...)
		})
	}
}
