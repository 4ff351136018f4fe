package simulated

import "github.com/uetkit/uetkit/transport"

// trimming sets what a session asks for with trim.
func trimming(c *transport.Config, s *session) {}
