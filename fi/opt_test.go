package fi

import "testing"

func TestTClass(t *testing.T) {
	// R-INFO-23: a class is a code point or a label and nothing else.
	for d := range uint8(64) {
		if got, ok := TCDSCP(d).DSCP(); !ok || got != d {
			t.Errorf("DSCP %d: %d %v", d, got, ok)
		}
	}
	for c, want := range map[TClass]uint8{TCUnspec: 0, TCBestEffort: 0, TCLowLatency: 46, TCDedicatedAccess: 34, TCBulkData: 10, TCScavenger: 1, TCNetworkCtrl: 48} {
		if got, ok := c.DSCP(); !ok || got != want {
			t.Errorf("%#x: %d %v", uint32(c), got, ok)
		}
	}
	for _, c := range []TClass{1, 0x140, 0x206, 1 << 20} {
		if _, ok := c.DSCP(); ok {
			t.Errorf("%#x is taken", uint32(c))
		}
	}
}
