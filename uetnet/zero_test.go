package uetnet_test

import (
	"errors"
	"net"
	"testing"

	"github.com/uetkit/uetkit/internal/zero"
	"github.com/uetkit/uetkit/uetnet"
)

// A Node that nobody opened is a closed one.
func TestZeroObjectsAreClosed(t *testing.T) {
	zero.Refuse(t, func(err error) bool { return errors.Is(err, net.ErrClosed) }, nil, &uetnet.Node{})
}
