package transport

import (
	"fmt"
	"strings"
	"testing"
)

// TestWaitingReadsNoUserMemory proves that the sentence about a message that waits behind
// another names the other's context and does not print what the context points to. That
// memory belongs to the user, who may write it at the same time.
func TestWaitingReadsNoUserMemory(t *testing.T) {
	type state struct{ secret string }
	for _, ctx := range []any{&state{"sesame"}, []string{"sesame"}, map[int]string{1: "sesame"}, state{"sesame"}, nil} {
		w := Waiting{Cause: WaitBehind, Behind: ctx, BehindFor: WaitAck}
		if s := w.String(); strings.Contains(s, "sesame") {
			t.Errorf("context %T: %s", ctx, s)
		}
	}
	for _, ctx := range []any{"first", 17} {
		w := Waiting{Cause: WaitBehind, Behind: ctx, BehindFor: WaitAck}
		if s := w.String(); !strings.Contains(s, fmt.Sprint("behind the message ", ctx)) {
			t.Errorf("context %v: %s", ctx, s)
		}
	}
}
