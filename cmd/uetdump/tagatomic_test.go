package main

import (
	"strings"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// An atomic operation on a receive has the tag of a message and the offset of an access.
func TestOpsTaggedAtomic(t *testing.T) {
	o := &operation{opcode: wire.OpTSendFetchAtomic, where: 7, hasKey: true, offset: 8, len: 16}
	if s := o.text(); !strings.Contains(s, "match=0x7 off=0x8 len=16") || strings.Contains(s, "key=") {
		t.Error(s)
	}
}
