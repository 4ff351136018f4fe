package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/netswitch"
)

// asProgram makes the test binary act as the program.
const asProgram = "UETSWITCH_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(mainCode())
	}
	os.Exit(m.Run())
}

// program returns a command that runs uetswitch.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// inNewNamespace runs f on a thread in its own namespace with one interface, sw0, which
// children inherit. It skips the test if that is not permitted.
func inNewNamespace(t *testing.T, f func()) {
	t.Helper()
	skip, failed := "", error(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		was, err := netns.Get()
		if err != nil {
			skip = err.Error()
			return
		}
		defer was.Close()
		ns, err := netns.New()
		if err != nil {
			skip = fmt.Sprintf("no network namespace (%v): run as root", err)
			return
		}
		defer ns.Close()
		defer netns.Set(was) // the first thread of a process cannot end
		if failed = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "sw0"}, PeerName: "host0"}); failed != nil {
			return
		}
		for dev, addr := range map[string]string{"sw0": "198.18.102.1/24", "host0": "198.18.103.1/24", "lo": ""} {
			l, err := netlink.LinkByName(dev)
			if err == nil && addr != "" {
				a, _ := netlink.ParseAddr(addr)
				err = netlink.AddrAdd(l, a)
			}
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if failed = err; err != nil {
				return
			}
		}
		f()
	}()
	<-done
	if skip != "" {
		t.Skip(skip)
	}
	if failed != nil {
		t.Fatal(failed)
	}
}

const twoPorts = `{"fabric":{"seed":1,"ports":[
	{"name":"a","addrs":["198.18.102.0/24"],"from":{"rules":[]}},
	{"name":"b","addrs":["198.18.103.0/24"]}]}}`

func writeConfig(t *testing.T, s string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "switch.json")
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A frame that enters at a for an unknown host at b is lost by a blackhole. Its line is in
// the log after SIGTERM.
func TestSIGTERMLeavesAFlushedLog(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		inNewNamespace(t, func() { sigterm(t, sig) })
	}
}

func sigterm(t *testing.T, sig syscall.Signal) {
	cfg := writeConfig(t, strings.Replace(twoPorts, `"rules":[]`, `"rules":[{"name":"hole","blackhole":true}]`, 1))
	log := filepath.Join(t.TempDir(), "log.jsonl")
	c := program(t, "--config", cfg, "--log", log, "--http", "127.0.0.1:0")
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Process.Kill()
	said, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil || !strings.Contains(said, "a on sw0, b on host0, http://127.0.0.1:") {
		t.Errorf("it says %q %v", said, err)
	}
	// host0 is the other end of sw0: what it sends arrives at port a.
	const n = 5
	if err := sendFrames(n); err != nil {
		t.Error(err)
	}
	url := strings.TrimSpace(said[strings.Index(said, "http://"):])
	for end := time.Now().Add(5 * time.Second); ; {
		// Use a new client, because the namespace of this thread counts.
		out, err := curl(url + "/stats")
		if err == nil && bytes.Contains(out, []byte(fmt.Sprintf(`"lost_blackhole":%d`, n))) {
			break
		}
		if time.Now().After(end) {
			t.Errorf("stats: %s %v", out, err)
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = c.Process.Signal(sig)
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %v", sig, err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Error(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	if len(lines) != n {
		t.Errorf("%v: %d lines: %s", sig, len(lines), b)
	}
	for _, x := range lines {
		var l netswitch.Line
		if err := json.Unmarshal(x, &l); err != nil || l.Why != "lost_blackhole" || l.Rule != "hole" || l.Dst.String() != "198.18.103.9:9" {
			t.Errorf("%s: %v", x, err)
		}
	}
}

// sendFrames sends UDP packets from host0 through sw0 to 198.18.103.9.
func sendFrames(n int) error {
	from, err := netlink.LinkByName("host0")
	if err != nil {
		return err
	}
	to, err := netlink.LinkByName("sw0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	f := append([]byte(nil), to.Attrs().HardwareAddr...)
	f = append(f, from.Attrs().HardwareAddr...)
	f = append(f, 8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 102, 2, 198, 18, 103, 9, 0, 9, 0, 9, 0, 10, 0, 0, 'h', 'i')
	for range n {
		if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: from.Attrs().Index}); err != nil {
			return err
		}
	}
	return nil
}

// curl gets a page over a socket of this thread's namespace.
func curl(url string) ([]byte, error) {
	addr, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	_, port, _ := strings.Cut(addr, ":")
	var p int
	fmt.Sscan(port, &p)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := os.NewFile(uintptr(fd), "http")
	defer s.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: p, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	fmt.Fprintf(s, "GET /%s HTTP/1.0\r\n\r\n", path)
	var b bytes.Buffer
	_, err = b.ReadFrom(s)
	return b.Bytes(), err
}

func TestRefusesToRun(t *testing.T) {
	for _, c := range []struct {
		name, cfg, want string
		forward         bool // whether the kernel forwards
	}{
		{"no interface", `{"fabric":{"ports":[{"name":"a","addrs":["198.18.119.0/24"]}]}}`, "no interface has an address in 198.18.119.0/24", false},
		{"no privilege", twoPorts, "CAP_NET_RAW is missing", false},
		{"the kernel forwards", twoPorts, "--sysctl net.ipv4.ip_forward=0", true},
	} {
		inNewNamespace(t, func() {
			v := []byte("0")
			if c.forward {
				v = []byte("1")
			}
			if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", v, 0o644); err != nil {
				t.Error(err)
				return
			}
			out, code, err := runAsNobody(c.cfg)
			if err != nil || code != exitFailed || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
				t.Errorf("%s: %d %v %s", c.name, code, err, out)
			}
		})
	}
}

// runAsNobody runs the program without privileges in the calling thread's network
// namespace.
func runAsNobody(cfg string) (out string, code int, err error) {
	dir, err := os.MkdirTemp("", "uetswitch")
	if err != nil {
		return "", 0, err
	}
	defer os.RemoveAll(dir)
	// Another user must be able to read and run the files.
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		return "", 0, err
	}
	exe, file := filepath.Join(dir, "uetswitch"), filepath.Join(dir, "switch.json")
	if err := errors.Join(os.WriteFile(exe, b, 0o755), os.WriteFile(file, []byte(cfg), 0o644),
		os.Chmod(dir, 0o755), os.Chmod(exe, 0o755), os.Chmod(file, 0o644)); err != nil {
		return "", 0, err
	}
	c := exec.Command(exe, "--config", file)
	c.Env = append(os.Environ(), asProgram+"=1")
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(text), exit.ExitCode(), nil
	}
	return string(text), 0, err
}

func TestBenchQuick(t *testing.T) {
	inNewNamespace(t, func() {
		out, err := program(t, "bench", "--quick", "-J").Output()
		var r netswitch.BenchResult
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil || len(r.Speeds) != 1 || r.Speeds[0].Size != 1400 || r.Speeds[0].Overload < 1000 || r.Speeds[0].CPU <= 0 {
			t.Errorf("%v %s", err, out)
		}
	})
}

func TestBenchInterrupted(t *testing.T) {
	inNewNamespace(t, func() {
		c := program(t, "bench", "--trial", "1m")
		var said bytes.Buffer
		c.Stderr = &said
		if err := c.Start(); err != nil {
			t.Error(err)
			return
		}
		defer c.Process.Kill()
		// The program leaves its files behind once it has worked for a while.
		for end := time.Now().Add(10 * time.Second); cpuTicks(c.Process.Pid) < 20; {
			if time.Now().After(end) {
				t.Error("it does not work")
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("exit %d, %v: %s", code, c.ProcessState, &said)
		}
	})
}

// cpuTicks returns the processor time of a process in hundredths of a second.
func cpuTicks(pid int) (n int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}
