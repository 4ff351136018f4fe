package netswitch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// findInterfaces lists the Ethernet interfaces of the calling thread's namespace, and all
// addresses of that namespace.
func findInterfaces() (ifaces []*netInterface, own map[netip.Addr]bool, err error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, nil, err
	}
	own = map[netip.Addr]bool{}
	for _, f := range ifs {
		addrs, err := f.Addrs()
		if err != nil {
			return nil, nil, err
		}
		l := &netInterface{name: f.Name, index: f.Index, mtu: f.MTU}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			p, err := netip.ParsePrefix(n.String())
			if err != nil {
				continue
			}
			l.addrs = append(l.addrs, p)
			own[p.Addr()] = true
			switch {
			case p.Addr().Is4():
				if !l.own4.IsValid() {
					l.own4 = p.Addr()
				}
			case !l.own6.IsValid() || l.own6.IsLinkLocalUnicast():
				l.own6 = p.Addr()
			}
		}
		if len(f.HardwareAddr) == 6 {
			l.mac = mac(f.HardwareAddr)
			ifaces = append(ifaces, l)
		}
	}
	return ifaces, own, nil
}

// stopForwarding stops the kernel of the calling thread's namespace from forwarding.
// Otherwise each packet would arrive twice, once without faults. undo restores the setting
// and may be called from any thread.
func stopForwarding() (undo func(), err error) {
	// The files belong to the namespace of the thread that opens them.
	var was []*os.File
	undo = func() {
		for _, f := range was {
			_, _ = f.WriteAt([]byte("1\n"), 0)
			_ = f.Close()
		}
		was = nil
	}
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		path := filepath.Join("/proc/sys/net", name)
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			undo()
			return nil, fmt.Errorf("cannot tell whether the kernel forwards: %w", err)
		}
		if strings.TrimSpace(string(b)) == "0" {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			was = append(was, f)
			_, err = f.WriteAt([]byte("0\n"), 0)
		}
		if err != nil {
			undo()
			key := "net." + strings.ReplaceAll(name, "/", ".")
			return nil, fmt.Errorf("%s is %s in this network namespace, so that the kernel would forward beside the switch, and it cannot be set to 0 (%w): set it before (sysctl -w %s=0, docker run --sysctl %s=0)",
				key, strings.TrimSpace(string(b)), errors.Unwrap(err), key, key)
		}
	}
	return undo, nil
}

// offloads are the features that make an interface pass on packets that differ from those
// on the wire.
var offloads = []string{
	"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp",
	"tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation",
	"tx-udp-segmentation", "tx-gso-list", "tx-gso-partial", "tx-sctp-segmentation",
	"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro",
}

// OffloadsOff switches checksum and segmentation offload off on an interface of the calling
// thread's network namespace, so that it sends packets as they would be on a wire. Hosts of
// a testbed need that as much as the switch. An interface that has no offload, or cannot
// switch it off, is no error.
func OffloadsOff(dev string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer e.Close()
	// The call that reads the feature names sometimes loses its answer (the library hands
	// the kernel addresses on a stack that may have moved) and returns no names, or too
	// few. So check the result, and repeat.
	for range featureTries {
		var done bool
		if done, err = offloadsOff(e, dev); done || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
			break
		}
	}
	switch {
	case err == nil || errors.Is(err, unix.EOPNOTSUPP): // it has none
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("offloads of %s stay on: CAP_NET_ADMIN is missing", dev)
	}
	return fmt.Errorf("offloads of %s: %w", dev, err)
}

// featureTries bounds the checks of OffloadsOff.
const featureTries = 8

// offloadsOff switches the features off once, and reports whether all were off already.
func offloadsOff(e *ethtool.Ethtool, dev string) (done bool, err error) {
	have, err := e.FeaturesWithState(dev)
	if err != nil {
		return false, err
	}
	if len(have) == 0 {
		return false, errors.New("the kernel names no features")
	}
	off := map[string]bool{}
	for _, f := range offloads {
		if s, ok := have[f]; ok && !s.NeverChanged && (s.Active || s.Requested) {
			off[f] = false
		}
	}
	if len(off) == 0 {
		return true, nil
	}
	return false, e.Change(dev, off)
}

// interfaceStats reads the counters of interfaces in the namespace that it was made in.
type interfaceStats struct{ h *netlink.Handle }

func newInterfaceStats() (*interfaceStats, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &interfaceStats{h}, nil
}

func (s *interfaceStats) close() { s.h.Close() }

// read returns how many packets an interface lost on their way to the socket.
func (s *interfaceStats) read(index int) (uint64, error) {
	l, err := s.h.LinkByIndex(index)
	if err != nil {
		return 0, err
	}
	st := l.Attrs().Statistics
	if st == nil {
		return 0, nil
	}
	return st.RxDropped + st.RxMissedErrors + st.RxOverErrors, nil
}
