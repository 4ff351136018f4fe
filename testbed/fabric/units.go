package fabric

import "time"

// A Duration is written as Go does: "1.5ms".
type Duration time.Duration

// Bytes is written "64KiB", "1.5kB", "9000".
type Bytes int64

// A Rate is in bits per second, written "1Gbit/s", "500Mbit/s", "10kbit/s".
type Rate int64
