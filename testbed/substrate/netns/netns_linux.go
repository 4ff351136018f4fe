// Package netns makes labs of network namespaces: one for the switch and one per host, each
// joined to the switch by a veth pair. No interface is ever in the namespace of the
// machine, so addresses of labs cannot collide.
//
//	c  eth0 198.18.17.2 ──── c 198.18.17.1 ┐
//	                                       switch
//	s  eth0 198.18.16.2 ──── s 198.18.16.1 ┘
package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// runNetns is where ip(8) keeps named namespaces.
const runNetns = "/run/netns"

// Substrate makes labs of namespaces.
type Substrate struct{}

// Name is netns.
func (Substrate) Name() string { return "netns" }

// Available tries the operations that need privilege.
func (Substrate) Available(context.Context) error {
	err := alone(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err == nil {
		return nil
	}
	return fmt.Errorf("network namespaces: %w: run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN (%w)", err, substrate.ErrUnsupported)
}

// alone runs f on a thread that ends after it, so that changes of f to its thread are gone.
func alone(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Prepare has nothing to make.
func (Substrate) Prepare(context.Context, string, io.Writer) error { return nil }

// A netLab is a lab of namespaces.
type netLab struct {
	spec  *substrate.Spec
	exits chan substrate.Exit

	mu    sync.Mutex
	procs map[string]*process // the living
	wg    sync.WaitGroup
}

// A process is the process group in a namespace: the agent and its children.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Up makes the namespaces and starts the agents.
func (Substrate) Up(ctx context.Context, s *substrate.Spec) (_ substrate.Lab, err error) {
	l := &netLab{spec: s, exits: make(chan substrate.Exit, 256), procs: map[string]*process{}}
	defer func() {
		if err != nil {
			_ = l.Down(context.WithoutCancel(ctx))
		}
	}()
	if err := l.create(ctx); err != nil {
		return nil, err
	}
	if err := l.start(substrate.SwitchName); err != nil {
		return nil, err
	}
	for _, h := range s.Hosts {
		if err := l.start(h.Name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *netLab) namespace(host string) string { return l.spec.Name + "-" + host }

// create makes the namespaces with their interfaces and addresses.
func (l *netLab) create(ctx context.Context) error {
	sw, err := l.newNamespace(substrate.SwitchName)
	if err != nil {
		return err
	}
	defer func() { _ = sw.Close() }()
	at, err := netlink.NewHandleAt(sw)
	if err != nil {
		return fmt.Errorf("namespace of the switch: %w", err)
	}
	defer at.Close()
	if err := up(at, "lo"); err != nil {
		return err
	}
	for _, h := range l.spec.Hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.join(h, at); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return nil
}

// newNamespace makes a named namespace. The caller closes it.
func (l *netLab) newNamespace(host string) (ns netns.NsHandle, err error) {
	name := l.namespace(host)
	if _, err := os.Lstat(filepath.Join(runNetns, name)); err == nil {
		return 0, fmt.Errorf("namespace %s exists already: `testbed down` removes what was left, `ip netns del %s` this one", name, name)
	}
	err = alone(func() error {
		ns, err = netns.NewNamed(name)
		if err != nil {
			return err
		}
		// IPv6 would only send neighbour and router discovery on every interface.
		err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644)
	})
	if err != nil {
		return 0, fmt.Errorf("namespace %s: %w", name, err)
	}
	return ns, nil
}

// join makes a host's namespace and the veth pair to the switch.
func (l *netLab) join(h substrate.Host, sw *netlink.Handle) error {
	ns, err := l.newNamespace(h.Name)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = h.Name, l.spec.MTU, 10000
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns), PeerMTU: uint32(l.spec.MTU), PeerTxQLen: 10000}
	if err := sw.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth pair: %w", err)
	}
	at, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := up(at, "lo"); err != nil {
		return err
	}
	return errors.Join(address(sw, h.Name, h.Gateway, h.Net), address(at, "eth0", h.Addr, h.Net))
}

func up(at *netlink.Handle, name string) error {
	link, err := at.LinkByName(name)
	if err == nil {
		err = at.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// address gives an interface its address and sets it up.
func address(at *netlink.Handle, name string, a netip.Addr, n netip.Prefix) error {
	link, err := at.LinkByName(name)
	if err == nil {
		err = at.AddrReplace(link, ipNet(a, n))
	}
	if err != nil {
		return fmt.Errorf("address %s of %s: %w", a, name, err)
	}
	return up(at, name)
}

func ipNet(a netip.Addr, n netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(n.Bits(), 32)}}
}

// logFile is the file with the output of a host. It lies in the lab's folder.
func (l *netLab) logFile(host string) string { return filepath.Join(l.spec.Dir, host+".log") }

// Log copies the output of a host to w.
func (l *netLab) Log(_ context.Context, host string, w io.Writer) error {
	f, err := os.Open(l.logFile(host))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}

// Shell returns a command line of ip netns exec.
func (l *netLab) Shell(host string) string { return "ip netns exec " + l.namespace(host) }

func (l *netLab) host(name string) (substrate.Host, bool) {
	i := slices.IndexFunc(l.spec.Hosts, func(h substrate.Host) bool { return h.Name == name })
	if i < 0 {
		return substrate.Host{}, false
	}
	return l.spec.Hosts[i], true
}

// start starts the agent of a host, or of the switch.
func (l *netLab) start(name string) error {
	log, err := os.OpenFile(l.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	args := []string{"agent", "host"}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/"}
	if name == substrate.SwitchName {
		args = []string{"agent", "switch", "--socket", filepath.Join(l.spec.Out, substrate.Socket), "--"}
		for _, a := range l.spec.Switch {
			args = append(args, strings.ReplaceAll(a, substrate.OutArg, l.spec.Out))
		}
	} else {
		h, _ := l.host(name)
		env = append(append(env, h.Env...), "UET_OUT="+h.Out)
		if h.Keys != "" {
			env = append(env, "UET_KEYS="+h.Keys)
		}
	}
	c := exec.Command(filepath.Join(l.spec.Bin, "testbed"), append([]string{"agent", "enter", l.namespace(name), "--"}, args...)...)
	c.Env, c.Stdout, c.Stderr, c.Dir = env, log, log, l.spec.Dir
	// The process has a group of its own: the terminal's Ctrl-C is for the runner, and
	// actions are for all processes of a host at once.
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{c, make(chan struct{})}
	l.mu.Lock()
	l.procs[name] = p
	l.mu.Unlock()
	l.wg.Go(func() {
		_ = c.Wait()
		at := time.Now()
		l.mu.Lock()
		if l.procs[name] == p {
			delete(l.procs, name)
		}
		l.mu.Unlock()
		close(p.done)
		l.exits <- substrate.Exit{Host: name, Code: exitStatus(c.ProcessState), At: at}
	})
	return nil
}

// exitStatus returns the status that a shell reports: 128 plus the signal if the process
// was killed.
func exitStatus(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// Exits reports processes that end.
func (l *netLab) Exits() <-chan substrate.Exit { return l.exits }

// Do does an action.
func (l *netLab) Do(ctx context.Context, name string, a substrate.Action) error {
	if a == substrate.Start {
		if err := l.reachable(name, true); err != nil {
			return err
		}
		return l.start(name)
	}
	l.mu.Lock()
	p := l.procs[name]
	l.mu.Unlock()
	if p == nil {
		if a == substrate.Stop {
			return nil // it has ended already
		}
		return fmt.Errorf("%s %s: it has ended already", a, name)
	}
	sig := map[substrate.Action]syscall.Signal{
		substrate.Pause: syscall.SIGSTOP, substrate.Resume: syscall.SIGCONT, substrate.Kill: syscall.SIGKILL, substrate.Stop: syscall.SIGTERM,
	}[a]
	if a == substrate.Kill {
		// Remove the address first, so that the kernel does not answer for the process.
		if err := l.reachable(name, false); err != nil {
			return err
		}
	}
	to := -p.cmd.Process.Pid
	if a == substrate.Stop {
		to = -to // the agent tells its children
	}
	if err := syscall.Kill(to, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s %s: %w", a, name, err)
	}
	if a != substrate.Kill && a != substrate.Stop {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reachable adds or removes the address of a host.
func (l *netLab) reachable(name string, yes bool) error {
	h, ok := l.host(name)
	if !ok {
		return fmt.Errorf("there is no host %s", name)
	}
	ns, err := netns.GetFromName(l.namespace(name))
	if err != nil {
		return fmt.Errorf("namespace of %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	at, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer at.Close()
	if yes {
		return address(at, "eth0", h.Addr, h.Net)
	}
	link, err := at.LinkByName("eth0")
	if err == nil {
		err = at.AddrDel(link, ipNet(h.Addr, h.Net))
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("address of %s: %w", name, err)
	}
	return nil
}

// Down kills the processes and removes the namespaces.
func (l *netLab) Down(context.Context) error {
	_, err := remove(func(name string) bool { return strings.HasPrefix(name, l.spec.Name+"-") })
	l.wg.Wait()
	return err
}

// Leftovers removes namespaces of labs that nobody owns.
func (Substrate) Leftovers(_ context.Context, prefix string, owned func(string) bool) ([]string, error) {
	return remove(func(name string) bool {
		i := strings.LastIndexByte(name, '-')
		return i > 0 && lab.IsLab(name[:i], prefix) && !owned(name[:i])
	})
}

// remove kills all processes in the chosen namespaces and removes the namespaces.
func remove(chosen func(string) bool) (removed []string, err error) {
	entries, err := os.ReadDir(runNetns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, e := range entries {
		if !chosen(e.Name()) {
			continue
		}
		removed = append(removed, "namespace "+e.Name())
		var st unix.Stat_t
		if unix.Stat(filepath.Join(runNetns, e.Name()), &st) == nil {
			inodes[st.Ino] = true
		}
	}
	if len(removed) == 0 {
		return nil, nil
	}
	// Twice: the second time finds processes that forked during the first.
	for range 2 {
		killIn(inodes)
	}
	for _, r := range removed {
		name := strings.TrimPrefix(r, "namespace ")
		if e := netns.DeleteNamed(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove namespace %s: %w", name, e))
		}
	}
	return removed, err
}

// killIn kills all processes in namespaces and waits until they are gone.
func killIn(inodes map[uint64]bool) {
	self := os.Getpid()
	procs, _ := os.ReadDir("/proc")
	var pids []int
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == self {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", p.Name(), "ns/net"), &st) == nil && inodes[st.Ino] {
			pids = append(pids, pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	deadline := time.Now().Add(3 * time.Second)
	for _, pid := range pids {
		for time.Now().Before(deadline) {
			// A zombie, which its parent has not waited for, no longer has a namespace.
			if _, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
