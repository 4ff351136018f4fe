//go:build !linux

package netswitch

import (
	"context"
	"errors"
	"net"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// errLinux is the error of every other system.
var errLinux = errors.New("the switch needs Linux: its ports are packet sockets")

// A Switch forwards between packet sockets, on Linux.
type Switch struct{}

// Open fails because it needs Linux, and closes the log of opts.
func Open(opts Options) (*Switch, error) {
	if opts.Log != nil {
		_ = opts.Log.Close()
	}
	return nil, errLinux
}

// Run forwards until ctx is done.
func (s *Switch) Run(context.Context) error { return errLinux }

// Close gives back what Open took.
func (s *Switch) Close() error { return nil }

// Addr is where HTTP is answered.
func (s *Switch) Addr() net.Addr { return nil }

// Interfaces are those that were chosen, by port.
func (s *Switch) Interfaces() map[string]string { return nil }

// Stats copies what was counted.
func (s *Switch) Stats() (Stats, error) { return Stats{}, errLinux }

// Start makes now the zero of the events.
func (s *Switch) Start() error { return errLinux }

// Apply does an event now.
func (s *Switch) Apply(fabric.Event) error { return errLinux }

// Config is what the switch runs with.
func (s *Switch) Config() Config { return Config{} }

// Series are the samples so far.
func (s *Switch) Series() []result.Sample { return nil }

// OffloadsOff switches offloads off, on Linux.
func OffloadsOff(string) error { return errLinux }
