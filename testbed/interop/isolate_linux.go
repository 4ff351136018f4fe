package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netlink"
)

// isolated is set in the environment of a process that has a network of its own.
const isolated = "UETKIT_INTEROP_ISOLATED"

// isolate starts this program again in a network namespace of its own, where port 4793 and all
// addresses are free, and returns its exit code; ok is false in that second process, which goes on, and
// the error says why there is none.
func isolate() (code int, ok bool, err error) {
	if os.Getenv(isolated) != "" {
		return 0, false, addresses()
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	c := exec.Command(self, os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), isolated+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := c.Start(); err != nil {
		return 0, false, fmt.Errorf("no network namespace: %w", err)
	}
	err = c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), true, nil
	}
	return 0, err == nil, err
}

// addresses brings the loopback interface up and gives it the addresses of all ends.
func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for w := range maxWorkers {
		for _, v6 := range []bool{false, true} {
			for _, ip := range []string{host(w, v6, ours), host(w, v6, theirs)} {
				a := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(32, 32)}}
				if v6 {
					a.Mask, a.Flags = net.CIDRMask(128, 128), 0x02 // IFA_F_NODAD
				}
				if err := netlink.AddrAdd(lo, a); err != nil && !errors.Is(err, syscall.EEXIST) {
					return fmt.Errorf("address %s: %w", ip, err)
				}
			}
		}
	}
	return nil
}
