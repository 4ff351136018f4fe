package simulated

import (
	"time"

	"github.com/uetkit/uetkit/transport"
)

// trimming sets what a session asks for with base_rtt and trim: packets in the
// trimmable class, as the switch knows it.
func (s *session) trimming(c *transport.Config) {
	c.BaseRTT = time.Duration(s.t.BaseRTT)
	if !s.t.Trim {
		return
	}
	c.Trimming = true
	if k := s.l.cfg.Classes; k.Trimmable != 0 || k.Trimmed != 0 {
		c.Classes = transport.Classes{Trimmable: k.Trimmable, TrimmableRTX: k.TrimmableRTX, Trimmed: k.Trimmed, TrimmedLastHop: k.TrimmedLastHop, Control: k.Control}
	}
}
