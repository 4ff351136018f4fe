package transport

import "github.com/uetkit/uetkit/transport/internal/ses"

// An Event is the end of one operation. Each accepted operation causes exactly one Event,
// except a Silent operation that succeeds.
type Event = ses.Event
