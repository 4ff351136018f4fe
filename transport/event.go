package transport

import "github.com/uetkit/uetkit/transport/internal/ses"

// An Event is the end of one posted operation. Each accepted operation makes
// exactly one, except a Silent one that succeeds.
type Event = ses.Event
