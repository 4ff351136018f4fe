package invariant

import (
	"strings"
	"testing"
)

func TestCheckPanicsOnlyWhenOn(t *testing.T) {
	defer func() {
		got := recover()
		if !On {
			if got != nil {
				t.Fatalf("Check panicked with checks off: %v", got)
			}
			return
		}
		s, ok := got.(string)
		if !ok || !strings.HasPrefix(s, "BUG: ") || !strings.Contains(s, "base 7 after 9") {
			t.Fatalf("panic value %v, want \"BUG: …\" with the values", got)
		}
	}()
	Check(1 < 2, "never said")
	Check(2 < 1, "base %d after %d", 7, 9)
	if On {
		t.Fatal("Check(false) returned with checks on")
	}
}

func TestCheckAllocatesNothingWhenOff(t *testing.T) {
	if On {
		t.Skip("checks are on")
	}
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		n++
		Check(n >= 0, "n is %d", n)
	}); got != 0 {
		t.Errorf("Check allocates %v times per call", got)
	}
}
