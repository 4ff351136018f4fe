//go:build !linux

package agent

import (
	"errors"
	"net/netip"
)

var errLinux = errors.New("labs of containers and namespaces need Linux")

// Enter is for Linux.
func Enter(string, []string) error { return errLinux }

func setupHost(netip.Addr, netip.Prefix) error { return errLinux }

func setupSwitch() error { return errLinux }
