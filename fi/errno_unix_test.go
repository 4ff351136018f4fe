//go:build unix

package fi

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestErrnoIsThePlatforms(t *testing.T) {
	// fi_errno(3): numbers below 256 are those of the platform, so that code that checks for
	// those finds them.
	if err := fmt.Errorf("read: %w", EAGAIN); !errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINVAL) {
		t.Error("the platform's EAGAIN is not found")
	}
	if errors.Is(EOTHER, syscall.Errno(EOTHER)) {
		t.Error("libfabric's own number matches the platform's")
	}
}
