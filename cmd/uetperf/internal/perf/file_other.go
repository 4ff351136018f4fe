//go:build !linux

package perf

import (
	"errors"
	"fmt"
)

// mapFile reports that this system is not known to make mapped files durable.
func mapFile(int64) (memory []byte, unmap func(), err error) {
	return nil, nil, fmt.Errorf("a file for durable writes: %w", errors.ErrUnsupported)
}
