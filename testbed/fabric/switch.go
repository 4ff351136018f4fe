package fabric

import "time"

// A Switch is the state of a switch. It belongs to one goroutine.
type Switch struct{}

// New makes a switch, or names the first contradiction in cfg.
func New(cfg Config) (*Switch, error) { panic("not yet") }

// Start makes now the zero of the events' times, if no UET packet has come yet.
func (s *Switch) Start(now time.Duration) { panic("not yet") }

// Receive takes an IP packet that has arrived at a port; it borrows ip.
func (s *Switch) Receive(now time.Duration, port int, ip []byte) { panic("not yet") }

// Advance does everything that is due at or before now.
func (s *Switch) Advance(now time.Duration) { panic("not yet") }

// Transmit gives the next packet that is due at or before now and the port it
// leaves by, in the order of their times. ip is valid until the next call of any method. at
// is when it should have left.
func (s *Switch) Transmit(now time.Duration) (port int, ip []byte, at time.Duration, ok bool) {
	panic("not yet")
}

// NextTimeout is when something is due next; ok is false if nothing is.
func (s *Switch) NextTimeout() (at time.Duration, ok bool) { panic("not yet") }

// Apply does an event now, or refuses it with the reason.
func (s *Switch) Apply(now time.Duration, e Event) error { panic("not yet") }

// Stats copies what was counted.
func (s *Switch) Stats(now time.Duration) *Stats { panic("not yet") }
