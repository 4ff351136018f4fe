package agent

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/netswitch"
)

// Enter restarts the program with other arguments inside a named network namespace. All
// threads of a new program are in its namespace. It returns only in error.
func Enter(namespace string, args []string) error {
	runtime.LockOSThread()
	ns, err := netns.GetFromName(namespace)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter namespace %s: %w", namespace, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return unix.Exec(self, append([]string{self}, args...), os.Environ())
}

// setupHost makes the gateway the only route to the other hosts, and turns offloads off: a
// switch of packet sockets must not see the 64 KiB packets that offload makes.
func setupHost(gateway netip.Addr, route netip.Prefix) error {
	link, err := behind(gateway)
	if err != nil {
		return err
	}
	if err := netswitch.OffloadsOff(link.Attrs().Name); err != nil {
		return err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	for _, r := range routes {
		if r.Gw != nil && (r.Dst == nil || r.Dst.IP.IsUnspecified()) {
			if err := netlink.RouteDel(&r); err != nil {
				return fmt.Errorf("remove the default route by %s: %w (NET_ADMIN is needed)", r.Gw, err)
			}
		}
	}
	route = route.Masked()
	dst := &net.IPNet{IP: route.Addr().AsSlice(), Mask: net.CIDRMask(route.Bits(), route.Addr().BitLen())}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("route %s by %s: %w (NET_ADMIN is needed)", route, gateway, err)
	}
	return nil
}

// behind returns the interface whose network contains an address.
func behind(a netip.Addr) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, x := range addrs {
			if x.Contains(a.AsSlice()) {
				return l, nil
			}
		}
	}
	return nil, fmt.Errorf("no interface is on the network of the gateway %s", a)
}

// setupSwitch turns offloads off on all interfaces, and stops the kernel from forwarding
// beside the switch.
func setupSwitch() error {
	const forward = "/proc/sys/net/ipv4/ip_forward"
	v, err := os.ReadFile(forward)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(v)) != "0" {
		if err := os.WriteFile(forward, []byte("0"), 0o644); err != nil {
			return fmt.Errorf("the kernel forwards (net.ipv4.ip_forward is 1) and cannot be kept from it: %w", err)
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			if err := netlink.LinkSetUp(l); err != nil {
				return fmt.Errorf("%s: %w", l.Attrs().Name, err)
			}
			continue
		}
		if err := netswitch.OffloadsOff(l.Attrs().Name); err != nil {
			return err
		}
	}
	return nil
}
